"""`rcad data`: what there is, fetching it, reading one's own, checking every byte."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from rcad.cli.options import CacheFolder, DataFolder, Json, Reading, about, argument, bundled, group, option

app = group(
    "Known data sets, and your own.",
    "rcad data list",
    "rcad data fetch cifar100 --data-dir data",
    "rcad data import images/",
)


@app.command(
    "list",
    help=about(
        "Every data set known by name, and where its files are.",
        "rcad data list",
        "rcad data list --json",
        more="Then what else lies in the data folder and can be read, as rcad data import --name puts it there.",
    ),
)
def list_data(data_dir: DataFolder = None, as_json: Json = False) -> None:
    from rcad.cli.importing import own
    from rcad.cli.screen import say, say_json, table
    from rcad.data.registry import available

    found = [*available(data_dir), *own(data_dir)]
    if as_json:
        say_json([one._asdict() for one in found])
        return
    table(
        ["data", "kind", "found", "what"],
        [[one.name, one.kind, one.where or "-", one.note] for one in found],
        spare=["kind"],
    )
    if not data_dir:
        say("\nPass --data-dir or set RCAD_DATA to look for files.")


@app.command(
    "fetch",
    help=about(
        "Download a known data set from its official address.",
        "rcad data fetch cifar10 --data-dir data",
        "rcad data fetch svhn --extra --data-dir data",
        more="An interrupted download continues where it stopped. Its checksum is compared with the published one.",
    ),
)
def fetch_data(
    name: Annotated[str, argument("NAME", "cifar10, cifar100, svhn or tiny-imagenet.")],
    data_dir: DataFolder = None,
    extra: Annotated[bool, option("--extra", "Also the optional files (SVHN: 1.3 GB).")] = False,
) -> None:
    from rcad.cli.screen import say
    from rcad.data.download import fetch
    from rcad.errors import InputError, expanded
    from rcad.train.progress import show_progress

    if data_dir is None:
        raise InputError("expected a folder to put the files in, but got none; pass --data-dir or set RCAD_DATA")
    with show_progress() as progress:
        told = partial(progress.detail, f"fetching {name}", unit="B")
        files = fetch(name, expanded(data_dir), extra=extra, progress=told)
    for file in files:
        say(f"{file}  checksum ok")


@app.command(
    "import",
    help=about(
        "Check your own data: read it once and report what was found.",
        "rcad data import images/",
        "rcad data import my.csv --target price",
        "rcad data import images/ --name flowers --data-dir data",
        more="""Reads class folders of images, Kaggle's layout, Parquet shards, archives, .npz, .csv, .tsv or .npy,
        and decodes images into the cache. --name copies the data to the data folder, so that --data NAME finds it.""",
    ),
)
@bundled
def import_data(
    *,
    path: Annotated[str, argument("PATH", "A file or a folder.")],
    name: Annotated[str | None, option("--name NAME", "Copy it to the data folder as NAME.")] = None,
    reading: Reading,
    as_json: Json = False,
) -> None:
    from rcad.cli.importing import check_name, describe, keep, show, train_line
    from rcad.cli.screen import say, say_json
    from rcad.data.registry import load
    from rcad.errors import expanded
    from rcad.train.progress import show_progress

    place = None if name is None else check_name(name, Path(path), reading.data_dir)
    with show_progress(as_json=as_json) as progress:
        told = partial(progress.detail, "reading")
        dataset = load(path, **reading.places, progress=told, **reading.main, **reading.own)
    if place is not None:
        keep(expanded(path), place)
    if as_json:
        say_json(describe(dataset))
        return
    show(dataset)
    say(f"\ntrain on it: {train_line(path if place is None else place.name, reading)}")


@app.command(
    "verify",
    help=about(
        "Check every byte of the known archives in the data folder and of the cache of decoded images.",
        "rcad data verify",
        "rcad data verify --data-dir data",
    ),
)
def verify_data(data_dir: DataFolder = None, cache_dir: CacheFolder = None, as_json: Json = False) -> None:
    from rcad.cli.screen import say, say_json
    from rcad.data.registry import verify
    from rcad.errors import InputError
    from rcad.runs.words import plural

    results = verify(data_dir, cache_dir)
    wrong = [(path, problem) for path, problem in results if problem is not None]
    if as_json:
        say_json([{"path": str(path), "problem": problem} for path, problem in results])
    else:
        for path, problem in results:
            say(f"{'ok ' if problem is None else 'bad'}  {path}")
        say(f"{plural(len(results), 'item')} checked, {len(wrong)} broken")
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise InputError(f"{wrong[0][1]}{more}")


@app.command(
    "clear",
    help=about(
        "Empty the cache of decoded images and unpacked archives.",
        "rcad data clear",
        "rcad data clear --yes",
        more="""Without --yes the content is only listed. Cached data is made again from its source when needed. Files
        that rcad did not make are kept.""",
    ),
)
def clear_data(yes: Annotated[bool, option("--yes -y", "Remove them.")] = False, cache_dir: CacheFolder = None) -> None:
    from rcad.cli.screen import say
    from rcad.data.cache import cache_root, clear, contents
    from rcad.runs.words import plural, size

    found = contents(cache_dir)
    for path, used in found.items():
        if not path.name.startswith(".") and path.is_dir():
            say(f"{size(used):>10}  {path}")
    total = f"{plural(len(found), 'item')}, {size(sum(found.values()))} in {cache_root(cache_dir)}"
    if not yes:
        say(f"{total}; add --yes to remove")
        return
    clear(cache_dir)
    say(f"removed {total}")
