"""A suite: one table or figure as a value, an order for it, and the runs that the order takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from rcad.errors import InputError, one_of
from rcad.paper.benchmarks import PRETRAINED, Benchmark, Precision, Scale, Views, is_own, missing
from rcad.paper.claims import CONTROLS, PlannedClaim, Side, Summary
from rcad.paper.record import Study
from rcad.paper.targets import TARGETS, Printed, Table
from rcad.runs.config import RunConfig
from rcad.runs.pack import packs_in
from rcad.runs.plain import config_id
from rcad.runs.record import FINISHED
from rcad.runs.store import Store
from rcad.train.place import Executor

RUNS = "runs"
PACKS = "images"
"""The folder of packed runs, which every suite takes as done."""


@dataclass(frozen=True)
class Column:
    """One column: the data its runs are trained on, and which of their numbers it shows.

    evaluation: the suite of `rcad.evaluate.saved_run` that gives that number; None where every run has it.
    rows: those it has; None for all.
    """

    name: str
    benchmark: Benchmark
    metric: str = "accuracy"
    evaluation: str | None = None
    rows: tuple[str, ...] | None = None


class PlannedRun(NamedTuple):
    """A run of a cell; several cells may share one."""

    row: str
    column: str
    config: RunConfig


class Curve(NamedTuple):
    """A series of a panel: one row over several columns, which stand at x; less the row `over`, seed by seed."""

    name: str
    panel: str
    row: str
    columns: tuple[str, ...]
    x: tuple[float | str, ...]
    over: str | None = None


@dataclass(frozen=True)
class Suite:
    """A table or figure of the paper: methods in order, the controls last; `curves` are how a figure shows them."""

    name: str
    title: str
    rows: tuple[str, ...]
    columns: Sequence[Column]
    published: Table
    claims: tuple[PlannedClaim, ...]
    controls: tuple[str, ...] = CONTROLS
    curves: Sequence[Curve] = ()
    summaries: Sequence[Summary] = ()

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def rows_of(self, column: Column) -> tuple[str, ...]:
        return column.rows or self.rows

    def printed(self, row: str, column: str) -> Printed | None:
        return self.published.get(column, {}).get(row)

    def with_rows(self, rows: Iterable[str]) -> Suite:
        """The suite with these rows too, in front of the controls. No claim is about them."""
        new = tuple(dict.fromkeys(row for row in rows if row not in self.rows))
        methods = tuple(row for row in self.rows if row not in self.controls)
        columns = tuple(replace(c, rows=None if c.rows is None else (*c.rows, *new)) for c in self.columns)
        return replace(self, rows=(*methods, *new, *self.controls), columns=columns)

    def runs(
        self, scale: Scale, seeds: Sequence[int], views: Views, columns: Iterable[str] | None = None, **how: Any
    ) -> tuple[PlannedRun, ...]:
        """Every run of these columns, by seed first: a grid that is stopped early has whole seeds to show.

        how: `weights` and `precision` of `Benchmark.config`; a trial has no weights of its own.
        """
        runs: list[PlannedRun] = []
        for seed, column in product(seeds, self.columns):
            for row in self.rows_of(column) if columns is None or column.name in columns else ():
                if row != PRETRAINED or how.get("weights") is not None or scale != "smoke":
                    config = column.benchmark.config(scale, row, seed, views=views, **how)
                    runs.append(PlannedRun(row, column.name, config))
        return tuple(runs)


@dataclass(frozen=True)
class Order:
    """A suite to be made, and where.

    Args:
        views: one view or two in every method's clean loss, or tuned.
        only: columns, or data sets, for all columns of one; empty for all.
        rows: those whose runs are made, methods of the user's own among them; empty for all of the paper's. Of the
            others the table shows what is there.
        runs: the folder of runs; None for one beside the suite's record. Suites that share runs may share a folder.
        workers: processes on the CPU, or runs at once on a GPU; None for what pays.
        joined: how many runs that differ in their seed alone are trained as one network on a GPU.
        finished: nothing is trained; the table is made of the runs that are there.
        model, candidates: of the tuned protocol: another network, and how many each method has.
        weights: a file that T5's runs start from, instead of those that timm fetches.
    """

    name: str
    scale: Scale
    views: Views
    seeds: Sequence[int]
    out: Path
    only: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    runs: Path | None = None
    data_dir: Path | None = None
    cache_dir: Path | None = None
    device: str = "auto"
    devices: tuple[str, ...] = ()
    executor: Executor | None = None
    workers: int | None = None
    precision: Precision = "fp32"
    joined: int = 1
    minutes: float | None = None
    finished: bool = False
    model: str | None = None
    candidates: int | None = None
    weights: str | None = None
    track: tuple[str, ...] = ()

    @property
    def _protocol(self) -> str | None:
        return self.views.replace(" ", "-") if self.views != "one view" else None

    @property
    def record(self) -> Path:
        """The suite's record; each protocol has one."""
        target = TARGETS[self.name]
        words = target.stem, self._protocol, self.model, self.candidates
        return self.out / target.folder / f"{'-'.join(str(word) for word in words if word is not None)}.json"

    @property
    def store(self) -> Path:
        return self.record.parent / RUNS if self.runs is None else self.runs

    @property
    def packs(self) -> tuple[Path, ...]:
        """Runs made before, here or elsewhere: `rcad runs pack` wrote them."""
        return tuple(packs_in(self.out / PACKS))

    def command(self, study: Study) -> str:
        """What one types to make it again."""
        options = {
            "protocol": self._protocol,
            "model": self.model,
            "candidates": self.candidates,
            "weights": self.weights,
            "precision": self.precision if self.precision != "fp32" else None,
        }
        words = [f"rcad paper run {self.name} --scale {self.scale} --seeds {len(self.seeds)}"]
        words += [f"--{name} {value}" for name, value in options.items() if value is not None]
        run = study.columns_run
        words += [f'--only "{column}"' for column in run] if len(run) < len(study.columns) else []
        words += [f'--rows "{row}"' for row in self.rows]
        return " ".join([*words, "--finished"] if self.finished else words)


