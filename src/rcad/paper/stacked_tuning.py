"""Methods with equally many configurations each, tuned and refitted: every configuration on every fold at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rcad.loss.method_rows import as_first_written
from rcad.loss.methods import Method
from rcad.paper.claims import Side
from rcad.paper.record import JSON, OnProgress, Place, Run, Study
from rcad.paper.targets import TARGETS, Table
from rcad.runs.config import OptimConfig
from rcad.stacked.model import StackedMLP
from rcad.stacked.train import Examples, StackedProblem, measure_stacked, train_stacked
from rcad.train.task import check_cap

Progress = Callable[[int, int], None]
TUNING_SEED = 1000
"""Of the first fold that methods are tuned on; what is judged has seeds from 0 on."""
STACKED_NUMBERS = 2**25
"""Training features held at a time; larger jobs are trained fold by fold, sharing one copy of the data."""
FIXED = "erm_fixed"
"""ERM without a choice: its first configuration, the last epoch."""


@dataclass(frozen=True)
class Candidate:
    """One configuration.

    Args:
        numbers: what was chosen, by name, for the record.
        epochs: stop here; None for the protocol's last epoch.
        may_diverge: an uncapped entropy is wanted, to show what it does.
    """

    numbers: Mapping[str, float] = field(hash=False)
    method: Method
    weight_decay: float = 0.0
    epochs: int | None = None
    may_diverge: bool = False

    def __post_init__(self) -> None:
        if not self.may_diverge:
            check_cap(self.method)


@dataclass(frozen=True)
class Arm:
    """A method of the table; its candidates, of one structure (see `train_stacked`), in the order that breaks ties."""

    name: str
    candidates: tuple[Candidate, ...]

    @staticmethod
    def of(name: str, method: Callable[..., Method], **grid: Sequence[float]) -> Arm:
        """The method at every point of a grid over its own parameters, `weight_decay` and `epochs`."""
        candidates = []
        for point in product(*grid.values()):
            numbers: dict[str, Any] = dict(zip(grid, point, strict=True))
            own = {key: value for key, value in numbers.items() if key not in ("weight_decay", "epochs")}
            stop, decay = numbers.get("epochs"), numbers.get("weight_decay", 0.0)
            candidates.append(Candidate(numbers, method(**own), decay, stop))
        return Arm(name, tuple(candidates))

    def cut(self, budget: int | None) -> Arm:
        """With so many of its candidates; None for all."""
        return Arm(self.name, self.candidates[:budget])

    def to_dict(self) -> dict[str, Any]:
        """What a record says of it: the same text as long as it is trained the same way."""
        first = self.candidates[0].method
        structure = replace(first, recipe=as_first_written(first.recipe))
        return {"structure": repr(structure), "candidates": [dict(candidate.numbers) for candidate in self.candidates]}


@dataclass(frozen=True)
class Protocol:
    """How every method of a study trains."""

    optimizer: Literal["sgd", "adamw"]
    lr: float
    batch_size: int
    epochs: int
    hidden: tuple[int, ...]
    momentum: float = 0.9

    def optim(self, weight_decay: float) -> OptimConfig:
        return OptimConfig(
            name=self.optimizer, lr=self.lr, momentum=self.momentum, nesterov=False, weight_decay=weight_decay
        )


class Fold(NamedTuple):
    """Examples to fit and examples to judge by; tensors x (n, D) and y (n,).

    classes: 0 for regression, whose targets were divided by `scale`.
    """

    x: Tensor
    y: Tensor
    held_x: Tensor
    held_y: Tensor
    classes: int
    scale: float = 1.0


class Job(NamedTuple):
    """One configuration on one fold (its number) with one seed."""

    candidate: Candidate
    fold: int
    seed: int


Metrics = dict[str, list[float]]
"""Numbers by metric, NaN where a run diverged."""


class Fitted(NamedTuple):
    """What jobs gave: their numbers, and for each job its weights (`models`)."""

    metrics: Metrics
    models: list[StackedMLP]


def fit(jobs: Sequence[Job], folds: Sequence[Fold], protocol: Protocol, progress: Progress | None = None) -> Fitted:
    """Train the jobs, of one structure, and measure each on the held-out rows of its fold, at its own last epoch."""
    used = sorted({job.fold for job in jobs})
    together = len(used) == 1 or len(jobs) * folds[0].x.numel() <= STACKED_NUMBERS
    parts = [range(len(jobs))] if together else [[k for k, job in enumerate(jobs) if job.fold == fold] for fold in used]
    metrics: Metrics = {}
    models: dict[int, StackedMLP] = {}
    for part in parts:

        def onward(now: int, total: int, before: int = len(models), size: int = len(part)) -> None:
            if progress is not None:
                progress(before * total // size + now, len(jobs) * total // size)

        # Jobs that differ in their last epoch alone are one run, looked at several times.
        keys = {k: (jobs[k].candidate.method, jobs[k].candidate.weight_decay, *jobs[k][1:]) for k in part}
        methods, decays, of_folds, seeds = zip(*dict.fromkeys(keys.values()), strict=True)
        row = {key: torch.tensor([k]) for k, key in enumerate(dict.fromkeys(keys.values()))}
        epochs = {k: jobs[k].candidate.epochs or protocol.epochs for k in part}
        result = train_stacked(
            _problem([folds[k] for k in of_folds]),
            methods,
            seeds=seeds,
            optim=[protocol.optim(decay) for decay in decays],
            epochs=max(epochs.values()),
            batch_size=protocol.batch_size,
            hidden=protocol.hidden,
            report=False,
            snapshots=sorted(set(epochs.values())),
            progress=onward,
            may_diverge=any(jobs[k].candidate.may_diverge for k in part),
        )
        for k, key in keys.items():
            models[k], fold = result.snapshots[epochs[k]].take(row[key]), folds[jobs[k].fold]
            scale = None if fold.classes else torch.tensor([fold.scale], dtype=torch.float64)
            finite = bool(models[k].finite().all())
            held = Examples(fold.held_x[None], fold.held_y[None])
            for name, value in measure_stacked(models[k], held, scale).items():
                metrics.setdefault(name, [math.nan] * len(jobs))[k] = float(value) if finite else math.nan
    return Fitted(metrics, [models[k] for k in range(len(jobs))])


def _problem(folds: Sequence[Fold]) -> StackedProblem:
    first = folds[0]
    scale = None if first.classes else torch.tensor([fold.scale for fold in folds], dtype=torch.float64)
    if all(fold is first for fold in folds):
        return StackedProblem(Examples(first.x, first.y), first.classes, target_scale=scale)
    x, y = torch.stack([fold.x for fold in folds]), torch.stack([fold.y for fold in folds])
    return StackedProblem(Examples(x, y), first.classes, target_scale=scale)


def tune(
    arm: Arm, folds: Sequence[Fold], protocol: Protocol, metric: str, progress: Progress | None = None
) -> tuple[list[list[float]], list[int]]:
    """The metric of every candidate on every fold, (folds, candidates), and each fold's best.

    A run that diverged is never the best; the earlier candidate wins a tie.
    """
    jobs = [Job(candidate, k, TUNING_SEED + k) for k in range(len(folds)) for candidate in arm.candidates]
    scores = np.reshape(fit(jobs, folds, protocol, progress).metrics[metric], (len(folds), -1))
    return scores.tolist(), [best(row, metric) for row in scores]


def best(values: npt.ArrayLike, metric: str) -> int:
    """The first of the best finite values; the first of all where none is finite. Only accuracies are to be large."""
    cost = np.asarray(values) * (-1 if metric == "accuracy" else 1)
    return int(np.where(np.isfinite(cost), cost, np.inf).argmin())


def refit(
    chosen: Candidate | Sequence[Candidate], folds: Sequence[Fold], protocol: Protocol, progress: Progress | None = None
) -> Metrics:
    """A configuration on every fold, or each fold's own, with its number as its seed: every metric, fold by fold."""
    each = [chosen] * len(folds) if isinstance(chosen, Candidate) else chosen
    return fit([Job(candidate, k, k) for k, candidate in enumerate(each)], folds, protocol, progress).metrics


