"""The runs of a suite: which are done, which are left, how long they will take. A finished run is never made again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

from rcad.errors import InputError, one_of
from rcad.paper.benchmarks import Scale, Views, missing
from rcad.paper.suite import PlannedRun, Suite
from rcad.runs.config import RunConfig
from rcad.runs.plain import config_id
from rcad.runs.record import FINISHED, RunRecord
from rcad.runs.store import Store
from rcad.train.executors import Executor, work
from rcad.train.run import Place

Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class Plan:
    """What a suite needs.

    Args:
        runs: by cell; several cells may share a run.
        columns: those that are run.
        missing: one sentence for each data set that is not there.
        skipped: columns that were not asked for.
        precision: of the products in training.
    """

    suite: Suite
    scale: Scale
    views: Views
    seeds: tuple[int, ...]
    runs: tuple[PlannedRun, ...]
    columns: tuple[str, ...]
    missing: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    precision: Precision = "fp32"

    def configs(self) -> dict[str, RunConfig]:
        """Every run once, by id, in order."""
        return {config_id(one.config): one.config for one in self.runs}


def plan(
    suite: Suite,
    scale: Scale,
    views: Views,
    seeds: Iterable[int],
    *,
    only: Sequence[str] = (),
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    precision: Precision = "fp32",
) -> Plan:
    """The runs for which there are data; at least one column must have some.

    Args:
        only: columns; empty for all.
        precision: of the products in training; "bf16" comes with the memory layout that makes it fast on a GPU.
    """
    names = tuple(column.name for column in suite.columns)
    for name in only:
        one_of("--only", name, names)
    wanted = [column for column in suite.columns if not only or column.name in only]
    reasons = {one: missing(one, scale, data_dir, cache_dir) for one in {column.benchmark for column in wanted}}
    columns = tuple(column.name for column in wanted if reasons[column.benchmark] is None)
    absent = tuple(dict.fromkeys(reason for c in wanted if (reason := reasons[c.benchmark]) is not None))
    if not columns:
        raise InputError(
            f"expected data for {suite.name}, but there are none: {' '.join(absent)} "
            "Pass --data-dir, or try --scale smoke, which needs none"
        )
    numbers = tuple(seeds)
    runs = suite.runs(scale, numbers, views, columns)
    if precision == "bf16":
        runs = tuple(one._replace(config=_in_bf16(one.config)) for one in runs)
    skipped = tuple(name for name in names if only and name not in only)
    return Plan(suite, scale, views, numbers, runs, columns, absent, skipped, precision)


def _in_bf16(config: RunConfig) -> RunConfig:
    return replace(config, train=replace(config.train, precision="bf16", channels_last=True))


class Standing(NamedTuple):
    """How far a grid is.

    Attributes:
        done, total: runs, those finished before included.
        share: of the work that was left at the start.
        left: seconds; None while nobody can know.
        text: what has just happened; empty where a run only went on.
    """

    done: int
    total: int
    share: float
    left: float | None
    text: str


Tell = Callable[[Standing], None]


@dataclass
class Progress:
    """A Watcher that reckons the time that is left from the work done so far."""

    configs: Sequence[RunConfig]
    before: int
    tell: Tell
    shares: dict[int, float] = field(default_factory=dict)
    begun: dict[int, float] = field(default_factory=dict)
    started: float | None = None
    finished: int = 0

    def moved(self, index: int, share: float) -> None:
        self._see(index, share)
        self.tell(self._standing(""))

    def ended(self, index: int, record: RunRecord) -> None:
        self._see(index, 1.0)
        self.finished += 1
        self.tell(self._standing(f"{record.status}: {record.config.data.name}, seed {record.config.seed}"))

    def _see(self, index: int, share: float) -> None:
        # The clock starts with the first sign of life: processes take seconds to start. A run that goes on from a
        # checkpoint begins with a share. Neither says how fast the machine is.
        if self.started is None:
            self.started = time.monotonic()
            self.begun[index] = share
        elif share < 1:
            self.begun.setdefault(index, share)
        self.shares[index] = share

    def _standing(self, text: str) -> Standing:
        works = [work(config) for config in self.configs]
        done = sum(works[index] * part for index, part in self.shares.items())
        here = done - sum(works[index] * part for index, part in self.begun.items())
        elapsed = time.monotonic() - (self.started or 0.0)
        left = elapsed * (sum(works) - done) / here if here > 0 else None
        total = self.before + len(self.configs)
        return Standing(self.before + self.finished, total, done / sum(works), left, text)


def unfinished(configs: dict[str, RunConfig], store: Store) -> list[RunConfig]:
    """The runs that have no final record."""
    return [config for config in configs.values() if store.status(config) not in FINISHED]


def make_runs(planned: Plan, place: Place, executor_of: Callable[[Sequence[RunConfig]], Executor], tell: Tell) -> bool:
    """Make what is left; False where a signal stopped it.

    Args:
        executor_of: the executor for these runs.
    """
    every = planned.configs()
    left = unfinished(every, place.store)
    if not left:
        return True
    return executor_of(left)(left, place, Progress(left, len(every) - len(left), tell))
