"""`rcad data`: what there is, fetching it, reading one's own, checking every byte."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rcad.cli import options
from rcad.cli.options import Reading, Text, argument, command, group, option
from rcad.cli.screen import say, say_json, table
from rcad.errors import InputError, expanded
from rcad.runs.words import plural, size
from rcad.train.progress import show_progress

app = group(
    "Known data sets, and your own.",
    "rcad data list",
    "rcad data fetch cifar100 --data-dir data",
    "rcad data import images/",
)


@command(app, "list")
def list_data(data_dir: Path | None = options.DATA_DIR, as_json: bool = options.JSON) -> None:
    """Every data set known by name, and where its files are.

    Then what else lies in the data folder and can be read, as rcad data import --name puts it there.

    rcad data list
    rcad data list --json
    """
    from rcad.cli.importing import own_sets
    from rcad.data.registry import available

    sets = [*available(data_dir), *own_sets(data_dir)]
    if as_json:
        say_json([data._asdict() for data in sets])
        return
    rows = [[data.name, data.kind, data.where or "-", data.note] for data in sets]
    table(["data", "kind", "found", "what"], rows, spare=["kind"])
    if not data_dir:
        say("\nPass --data-dir or set RCAD_DATA to look for files.")


@command(app, "fetch")
def fetch_data(
    name: str = argument("NAME", "cifar10, cifar100, svhn or tiny-imagenet."),
    data_dir: Path | None = options.DATA_DIR,
    extra: bool = option("--extra", "Also the optional files (SVHN: 1.3 GB).", False),
) -> None:
    """Download a known data set from its official address.

    An interrupted download continues where it stopped. Its checksum is compared with the published one.

    rcad data fetch cifar10 --data-dir data
    rcad data fetch svhn --extra --data-dir data
    """
    from rcad.data.official import fetch

    if data_dir is None:
        raise InputError("expected a folder to put the files in, but got none; pass --data-dir or set RCAD_DATA")
    with show_progress() as progress:
        on_progress = partial(progress.detail, f"fetching {name}", unit="B")
        files = fetch(name, expanded(data_dir), extra=extra, progress=on_progress)
    for file in files:
        say(f"{file}  checksum ok")


@command(app, "import")
def import_data(
    *,
    path: str = argument("PATH", "A file or a folder."),
    name: Text = option("--name NAME", "Copy it to the data folder as NAME."),
    reading: Reading,
    as_json: bool = options.JSON,
) -> None:
    """Check your own data: read it once and report what was found.

    Reads class folders of images, Kaggle's layout, Parquet shards, archives, .npz, .csv, .tsv or .npy, and decodes
    images into the cache. --name copies the data to the data folder, so that --data NAME finds it.

    rcad data import images/
    rcad data import my.csv --target price
    rcad data import images/ --name flowers --data-dir data
    """
    from rcad.cli.importing import check_name, copy_to, describe, show, train_line
    from rcad.data.registry import load

    place = None if name is None else check_name(name, Path(path), reading.data_dir)
    with show_progress(as_json=as_json) as progress:
        on_progress = partial(progress.detail, "reading")
        dataset = load(path, **reading.places, progress=on_progress, **reading.main, **reading.own)
    if place is not None:
        copy_to(expanded(path), place)
    if as_json:
        say_json(describe(dataset))
        return
    show(dataset)
    say(f"\ntrain on it: {train_line(path if place is None else place.name, reading)}")


@command(app, "verify")
def verify_data(
    data_dir: Path | None = options.DATA_DIR,
    cache_dir: Path | None = options.CACHE_DIR,
    as_json: bool = options.JSON,
) -> None:
    """Check every byte of the known archives in the data folder and of the cache of decoded images.

    rcad data verify
    rcad data verify --data-dir data
    """
    from rcad.data.registry import verify

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


@command(app, "clear")
def clear_data(yes: bool = options.YES, cache_dir: Path | None = options.CACHE_DIR) -> None:
    """Empty the cache of decoded images and unpacked archives.

    Without --yes the content is only listed. Cached data is made again from its source when needed. Files that rcad did
    not make are kept.

    rcad data clear
    rcad data clear --yes
    """
    from rcad.data.cache import cache_root, clear, contents

    sizes = contents(cache_dir)
    for path, used in sizes.items():
        if not path.name.startswith(".") and path.is_dir():
            say(f"{size(used):>10}  {path}")
    total = f"{plural(len(sizes), 'item')}, {size(sum(sizes.values()))} in {cache_root(cache_dir)}"
    if not yes:
        say(f"{total}; add --yes to remove")
        return
    clear(cache_dir)
    say(f"removed {total}")
