"""One table or figure as its record gives it: cells of runs, published numbers, claims with verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rcad.paper.claims import is_check

TITLES = {
    "T1": "adversarial rivals, ResNet-18",
    "T2": "with label smoothing",
    "T3": "a wider network, WRN-28-10",
    "T4": "little data: CIFAR-100 subsets",
    "T5": "ImageNet, ResNet-50",
    "T6": "under an FGSM attack",
    "T7": "UCI regression, test NLL",
    "T8": "moons in many dimensions",
    "F1": "perturbed images at growing alpha",
    "F2": "four augmentations, each with and without RCAD",
    "F3": "gain over ERM",
    "F4": "accuracy by alpha",
    "F5": "linear theory",
    "F6": "corrupted images",
    "F7": "decision boundaries on the moons",
}
"""Everything the paper shows, in the order of the report."""
SCALES = {
    "smoke": "SMOKE SCALE: a trial of seconds on tiny data. Its numbers mean nothing, and nothing is judged by them.",
    "small": "SMALL SCALE: fewer epochs, seeds or data than the paper. Read its verdicts as hints.",
    "full": "",
}
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """One run or split: its id ("" where the study keeps no run records), and numbers.

    A number that is None was lost where the run diverged, and not measured where it did not.
    """

    id: str
    seed: int
    metrics: Mapping[str, float | None]
    seconds: float | None = None
    diverged: bool = False


@dataclass(frozen=True)
class Published:
    """A number as printed: mean, half the width of its interval, and the runs behind it, where the paper tells."""

    mean: float
    half: float | None = None
    n: int | None = None


@dataclass(frozen=True)
class Place:
    """A method (row) on some data (column): what is printed, and our runs."""

    row: str
    column: str
    published: Published | None
    runs: Sequence[Run]

    def values(self, metric: str) -> list[float]:
        """The finite results."""
        found = [run.metrics.get(metric) for run in self.runs]
        return [value for value in found if value is not None and math.isfinite(value)]

    @property
    def diverged(self) -> int:
        return sum(run.diverged for run in self.runs)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper; `ours` is our difference in words, `gain` the same in numbers where there are some."""

    where: str
    statement: str
    verdict: str
    gain: Mapping[str, float] | None = None
    ours: str = ""
    published: float | None = None
    p: float | None = None
    p_reverse: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Series:
    """A curve: for every x (a number or a name) the results of all seeds, and what the paper prints there."""

    name: str
    x: Sequence[float | str]
    y: Sequence[Sequence[float | None]]
    published: Sequence[float | None] = ()
    panel: str = ""


@dataclass(frozen=True)
class Study:
    """A record, understood.

    Attributes:
        path: its file.
        metrics: by column, the number that it shows where that is not `metric`.
        overlap: by column, n_test / n_train of splits that share their rows; their intervals are wider.
        ceiling: by column, the best that any method could reach.
        along: what stands along x of the curves.
        record: the whole of it, for pictures of one figure only.
    """

    target: str
    title: str
    path: Path
    about: str = ""
    scale: str = "full"
    protocol: str = ""
    metric: str = "accuracy"
    higher_is_better: bool = True
    unit: str = "%"
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    controls: Sequence[str] = ()
    places: Mapping[tuple[str, str], Place] = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    rule: str = ""
    notes: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float | None = None
    series: Sequence[Series] = ()
    along: str = ""
    metrics: Mapping[str, str] = field(default_factory=dict)
    overlap: Mapping[str, float] = field(default_factory=dict)
    ceiling: Mapping[str, float] = field(default_factory=dict)
    record: Record = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The metric with its unit."""
        words = {"nll": "NLL", "ece": "ECE", "rmse": "RMSE", "brier": "Brier score"}
        return f"test {words.get(self.metric, self.metric)}" + (f", {self.unit}" if self.unit else "")

    def metric_of(self, column: str) -> str:
        return self.metrics.get(column, self.metric)

    def added(self, claim: Claim) -> bool:
        """Whether a claim is a check of ours, which the paper does not make itself."""
        return is_check(self.target, claim.statement, claim.published, self.controls)

    @property
    def warning(self) -> str:
        """What to say loudly of a scale that is not the paper's."""
        return SCALES.get(self.scale, f"SCALE {self.scale!r}: not the paper's protocol.")

    @property
    def runs(self) -> int:
        return sum(len(place.runs) for place in self.places.values())


def named(studies: Sequence[Study]) -> list[Study]:
    """The studies in the report's order, with titles that differ: two records of one target name their scales."""
    order = {target: index for index, target in enumerate(TITLES)}
    found = sorted(studies, key=lambda one: (order.get(one.target, len(order)), one.target, str(one.path)))
    seen: dict[str, int] = {}
    different = []
    for one in found:
        title = f"{one.target}: {one.title}" if one.target in TITLES else one.title
        key = title.casefold()
        seen[key] = seen.get(key, 0) + 1
        again = f" ({one.scale}, {one.path.parent.name}/{one.path.name})" if seen[key] > 1 else ""
        different.append(replace(one, title=title + again))
    return different
