"""What a grid of runs gave: a table with mean and spread over seeds, or JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rcad.cli.screen import say, say_json, table, warn
from rcad.loss.method_rows import rows_to_plain
from rcad.runs.config import RunConfig
from rcad.runs.plain import config_id, to_plain, to_toml
from rcad.runs.record import RunRecord
from rcad.runs.store import Store
from rcad.runs.words import duration, leading, mean_and_spread, metric, said, seconds
from rcad.train.scheduler import Outcome, canonical

_SHOWN = 3


def show(outcome: Outcome, store: Store, *, quiet: bool, as_json: bool) -> None:
    """The end of a grid as the user wants it; why it stopped early goes to stderr."""
    if as_json:
        say_json([run_object(record, store) for record in outcome.records])
    elif quiet:
        say(final_line(outcome))
    else:
        say()
        show_table(outcome.records, store)
    if words := outcome.words():
        warn(words)


def show_table(records: Sequence[RunRecord], store: Store) -> None:
    """A row per run, one that sums up the finished ones, and where they are."""
    names = leading((name for record in records for name in record.metrics), _SHOWN)
    done = [record for record in records if record.status == "done"]
    status = ["status"] if len(done) < len(records) else []  # a column of "done" says nothing
    last = None
    if len(done) > 1:
        means = [mean_and_spread(name, [record.metrics.get(name) for record in done]) for name in names]
        last = [
            "mean",
            *means,
            *("" for _ in status),
            duration(statistics.fmean(seconds(record) or 0.0 for record in done)),
            "",
        ]
    rows = [_row(record, names, bool(status)) for record in records]
    table(["seed", *names, *status, "time", "run"], rows, last=last)
    spread = "" if last is None else "mean ± standard deviation over seeds; "
    say(f"\nin {store.where(records[0].id)}" if len(records) == 1 else f"\n{spread}each in {store.path / '<run>'}")


def final_line(outcome: Outcome) -> str:
    """The grid in one line."""
    if len(outcome.records) == 1:
        record = outcome.records[0]
        already = record.id in outcome.already
        return said(record, already) + ("" if already else f"  run {record.id}")
    done = [record for record in outcome.records if record.status == "done"]
    names = leading((name for record in done for name in record.metrics), 3)
    means = [f"{name} {mean_and_spread(name, [record.metrics.get(name) for record in done])}" for name in names]
    spread = ", mean ± standard deviation" if len(done) > 1 else ""
    return "  ".join([f"{len(done)} of {len(outcome.records)} runs done{spread}", *means])


def print_configs(configs: Sequence[RunConfig], as_json: bool) -> None:
    """What would be run: a TOML file that `--config` reads, the id in a comment. The method is checked too."""
    from rcad.loss.methods import Method
    from rcad.train.task import AUTO

    for config in configs[:1]:  # what is measured on the data has no value yet
        rows = [{key: value for key, value in row.items() if value != AUTO} for row in rows_to_plain(config.method)]
        Method.from_dict({"methods": rows})
    configs = [canonical(config) for config in configs]
    if as_json:
        say_json([{"id": config_id(config), "config": to_plain(config)} for config in configs])
        return
    say("\n\n".join(f"# run {config_id(config)}\n{to_toml(config).rstrip()}" for config in configs))


def run_object(record: RunRecord, store: Store) -> dict[str, Any]:
    """A run as a list of runs gives it to a program."""
    extra: Mapping[str, Any] = {
        "message": record.message,
        "started": record.started,
        "finished": record.finished,
        "timings": dict(record.timings),
        "folder": str(store.where(record.id)),
    }
    return {**record.summary(), **extra}


def _row(record: RunRecord, names: Sequence[str], with_status: bool) -> list[str]:
    numbers = [metric(name, record.metrics.get(name)) for name in names]
    status = [record.status] if with_status else []
    return [str(record.config.seed), *numbers, *status, duration(seconds(record)), record.id]
