"""Several runs one after the other, with their progress shown; what is done already is not run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rcad.cli.figures import duration, leading, metric
from rcad.cli.signals import last_signal
from rcad.cli.views import View
from rcad.experiments.config import RunConfig
from rcad.experiments.plain import config_id
from rcad.experiments.record import FINISHED, RunRecord
from rcad.experiments.rows import label
from rcad.experiments.store import Store
from rcad.train.reporting import Tracker

SIGINT = 2
Trackers = Callable[[Path], Sequence[Tracker]]


@dataclass(frozen=True)
class Outcome:
    """What became of a grid.

    Args:
        records: of the runs that were begun, in order.
        already: the ids of those that had been finished before.
        signal: the number of the signal that stopped it.
    """

    records: list[RunRecord]
    already: frozenset[str]
    signal: int | None = None

    @property
    def exit_code(self) -> int:
        """128 and the signal where one stopped it, 1 where a run diverged."""
        if self.signal is not None:
            return 128 + self.signal
        return int(any(record.status == "diverged" for record in self.records))


def open_store(path: Path) -> Store:
    """The folder of runs; the engine makes it when there is something to put there, so bad input leaves no trace."""
    return Store.open(path, create=False) if path.exists() else Store(path)


def sweep(
    configs: Sequence[RunConfig],
    store: Store,
    view: View,
    *,
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    device: str = "auto",
    trackers: Trackers = lambda folder: (),
) -> Outcome:
    """Run every config that has no final record yet; stops at the first interruption."""
    records, already = [], set()
    with view, last_signal() as signalled:
        for number, config in enumerate(configs, 1):
            view.begin(number, len(configs), title(config))
            config = canonical(config)
            if store.status(config) in FINISHED:
                record = store.get(config_id(config))
                already.add(record.id)
            else:
                from rcad.experiments.run import run  # here, since it brings torch

                record = run(
                    config,
                    store,
                    data_dir=data_dir,
                    cache_dir=cache_dir,
                    device=device,
                    reporter=view,
                    trackers=trackers(store.folder(config_id(config))),
                )
            records.append(record)
            view.end(said(record, record.id in already, most=2))
            if not record.is_final:
                return Outcome(records, frozenset(already), signalled() or SIGINT)
    return Outcome(records, frozenset(already))


def canonical(config: RunConfig) -> RunConfig:
    """The config under which the run is kept: without parameters that are the method's defaults."""
    if not any(values for _, values in config.method):
        return config  # nothing to leave out, and no need to wait for torch
    from rcad.experiments.run import canonical_config

    return canonical_config(config)


def seconds(record: RunRecord) -> float | None:
    """How long a run took, all in all."""
    known = [value for value in record.timings.values() if value is not None]
    return sum(known) if known else None


def title(config: RunConfig) -> str:
    """A run in a few words."""
    return f"{label(config.method)} on {config.data.name}, seed {config.seed}"


def said(record: RunRecord, already: bool, *, most: int = 3) -> str:
    """How a run ended, in one line with at most so many metrics."""
    numbers = [f"{name} {metric(name, record.metrics[name])}" for name in leading(record.metrics, most)]
    verb = f"{record.status} already" if already else record.status
    parts = [f"{verb}: {title(record.config)}", *numbers]
    if record.status == "diverged":
        parts.append(record.message)
    elif not already:
        parts.append(duration(seconds(record)))
    else:
        parts.append(f"run {record.id}")
    return "  ".join(part for part in parts if part)