@dataclass(frozen=True)
class Plan:
    """What an order takes: the runs, each known by its config, and the columns that are run.

    missing: one sentence for each data set that is not there. skipped: columns that were not asked for.
    """

    order: Order
    suite: Suite
    runs: tuple[PlannedRun, ...]
    columns: tuple[str, ...]
    missing: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def requested(self) -> Plan:
        """The runs of the rows that were asked for."""
        rows = self.order.rows
        return replace(self, runs=tuple(run for run in self.runs if not rows or run.row in rows))

    def cells(self) -> dict[Side, list[PlannedRun]]:
        cells: dict[Side, list[PlannedRun]] = {}
        for run in self.runs:
            cells.setdefault((run.row, run.column), []).append(run)
        return cells

    def configs(self) -> dict[str, RunConfig]:
        """Every run once, by id, in order."""
        return {config_id(run.config): run.config for run in self.runs}

    def done(self, store: Store) -> int:
        """How many of them are finished."""
        return sum(store.status(config) in FINISHED for config in self.configs().values())

    def complete(self, store: Store) -> bool:
        return self.done(store) == len(self.configs())


def plan(order: Order, suite: Suite) -> Plan:
    """The runs for which there are data; at least one column must have some. A tuned one has none before its search."""
    names = [column.name for column in suite.columns]
    sets = [column.benchmark.name for column in suite.columns]
    for name in order.only:
        one_of("--only", name, dict.fromkeys((*names, *sets)))
    own = [row for row in order.rows if is_own(row)]
    if own and order.views == "tuned":
        raise InputError(
            f"expected rows of the paper's with --protocol tuned, but got {own[0]!r}; rcad compare tunes a method of "
            "one's own"
        )
    suite = suite.with_rows(own)
    for name in order.rows:
        one_of("--rows", name, suite.rows)
    chosen = [
        column for column in suite.columns if not order.only or {column.name, column.benchmark.name} & {*order.only}
    ]
    benchmarks = dict.fromkeys(column.benchmark for column in chosen)
    reasons = {data: missing(data, order.scale, order.data_dir, order.cache_dir) for data in benchmarks}
    columns = tuple(column.name for column in chosen if reasons[column.benchmark] is None)
    absent = tuple(dict.fromkeys(reason for reason in reasons.values() if reason is not None))
    if not columns:
        # Several data sets of one archive lack the same file; their sentences together would not fit a line.
        files = ", ".join(dict.fromkeys(column.benchmark.data for column in chosen))
        why = absent[0].removesuffix(".") if len(absent) == 1 else f"{files} not found in the data folder"
        raise InputError(
            f"expected data for {suite.name}, but there are none: {why}; pass --data-dir (rcad data fetch downloads "
            "some), or try --scale smoke, which needs none"
        )
    skipped = tuple(column.name for column in suite.columns if column not in chosen)
    how = {"weights": order.weights, "precision": order.precision}
    runs = () if order.views == "tuned" else suite.runs(order.scale, order.seeds, order.views, columns, **how)
    return Plan(order, suite, runs, columns, absent, skipped)
