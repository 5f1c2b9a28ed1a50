"""Methods with equally many configurations each, tuned and refitted: every configuration on every fold at once.

Each job reads its held-out rows once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rcad.errors import InputError
from rcad.loss.method import Method
from rcad.loss.method_rows import as_first_written
from rcad.runs.config import OptimConfig
from rcad.stacked.model import StackedMLP
from rcad.stacked.task import Examples, StackedProblem, measure_stacked
from rcad.stacked.train import train_stacked
from rcad.train.task import check_cap

Progress = Callable[[int, int], None]
STACKED_NUMBERS = 2**25
"""Training features held at a time; larger jobs are trained fold by fold, sharing one copy of the data."""


@dataclass(frozen=True)
class Candidate:
    """One configuration.

    Args:
        numbers: what was chosen, by name, for the record.
        method: as trained.
        weight_decay: decoupled, of the optimizer.
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
    """A method of the table.

    Args:
        name: its row.
        candidates: of one structure (see `train_stacked`), in the order in which ties are broken.
    """

    name: str
    candidates: tuple[Candidate, ...]

    def to_dict(self) -> dict[str, Any]:
        """What a record says of it: the same text as long as it is trained the same way."""
        first = self.candidates[0].method
        structure = replace(first, recipe=as_first_written(first.recipe))
        return {"structure": repr(structure), "candidates": [dict(one.numbers) for one in self.candidates]}


def check_budget(arms: Sequence[Arm]) -> int:
    """The number of configurations, which must be the same for every method."""
    sizes = {arm.name: len(arm.candidates) for arm in arms}
    if len(set(sizes.values())) != 1:
        raise InputError(f"expected the same number of configurations for every method, but got {sizes}")
    return len(arms[0].candidates)


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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Fold(NamedTuple):
    """Examples to fit and examples to judge by; tensors x (n, D) and y (n,).

    Attributes:
        classes: 0 for regression.
        scale: of the targets, by which a regression's were divided.
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


class Fitted(NamedTuple):
    """What jobs gave: numbers by metric, NaN where a run diverged, and for each job its weights (`models`)."""

    metrics: dict[str, list[float]]
    models: list[StackedMLP]


def fit(jobs: Sequence[Job], folds: Sequence[Fold], protocol: Protocol, progress: Progress | None = None) -> Fitted:
    """Train the jobs, of one structure, and measure each on the held-out rows of its fold, at its own last epoch."""
    numbers = len(jobs) * folds[0].x.numel()
    together = numbers <= STACKED_NUMBERS or len({job.fold for job in jobs}) == len(jobs) == 1
    if together:
        return _fit(jobs, folds, protocol, progress)
    parts = [[k for k, job in enumerate(jobs) if job.fold == fold] for fold in sorted({job.fold for job in jobs})]
    metrics: dict[str, list[float]] = {}
    models: dict[int, StackedMLP] = {}
    done = 0
    for part in parts:
        before = done

        def onward(now: int, total: int, before: int = before, size: int = len(part)) -> None:
            if progress is not None:
                progress(before * total // size + now, len(jobs) * total // size)

        one = _fit([jobs[k] for k in part], folds, protocol, onward)
        for name, values in one.metrics.items():
            column = metrics.setdefault(name, [math.nan] * len(jobs))
            for k, value in zip(part, values, strict=True):
                column[k] = value
        models |= dict(zip(part, one.models, strict=True))
        done += len(part)
    return Fitted(metrics, [models[k] for k in range(len(jobs))])


def _fit(jobs: Sequence[Job], folds: Sequence[Fold], protocol: Protocol, progress: Progress | None) -> Fitted:
    # Jobs that differ in their last epoch alone are one run, looked at several times.
    keys = [(job.candidate.method, job.candidate.weight_decay, job.fold, job.seed) for job in jobs]
    runs = list(dict.fromkeys(keys))
    row = {key: k for k, key in enumerate(runs)}
    epochs = [job.candidate.epochs or protocol.epochs for job in jobs]
    problem = _problem([folds[key[2]] for key in runs])
    result = train_stacked(
        problem,
        [key[0] for key in runs],
        seeds=[key[3] for key in runs],
        optim=[protocol.optim(key[1]) for key in runs],
        epochs=max(epochs),
        batch_size=protocol.batch_size,
        hidden=protocol.hidden,
        report=(),
        snapshots=sorted(set(epochs)),
        progress=progress,
        may_diverge=any(job.candidate.may_diverge for job in jobs),
    )
    metrics: dict[str, list[float]] = {}
    models: list[StackedMLP] = []
    for k, key in enumerate(keys):
        index = torch.tensor([row[key]])
        model, fold = result.snapshots[epochs[k]].take(index), folds[key[2]]
        held = Examples(fold.held_x[None], fold.held_y[None])
        scale = None if fold.classes else torch.tensor([fold.scale], dtype=torch.float64)
        for name, value in measure_stacked(model, held, scale).items():
            finite = bool(model.finite().all())
            metrics.setdefault(name, []).append(float(value) if finite else math.nan)
        models.append(model)
    return Fitted(metrics, models)


def _problem(folds: Sequence[Fold]) -> StackedProblem:
    first = folds[0]
    scale = None if first.classes else torch.tensor([fold.scale for fold in folds], dtype=torch.float64)
    if all(fold is first for fold in folds):
        return StackedProblem(Examples(first.x, first.y), first.classes, target_scale=scale)
    x, y = torch.stack([fold.x for fold in folds]), torch.stack([fold.y for fold in folds])
    return StackedProblem(Examples(x, y), first.classes, target_scale=scale)


def tune(
    arm: Arm,
    folds: Sequence[Fold],
    seeds: Sequence[int],
    protocol: Protocol,
    *,
    metric: str,
    smaller: bool,
    progress: Progress | None = None,
) -> tuple[list[list[float]], list[int]]:
    """The metric of every candidate on every fold, (folds, candidates), and each fold's best.

    A run that diverged is never the best; the earlier candidate wins a tie.
    """
    jobs = [Job(one, k, seed) for k, seed in enumerate(seeds) for one in arm.candidates]
    values = fit(jobs, folds, protocol, progress).metrics[metric]
    table = np.asarray(values, dtype=np.float64).reshape(len(folds), len(arm.candidates))
    return table.tolist(), [best(row, smaller=smaller) for row in table.tolist()]


def best(values: Sequence[float], *, smaller: bool) -> int:
    """The first of the best finite values; the first of all where none is finite."""
    cost = [(value if smaller else -value) if math.isfinite(value) else math.inf for value in values]
    return cost.index(min(cost))
