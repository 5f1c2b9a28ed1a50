"""A suite: one table or figure as a value. Its rows, columns, published numbers, claims, and the runs it takes.

A run is known by its config: one that is finished is never made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rcad.errors import InputError, one_of
from rcad.paper.benchmarks import (
    PRETRAINED,
    UNAUGMENTED,
    Benchmark,
    Scale,
    Setting,
    Views,
    is_own,
    method_of,
    missing,
)
from rcad.paper.claims import CONTROLS, PlannedClaim, plan_claims
from rcad.paper.published import Printed, Table
from rcad.paper.summaries import Summary
from rcad.runs.config import RunConfig
from rcad.runs.plain import config_id

Claims = tuple[PlannedClaim, ...]
Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class Column:
    """One column.

    Args:
        benchmark: what its runs are trained on.
        metric: which of a run's numbers it shows.
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


@dataclass(frozen=True)
class Suite:
    """A table or figure of the paper.

    Args:
        rows: methods in order, the controls last.
        published: by column, then row.
        notes: sentences for the reader.
        summaries: sentences about the whole of it.
        curves: how a figure shows the numbers.
    """

    name: str
    title: str
    about: str
    rows: tuple[str, ...]
    columns: tuple[Column, ...]
    published: Table
    claims: Claims
    controls: tuple[str, ...] = CONTROLS
    notes: tuple[str, ...] = ()
    curves: tuple[Curve, ...] = ()
    summaries: tuple[Summary, ...] = ()

    def column(self, name: str) -> Column:
        return next(one for one in self.columns if one.name == name)

    def rows_of(self, column: Column) -> tuple[str, ...]:
        return column.rows or self.rows

    def printed(self, row: str, column: str) -> Printed | None:
        return self.published.get(column, {}).get(row)

    def runs(
        self,
        scale: Scale,
        seeds: Sequence[int],
        views: Views,
        columns: Iterable[str] | None = None,
        weights: str | None = None,
    ) -> tuple[PlannedRun, ...]:
        """Every run, by seed first: a grid that is stopped early has whole seeds to show.

        Args:
            columns: only these.
            weights: a file to start from, instead of the protocol's; a trial has none of its own.
        """
        from rcad.train.scheduler import canonical_config

        wanted = [one for one in self.columns if columns is None or one.name in columns]
        found: list[PlannedRun] = []
        for seed, column in product(seeds, wanted):
            for row in self.rows_of(column):
                if row == PRETRAINED and weights is None and scale == "smoke":
                    continue
                rows = method_of(row, Setting(column.benchmark, scale, views))
                special = {"augmented": row != UNAUGMENTED, "trained": row != PRETRAINED}
                config = column.benchmark.config(scale, rows, seed, weights=weights, **special)
                found.append(PlannedRun(row, column.name, canonical_config(config)))
        return tuple(found)


class Curve(NamedTuple):
    """A series of a figure: one row over several columns.

    Attributes:
        x: where the columns stand.
        over: a row whose numbers are subtracted, seed by seed; None for the numbers themselves.
        panel: the part of the figure.
    """

    name: str
    panel: str
    row: str
    columns: tuple[str, ...]
    x: tuple[float | str, ...]
    over: str | None = None


def claims(columns: Iterable[Column], published: Table, pairs: Iterable[tuple[str, str]], **more: Any) -> Claims:
    """The claims of columns about pairs of rows; see `plan_claims`."""
    printed = {column: {row: one.mean for row, one in rows.items()} for column, rows in published.items()}
    return plan_claims(printed, [column.name for column in columns], pairs, **more)


def columns_of(benchmarks: Iterable[Benchmark]) -> tuple[Column, ...]:
    """A column for each data set, under its own name."""
    return tuple(Column(one.name, one) for one in benchmarks)


@dataclass(frozen=True)
class Plan:
    """What a suite needs.

    Args:
        runs: by cell; several cells may share a run.
        columns: those that are run.
        missing: one sentence for each data set that is not there.
        skipped: columns that were not asked for.
        precision: of the products in training.
        rows: those whose runs are made; empty for all. Of the others the table shows what is there.
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
    rows: tuple[str, ...] = ()

    def asked(self) -> Plan:
        """What is to be made of it: the runs of the rows that were asked for."""
        return replace(self, runs=tuple(one for one in self.runs if not self.rows or one.row in self.rows))

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
    rows: Sequence[str] = (),
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    precision: Precision = "fp32",
    weights: str | None = None,
) -> Plan:
    """The runs for which there are data; at least one column must have some.

    Args:
        only: columns, or data sets, for all columns of one; empty for all.
        rows: those whose runs are made, methods of the user's own among them; empty for all of the paper's.
        precision: of the products in training; "bf16" comes with the memory layout that makes it fast on a GPU.
        weights: a file to start from, see `Suite.runs`.
    """
    names = tuple(column.name for column in suite.columns)
    sets = tuple(dict.fromkeys(column.benchmark.name for column in suite.columns))
    for name in only:
        one_of("--only", name, tuple(dict.fromkeys((*names, *sets))))
    suite = with_own(suite, [name for name in rows if is_own(name)], views)
    for name in rows:
        one_of("--rows", name, suite.rows)
    wanted = [column for column in suite.columns if not only or {column.name, column.benchmark.name} & set(only)]
    reasons = {one: missing(one, scale, data_dir, cache_dir) for one in {column.benchmark for column in wanted}}
    columns = tuple(column.name for column in wanted if reasons[column.benchmark] is None)
    absent = tuple(dict.fromkeys(reason for c in wanted if (reason := reasons[c.benchmark]) is not None))
    if not columns:
        # Several data sets of one archive lack the same file; their sentences together would not fit a line.
        files = ", ".join(dict.fromkeys(column.benchmark.data for column in wanted))
        why = absent[0].removesuffix(".") if len(absent) == 1 else f"{files} not found in the data folder"
        raise InputError(
            f"expected data for {suite.name}, but there are none: {why}; pass --data-dir (rcad data fetch downloads "
            "some), or try --scale smoke, which needs none"
        )
    numbers = tuple(seeds)
    runs = () if views == "tuned" else suite.runs(scale, numbers, views, columns, weights)
    if precision == "bf16":
        runs = tuple(one._replace(config=in_bf16(one.config)) for one in runs)
    skipped = tuple(column.name for column in suite.columns if column not in wanted)
    return Plan(suite, scale, views, numbers, runs, columns, absent, skipped, precision, tuple(rows))


def with_own(suite: Suite, own: Sequence[str], views: Views) -> Suite:
    """The suite with rows for methods of the user's own, in front of the controls. No claim is about them."""
    if not own:
        return suite
    if views == "tuned":
        raise InputError(
            f"expected rows of the paper's with --protocol tuned, but got {own[0]!r}; rcad compare tunes a method of "
            "one's own"
        )
    kept = tuple(row for row in suite.rows if row not in suite.controls)
    columns = tuple(
        replace(column, rows=None if column.rows is None else (*column.rows, *own)) for column in suite.columns
    )
    return replace(suite, rows=(*kept, *dict.fromkeys(own), *suite.controls), columns=columns)


def in_bf16(config: RunConfig) -> RunConfig:
    return replace(config, train=replace(config.train, precision="bf16", channels_last=True))
