"""Runs on the screen: what a grid gave, the list of all, one record, what was pruned."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rcad.cli.screen import fields, say, say_json, table, warn
from rcad.errors import command, one_of, visible
from rcad.loss.method_rows import as_recorded, label, rows_to_plain
from rcad.runs.config import RunConfig
from rcad.runs.plain import config_id, to_plain, to_toml
from rcad.runs.record import STATUSES, RunRecord
from rcad.runs.store import WEIGHTS, Pruned, Store
from rcad.runs.words import duration, leading, mean_and_spread, metric, number, plural, said, seconds, size, sparkline
from rcad.train.scheduler import Outcome, canonical_config

_METRICS, _METRICS_LISTED = 3, 2
_EPOCHS_SHOWN, _COLUMNS_SHOWN = 8, 6
if TYPE_CHECKING:
    from rcad.train.repair import Damage


def show(outcome: Outcome, store: Store, *, quiet: bool, as_json: bool) -> None:
    """Print the results of a grid; why it stopped early goes to stderr."""
    if as_json:
        say_json([run_object(record, store) for record in outcome.records])
    elif quiet:
        say(final_line(outcome))
    elif outcome.records:
        say()
        show_table(outcome.records, store)
    if words := outcome.words():
        warn(words)


def show_table(records: Sequence[RunRecord], store: Store) -> None:
    """A row per run, a row of means over the finished ones, and the folder."""
    names = leading((name for record in records for name in record.metrics), _METRICS)
    done = [record for record in records if record.status == "done"]
    status = ["status"] if len(done) < len(records) else []  # a column of "done" says nothing
    last = None
    if len(done) > 1:
        took = duration(statistics.fmean(seconds(record) or 0.0 for record in done))
        last = ["mean", *_means(done, names), *("" for _ in status), took, ""]
    rows = []
    for record in records:
        ending = [*([record.status] if status else []), duration(seconds(record)), record.id]
        rows.append([str(record.config.seed), *_metrics(record, names), *ending])
    table(["seed", *names, *status, "time", "run"], rows, last=last)
    spread = "" if last is None else "mean ± standard deviation over seeds; "
    several = len(records) > 1
    say(f"\n{spread}each in {store.path / '<run>'}" if several else f"\nin {store.where(records[0].id)}")
    saved = [folder for record in done if ((folder := store.where(record.id)) / WEIGHTS).exists()]
    if saved:
        which = " with one of them" if several else ""
        say(f"\nNext. Predict new examples{which}:\n  {command('rcad', 'predict', str(saved[0]))} --data NEW")


def final_line(outcome: Outcome) -> str:
    """The grid in one line."""
    if len(outcome.records) == 1:
        record = outcome.records[0]
        already = record.id in outcome.already
        return said(record, already) + ("" if already else f"  run {record.id}")
    done = [record for record in outcome.records if record.status == "done"]
    names = leading((name for record in done for name in record.metrics), _METRICS)
    means = [f"{name} {mean}" for name, mean in zip(names, _means(done, names), strict=True)]
    spread = ", mean ± standard deviation" if len(done) > 1 else ""
    return "  ".join([f"{len(done)} of {len(outcome.records)} runs done{spread}", *means])


def _means(records: Sequence[RunRecord], names: Sequence[str]) -> list[str]:
    return [mean_and_spread(name, [record.metrics.get(name) for record in records]) for name in names]


def _metrics(record: RunRecord, names: Sequence[str]) -> list[str]:
    return [metric(name, record.metrics.get(name)) for name in names]


def print_configs(configs: Sequence[RunConfig], as_json: bool, plan: str | None = None) -> None:
    """Print the configs as TOML that `--config` reads, with id and plan in comments; raises if the method is wrong."""
    from rcad.loss.methods import Method
    from rcad.train.task import AUTO

    for config in configs[:1]:  # what is measured on the data has no value yet
        rows = [{key: value for key, value in row.items() if value != AUTO} for row in rows_to_plain(config.method)]
        Method.from_dict({"methods": rows})
    configs = [canonical_config(config) for config in configs]
    if as_json:
        say_json([{"id": config_id(config), "config": to_plain(config)} for config in configs])
        return
    about = f"# {plan}\n" if plan else ""
    say("\n\n".join(f"# run {config_id(config)}\n{about}{_toml(config)}" for config in configs))


def _toml(config: RunConfig) -> str:
    """The config as TOML; parameters left out of a method's row because they had a former default are comments."""
    head, *blocks = to_toml(config).rstrip().split("\n[[method]]\n")
    for place, (row, full) in enumerate(zip(config.method, as_recorded(config.method), strict=True)):
        missing = [f"\n# {key} = {value!r}" for key, value in full[1] if key not in dict(row[1])]
        blocks[place] = blocks[place].rstrip("\n") + "".join(missing) + "\n" * (place + 1 < len(blocks))
    return "\n[[method]]\n".join([head, *blocks])


