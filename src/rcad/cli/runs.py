"""`rcad runs`: what was run, in lists, in detail, in files; and what can go."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path

import typer

from rcad.cli import options
from rcad.cli.options import Text, argument, command, group, option
from rcad.cli.screen import say, say_json, warn
from rcad.errors import InputError, finite

app = group("The records of runs.", "rcad runs list", "rcad runs show 3f2a", "rcad runs export table.csv")

LONGEST_WAIT = 36_500.0
"""Days that --older-than counts at most."""
STATUS = option("--status STATUS", "Only done, diverged, interrupted, failed or running ones; repeatable.")


@command(app, "list")
def list_runs(
    status: list[str] | None = STATUS,
    data: Text = option("--data NAME", "Only runs on this data, subsets too."),
    method: Text = option("--method NAME", "Only runs that this method is part of."),
    runs: Path = options.RUNS,
    as_json: bool = options.JSON,
) -> None:
    """Every run in one line.

    rcad runs list
    rcad runs list --status done --data digits --method rcad
    rcad runs list --json
    """
    from rcad.cli.results import filtered, run_object, show_list
    from rcad.runs.store import Store

    store = Store.open(runs, create=False)
    records = filtered(store.records(on_error=lambda error: warn(str(error))), status or (), data, method)
    if as_json:
        say_json([run_object(record, store) for record in records])
    else:
        show_list(records)


@command(app, "show")
def show_run(
    run: str = argument("ID", "A run's id, its first characters, or last."),
    runs: Path = options.RUNS,
    as_json: bool = options.JSON,
) -> None:
    """One run: its config, its numbers, its epochs.

    rcad runs show 3f2a
    rcad runs show 3f2a --json
    """
    from rcad.cli.results import show_record
    from rcad.runs.store import Store

    store = Store.open(runs, create=False)
    record = store.get(run)
    if as_json:
        say_json({**record.to_dict(), "folder": str(store.where(record.id))})
    else:
        show_record(record, store)


@command(app, "export")
def export_runs(
    file: Path = argument("FILE", "Ends in .csv, .parquet or .json."),
    runs: Path = options.RUNS,
    force: bool = options.FORCE,
) -> None:
    """Write a table of all runs: flat rows as .csv or .parquet, whole records as .json.

    rcad runs export table.csv
    rcad runs export table.parquet
    rcad runs export records.json
    """
    from rcad.runs.pack import export
    from rcad.runs.store import Store
    from rcad.runs.words import plural

    _check_new(file, force)
    records = Store.open(runs, create=False).records(lambda error: warn(str(error)))
    export(records, file)
    say(f"wrote {plural(len(records), 'run')} to {file}")


@command(app, "prune")
def prune_runs(
    ids: list[str] | None = argument("ID", "These runs, whatever their status.", None),
    status: list[str] | None = STATUS,
    checkpoints: bool = option("--checkpoints", "Remove checkpoints, keep records.", False),
    older_than: float | None = option(
        "--older-than DAYS", "Only runs not changed for this many days.", check=partial(finite, minimum=0.0)
    ),
    yes: bool = options.YES,
    runs: Path = options.RUNS,
) -> None:
    """Remove runs that did not end well, or the checkpoints of those that did.

    They are only listed unless you add --yes. Runs that a process works on stay.

    rcad runs prune
    rcad runs prune --checkpoints --yes
    rcad runs prune --status interrupted --older-than 30
    """
    from rcad.cli.results import show_pruned
    from rcad.runs.store import Store, prune

    pruned = prune(
        Store.open(runs, create=False),
        ids=ids or None,
        status=status or None,
        older_than=None if older_than is None else timedelta(days=min(older_than, LONGEST_WAIT)),
        checkpoints_only=checkpoints,
        apply=yes,
    )
    show_pruned(pruned, checkpoints=checkpoints, removed=yes)


@command(app, "verify")
def verify_runs(
    ids: list[str] | None = argument("ID", "These runs only.", None),
    repair: bool = options.REPAIR,
    data_dir: Path | None = options.DATA_DIR,
    cache_dir: Path | None = options.CACHE_DIR,
    runs: Path = options.RUNS,
    device: str = options.DEVICE,
    as_json: bool = options.JSON,
) -> None:
    """Check every byte of every run: records, configs, logs, weights, checkpoints, evaluations and packs.

    --repair restores what the other files of a run tell, and trains again where the record or the weights are lost;
    replaced files are kept as NAME.aside. Exit code 2: something is still damaged. rcad data verify does the same for
    data and the cache.

    rcad runs verify
    rcad runs verify 3f2a --repair
    rcad runs verify --runs runs --json
    """
    from rcad.cli.results import show_verified
    from rcad.runs.store import Store
    from rcad.train.place import Place
    from rcad.train.progress import show_progress
    from rcad.train.repair import CURES, verify
    from rcad.train.repair import repair as mend

    store = Store.open(runs, create=False)
    chosen = None if not ids else list(dict.fromkeys(map(store.find, ids)))
    code = 0
    with show_progress(as_json=as_json) as progress:
        if repair:
            damaged = [path.name for path, damages in verify(store, chosen) if any(damage.run for damage in damages)]
            place = Place(store, data_dir=data_dir, cache_dir=cache_dir, device=device)
            if (outcome := mend(place, damaged, progress)) is not None and outcome.signal is not None:
                code = outcome.exit_code
        checked = []
        for number, item in enumerate(verify(store, chosen), 1):
            checked.append(item)
            progress.detail("checking runs", number, 0)
    show_verified(checked, as_json=as_json)
    left = [damage for _, damages in checked for damage in damages]
    if code or not left:
        raise typer.Exit(code)
    more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
    which = f" {left[0].run}" if ids else ""
    mendable = any(damage.cure != "restore" for damage in left)
    cure = f"to repair it: rcad runs verify{which} --repair{store.option}" if mendable else CURES["restore"]
    raise InputError(f"{left[0].words}{more}; {cure}")


@command(app, "pack")
def pack_runs(
    sources: list[Path] = argument("DIR...", "Folders of runs, or other packs."),
    out: Path = option("--out FILE", "Ends in .jsonl.gz.", ...),
    force: bool = options.FORCE,
) -> None:
    """Put the finished runs of a folder, with their evaluations, into one small file that can be committed.

    Records stay whole, except for the epochs: 50 points of training loss and validation NLL are kept. Weights and logs
    are not packed. A pack inside a folder of runs counts as those finished runs; if a run also has a folder, the folder
    is used.

    rcad runs pack runs --out study.jsonl.gz
    rcad runs pack runs study.jsonl.gz --out larger.jsonl.gz
    """
    from rcad.runs.store import Store, pack
    from rcad.runs.words import plural, size

    _check_new(out, force)
    packing = pack([Store.open(source, create=False) for source in sources], out)
    if packing.unfinished:
        warn(f"left out {plural(packing.unfinished, 'run')} that are not finished")
    say(f"packed {plural(packing.runs, 'run')} into {out}, {size(packing.bytes)}")


@command(app, "unpack")
def unpack_runs(
    file: Path = argument("FILE", "What rcad runs pack wrote."),
    out: Path = option("--out DIR", "Folder of runs; created if it does not exist.", Path("runs")),
) -> None:
    """Give the runs of a packed study folders of their own again.

    A run that has a folder with a record there already stays as it is.

    rcad runs unpack study.jsonl.gz --out runs
    """
    from rcad.runs.pack import read_pack
    from rcad.runs.store import Store
    from rcad.runs.words import plural

    runs, store = read_pack(file), Store.open(out)
    new = sum(store.unpack(run) for run in runs.values())
    old = f"; {len(runs) - new} were there already" if new < len(runs) else ""
    say(f"unpacked {plural(new, 'run')} into {out}{old}")


def _check_new(file: Path, force: bool) -> None:
    if file.exists() and not force:
        raise InputError(f"expected a new file, but {file} exists; add --force to replace it")
