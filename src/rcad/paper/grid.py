"""The runs of a suite: which are done, which are left, how long they will take. A finished run is never made again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rcad.errors import InputError, one_of
from rcad.paper.benchmarks import Scale, Views, missing
from rcad.paper.suite import PlannedRun, Suite
from rcad.runs.config import RunConfig
from rcad.runs.plain import config_id

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
    weights: str | None = None,
) -> Plan:
    """The runs for which there are data; at least one column must have some.

    Args:
        only: columns; empty for all.
        precision: of the products in training; "bf16" comes with the memory layout that makes it fast on a GPU.
        weights: a file to start from, see `Suite.runs`.
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
    runs = () if views == "tuned" else suite.runs(scale, numbers, views, columns, weights)
    if precision == "bf16":
        runs = tuple(one._replace(config=in_bf16(one.config)) for one in runs)
    skipped = tuple(name for name in names if only and name not in only)
    return Plan(suite, scale, views, numbers, runs, columns, absent, skipped, precision)


def in_bf16(config: RunConfig) -> RunConfig:
    return replace(config, train=replace(config.train, precision="bf16", channels_last=True))