def run_object(record: RunRecord, store: Store) -> dict[str, Any]:
    """A run in the JSON of a list of runs."""
    about = {name: getattr(record, name) for name in ("message", "started", "finished")}
    return {**record.summary(), **about, "timings": dict(record.timings), "folder": str(store.where(record.id))}


def filtered(
    records: Iterable[RunRecord], status: Sequence[str], data: str | None, method: str | None
) -> list[RunRecord]:
    """The records that fit every filter that was given."""
    for word in status:
        one_of("--status", word, (*STATUSES, "failed"))
    return [
        record
        for record in records
        if (not status or record.status in status or record.state in status)
        and (data is None or data in (record.config.data.name, record.config.data.name.partition("[")[0]))
        and (method is None or method in (label(record.config.method), *(name for name, _ in record.config.method)))
    ]


def show_list(records: Sequence[RunRecord]) -> None:
    """A line per run."""
    if not records:
        say("no runs that fit; train one: rcad train --data digits --method rcad")
        return
    names = leading((name for record in records for name in record.metrics), _METRICS_LISTED)
    rows = []
    for record in records:
        summary = {**record.summary(), "status": record.state}
        about = [str(summary[key]) for key in ("data", "method", "seed", "status", "epochs")]
        rows.append([record.id, *about, *_metrics(record, names), _when(record.started)])
    headers = ["run", "data", "method", "seed", "status", "epochs", *names, "started"]
    table(headers, rows, spare=["started", "epochs", *names[1:]])


def show_record(record: RunRecord, store: Store) -> None:
    """Print a record: what fits a screen."""
    shown = (("network", "model"), ("trained", "method"))
    about = [
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
    fields(about)
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
        part = f", {_EPOCHS_SHOWN} of them" if len(record.epochs) > _EPOCHS_SHOWN else ""
        say(f"\n{plural(record.last_epoch, 'epoch')}{part}")
        _show_epochs(record)


def show_pruned(pruned: Sequence[Pruned], *, checkpoints: bool, removed: bool) -> None:
    """Print the runs that were removed or would be."""
    if not pruned:
        say("nothing to remove")
        return
    table(["run", "status", "size"], [[run.id, run.status, size(run.bytes)] for run in pruned])
    runs = ("the checkpoints of " if checkpoints else "") + plural(len(pruned), "run")
    total = f"{runs}, {size(sum(run.bytes for run in pruned))}"
    say(f"\nremoved {total}" if removed else f"\nwould remove {total}; add --yes to do it")


def show_verified(checked: Sequence[tuple[Path, Sequence[Damage]]], *, as_json: bool) -> None:
    """Print what was checked, and how to repair what is damaged."""
    from rcad.train.repair import CURES

    if as_json:
        sound = [{"path": str(path), "problem": None, "cure": None} for path, damages in checked if not damages]
        damaged = [damage for _, damages in checked for damage in damages]
        say_json([*sound, *({"path": str(d.path), "problem": d.words, "cure": CURES[d.cure]} for d in damaged)])
        return
    for path, damages in checked:
        say(f"{'bad' if damages else 'ok '}  {visible(str(path))}")
        for damage in damages:
            say(f"     {visible(damage.words)}: {CURES[damage.cure]}")
    say(f"{plural(len(checked), 'item')} checked, {sum(bool(damages) for _, damages in checked)} damaged")


def _show_epochs(record: RunRecord) -> None:
    """A table of a few epochs, and a sparkline of each column."""
    columns = dict.fromkeys(name for row in record.epochs for name in row if name not in ("epoch", "seconds", "lr"))
    names = sorted(columns, key=lambda name: name != "loss")[:_COLUMNS_SHOWN]
    count = len(record.epochs)
    places = sorted({round(i * (count - 1) / (_EPOCHS_SHOWN - 1)) for i in range(_EPOCHS_SHOWN)})
    rows = []
    for place, row in ((place, record.epochs[place]) for place in places):
        cells = [number(v) if isinstance(v := row.get(name), int) else metric(name, v) for name in names]
        rows.append([str(int(row.get("epoch") or place + 1)), *cells])
    table(["epoch", *names], rows)
    if count > 1:
        say()
        fields([(name, sparkline([row.get(name) for row in record.epochs])) for name in names])


def _when(moment: str) -> str:
    """A time in the local zone, to the minute."""
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M")