def tune_and_refit(
    name: str,
    arms: Sequence[Arm],
    inner: Sequence[Fold],
    outer: Sequence[Fold],
    protocol: Protocol,
    metric: str,
    on_progress: OnProgress,
) -> tuple[dict[str, Metrics], dict[str, tuple[list[list[float]], list[int]]]]:
    """Every method tuned on the inner folds and refitted on the outer ones: numbers and, as `tune` has them, choices.

    Each inner fold chooses for the outer one of its number; a single one chooses for all.
    """
    results, tuning = {}, {}
    for arm in arms:
        progress = partial(on_progress, f"{name}: {arm.name}")
        tuning[arm.name] = _, chosen = tune(arm, inner, protocol, metric, progress)
        each = [arm.candidates[choice] for choice in chosen]
        results[arm.name] = refit(each[0] if len(each) == 1 else each, outer, protocol, progress)
    on_progress(f"{name}: fixed settings", 0, 1)
    results[FIXED] = refit(arms[0].candidates[0], outer, protocol)
    return results, tuning


Tables = Mapping[str, Mapping[str, Mapping[str, Sequence[float | None]]]]
"""Numbers by column, method and metric."""


def describe(name: str, settings: Any, tables: Tables, metrics: tuple[str, ...], about: JSON, **more: Any) -> Study:
    """A study's record: its words are those of paper.toml, which `about` fills beside the settings.

    metrics: those to keep; a run without a finite first one has diverged.
    """
    target = TARGETS[name]
    return Study(
        target=name,
        title=target.title,
        about=target.shows.format(settings=settings, protocol=settings.protocol, **about),
        rows=list(target.rows.values()),
        columns=list(tables),
        places=places(tables, target.rows, metrics, target.printed),
        settings=settings.to_dict(),
        **{"notes": target.notes, **more},
    )


def places(tables: Tables, labels: Mapping[str, str], metrics: tuple[str, ...], printed: Table) -> dict[Side, Place]:
    """The cells of a study; `labels` has the row of each method."""

    def run(number: int, values: tuple[float | None, ...]) -> Run:
        lost = values[0] is None or not math.isfinite(values[0])
        return Run(number, dict(zip(metrics, values, strict=True)), status="diverged" if lost else "done")

    cells = {}
    for column, methods in tables.items():
        for method, numbers in methods.items():
            runs = [run(k, values) for k, values in enumerate(zip(*(numbers[name] for name in metrics), strict=True))]
            row = labels[method]
            cells[row, column] = Place(row, column, printed.get(column, {}).get(row), runs)
    return cells
