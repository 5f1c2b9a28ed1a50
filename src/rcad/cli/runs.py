"""`rcad runs`: what was run, in lists, in detail, in files; and what can go."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import typer

from rcad.cli import options
from rcad.cli.options import Text, argument, command, group, option
from rcad.cli.screen import fields, say, say_json, table, warn
from rcad.errors import InputError, finite, one_of, visible
from rcad.loss.method_rows import label
from rcad.runs.config import RunConfig
from rcad.runs.pack import export, read_pack
from rcad.runs.plain import to_toml
from rcad.runs.recipes import RECIPES
from rcad.runs.record import STATUSES, RunRecord
from rcad.runs.store import Store, pack, prune
from rcad.runs.words import duration, leading, metric, number, plural, seconds, size, sparkline
from rcad.train.place import Place
from rcad.train.progress import show_progress

app = group("The records of runs.", "rcad runs list", "rcad runs show 3f2a", "rcad runs export table.csv")

LONGEST_WAIT = 36_500.0
"""Days that --older-than counts at most."""
RMSE = "test_rmse"
METRICS_LISTED, EPOCHS_SHOWN, COLUMNS_SHOWN = 2, 8, 6
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
    store = Store.open(runs, create=False)
    for word in status or ():
        one_of("--status", word, (*STATUSES, "failed"))
    records = [
        record
        for record in _readable(store)
        if (not status or record.status in status or record.state in status)
        and (data is None or data in (record.config.data.name, record.config.data.name.partition("[")[0]))
        and (method is None or method in (label(record.config.method), *(name for name, _ in record.config.method)))
    ]
    if as_json:
        say_json([run_object(record, store) for record in records])
        return
    if not records:
        say("no runs that fit; train one: rcad train --data digits --method rcad")
        return
    names = leading((name for record in records for name in record.metrics), METRICS_LISTED)
    rows = []
    for record in records:
        summary = {**record.summary(), "status": record.state}
        about = [str(summary[key]) for key in ("data", "method", "seed", "status", "epochs")]
        shown = [RMSE if name in names[:1] and RMSE in record.metrics else name for name in names]
        rows.append([record.id, *about, *metric_cells(record, shown), _changed(record.config), _when(record.started)])
    if any(RMSE in record.metrics for record in records) and names[0] != RMSE:
        names[0] += " or rmse"
    headers = ["run", "data", "method", "seed", "status", "epochs", *names, "settings", "started"]
    held = [column for column, header in enumerate(headers) if header != "settings" or any(row[column] for row in rows)]
    headers, *rows = ([row[column] for column in held] for row in (headers, *rows))
    table(headers, rows, spare=["started", "epochs", *names[1:], "settings"])


def _changed(config: RunConfig) -> str:
    """What differs from the usual recipe of the data; from another one, which is named, where that is less."""
    from rcad.runs.configure import default_recipe

    usual = default_recipe(config.data.name)
    found = []
    for name in (usual, *RECIPES):
        words = [] if name == usual else [name]
        for part in ("model", "optim", "train"):
            own, other = (vars(getattr(one, part)) for one in (config, RECIPES[name]))
            words += [f"{key}={own[key]}" for key in own if own[key] != other[key] and key != "epochs"]
        found.append(words)
    nearest = min(found, key=len)
    return " ".join(nearest)


def _readable(store: Store) -> list[RunRecord]:
    """The records of a folder; a damaged one is told and left out."""
    return store.records(on_error=lambda error: warn(str(error)))


def run_object(record: RunRecord, store: Store) -> dict[str, Any]:
    """A run in the JSON of a list of runs."""
    about = {name: getattr(record, name) for name in ("message", "started", "finished")}
    return {**record.summary(), **about, "timings": dict(record.timings), "folder": str(store.where(record.id))}


def metric_cells(record: RunRecord, names: Sequence[str]) -> list[str]:
    """These metrics of a run, in a table."""
    return [metric(name, record.metrics.get(name)) for name in names]


def _when(moment: str) -> str:
    """A time in the local zone, to the minute."""
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M")


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
    store = Store.open(runs, create=False)
    record = store.get(run)
    if as_json:
        say_json({**record.to_dict(), "folder": str(store.where(record.id))})
        return
    shown = (("network", "model"), ("trained", "method"))
    fields(
        [
            ("run", record.id),
            ("status", record.state + (f": {record.message}" if record.message else "")),
            ("started", _when(record.started)),
            ("time", duration(seconds(record))),
            *((name, record.resolved[key]) for name, key in shown if key in record.resolved),
            ("device", record.device or "-"),
            ("memory", "-" if record.peak_memory_bytes is None else size(record.peak_memory_bytes)),
            ("versions", ", ".join(f"{name} {version}" for name, version in record.versions.items()) or "-"),
            ("commit", record.commit or "-"),
            ("folder", str(store.where(record.id))),
        ]
    )
    say("\n" + to_toml(record.config).rstrip())
    if record.splits:
        say("\nsplits")
        table(
            ["split", "examples", "hash of indices"],
            [[k, str(s.size), s.sha256[:16]] for k, s in record.splits.items()],
        )
    if record.metrics:
        say("\nmetrics")
        fields([(name, metric(name, value)) for name, value in record.metrics.items()])
    if record.epochs:
        part = f", {EPOCHS_SHOWN} of them" if len(record.epochs) > EPOCHS_SHOWN else ""
        say(f"\n{plural(record.last_epoch, 'epoch')}{part}")
        _show_epochs(record)


def _show_epochs(record: RunRecord) -> None:
    """A table of a few epochs, and a sparkline of each column."""
    columns = dict.fromkeys(name for row in record.epochs for name in row if name not in ("epoch", "seconds", "lr"))
    names = sorted(columns, key=lambda name: name != "loss")[:COLUMNS_SHOWN]
    count = len(record.epochs)
    places = sorted({round(i * (count - 1) / (EPOCHS_SHOWN - 1)) for i in range(EPOCHS_SHOWN)})
    rows = []
    for place, row in ((place, record.epochs[place]) for place in places):
        cells = [number(v) if isinstance(v := row.get(name), int) else metric(name, v) for name in names]
        rows.append([str(int(row.get("epoch") or place + 1)), *cells])
    table(["epoch", *names], rows)
    if count > 1:
        say()
        fields([(name, sparkline([row.get(name) for row in record.epochs])) for name in names])


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
    _check_new(file, force)
    records = _readable(Store.open(runs, create=False))
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
    pruned = prune(
        Store.open(runs, create=False),
        ids=ids or None,
        status=status or None,
        older_than=None if older_than is None else timedelta(days=min(older_than, LONGEST_WAIT)),
        checkpoints_only=checkpoints,
        apply=yes,
    )
    if not pruned:
        say("nothing to remove")
        return
    table(["run", "status", "size"], [[run.id, run.status, size(run.bytes)] for run in pruned])
    which = ("the checkpoints of " if checkpoints else "") + plural(len(pruned), "run")
    total = f"{which}, {size(sum(run.bytes for run in pruned))}"
    say(f"\nremoved {total}" if yes else f"\nwould remove {total}; add --yes to do it")


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
    left = [damage for _, damages in checked for damage in damages]
    if as_json:
        sound = [{"path": str(path), "problem": None, "cure": None} for path, damages in checked if not damages]
        say_json([*sound, *({"path": str(d.path), "problem": d.words, "cure": CURES[d.cure]} for d in left)])
    else:
        for path, damages in checked:
            say(f"{'bad' if damages else 'ok '}  {visible(str(path))}")
            for damage in damages:
                say(f"     {visible(damage.words)}: {CURES[damage.cure]}")
        say(f"{plural(len(checked), 'item')} checked, {sum(bool(damages) for _, damages in checked)} damaged")
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
    runs, store = read_pack(file), Store.open(out)
    new = sum(store.unpack(run) for run in runs.values())
    old = f"; {len(runs) - new} were there already" if new < len(runs) else ""
    say(f"unpacked {plural(new, 'run')} into {out}{old}")


def _check_new(file: Path, force: bool) -> None:
    if file.exists() and not force:
        raise InputError(f"expected a new file, but {file} exists; add --force to replace it")
