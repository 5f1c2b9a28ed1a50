"""F7: what ERM and RCAD make of the plane of the true features, the noise dimensions at 0, as training goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rcad.data.toys import arc
from rcad.loss.methods import erm
from rcad.paper.arms import Arm, Candidate
from rcad.paper.moons import TUNING_SEED, Cell, build_arms, draw
from rcad.paper.stacked_tuning import Fold, Job, Progress, Protocol, fit, tune
from rcad.stacked.model import StackedMLP

Say = Callable[[str, int, int], None]
CELL, PROTOCOL = Cell(625, 0.10), Protocol("sgd", 0.05, 128, 300, (128,))
SHOWN = 300
LIMITS = (-1.75, 2.75, -1.25, 1.75)
"""Left, right, bottom, top of the pictures."""


@dataclass(frozen=True)
class Settings:
    """All that the pictures depend on besides the versions.

    Args:
        cell: the distribution; the paper does not say which it draws.
        n, n_validation: examples to train and, in a draw of their own, to tune RCAD by, at the first of `epochs`.
        epochs: when to look.
        grid: points across; two thirds as many up.
        draws: training sets (and weights), numbered from 0; the first is drawn.
        budget: configurations of RCAD; None for all.
    """

    cell: Cell = CELL
    n: int = 1000
    n_validation: int = 2000
    epochs: tuple[int, ...] = (100, 200, 300)
    grid: int = 90
    draws: int = 5
    budget: int | None = None
    protocol: Protocol = PROTOCOL

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "rcad": self.arm().to_dict()}

    def arm(self) -> Arm:
        """RCAD's configurations, those of the table."""
        (arm,) = (one for one in build_arms(self.epochs[0]) if one.name == "rcad")
        return replace(arm, candidates=arm.candidates[: self.budget])


SCALES = {
    "full": Settings(),
    "small": Settings(draws=3, budget=4),
    "smoke": Settings(
        Cell(10, 0.1), 40, 50, (2, 4, 6), 12, draws=2, budget=2, protocol=Protocol("sgd", 0.05, 32, 6, (8,))
    ),
}


def run(settings: Settings, say: Say) -> dict[str, Any]:
    """The probability of class 1 on the grid for both methods at every epoch, in percent."""
    cell = settings.cell
    arm = settings.arm()
    tuning = draw(cell, settings.n, settings.n_validation, TUNING_SEED)
    short = replace(settings.protocol, epochs=settings.epochs[0])
    scores, (choice,) = tune(
        arm,
        [tuning],
        [TUNING_SEED],
        short,
        metric="accuracy",
        smaller=False,
        progress=partial(say, "tuning RCAD"),
    )
    chosen = arm.candidates[choice]
    # Held-out rows of the tuning draw tell accuracy: no test set is made for a picture.
    folds = [
        draw(cell, settings.n, 2, seed)._replace(held_x=tuning.held_x, held_y=tuning.held_y)
        for seed in range(settings.draws)
    ]
    panels = []
    for name, one in (("erm", Candidate({}, erm())), ("rcad", chosen)):
        for epoch, found in _looked_at(one, folds, settings, partial(say, name)).items():
            panels.append({"method": name, "epoch": epoch, **found})
    points, labels = folds[0].x[:SHOWN, :2], folds[0].y[:SHOWN]
    return {
        "chosen": dict(chosen.numbers),
        "validation": scores[0],
        "panels": panels,
        "points": {"x": np.round(points.tolist(), 3).tolist(), "y": labels.tolist()},
    }


def _looked_at(one: Candidate, folds: list[Fold], settings: Settings, progress: Progress) -> dict[int, Any]:
    """By epoch: accuracies of every draw, and the first draw's probabilities on the grid."""
    jobs = [Job(replace(one, epochs=epoch), k, k) for epoch in settings.epochs for k in range(len(folds))]
    fitted = fit(jobs, folds, settings.protocol, progress)
    arcs, labels = noiseless()
    found: dict[int, Any] = {}
    for start, epoch in zip(range(0, len(jobs), len(folds)), settings.epochs, strict=True):
        models = fitted.models[start : start + len(folds)]
        right = [(probability(model, arcs, settings.cell.d) > 0.5) == (labels == 1) for model in models]
        plane = probability(models[0], grid(settings.grid), settings.cell.d)
        found[epoch] = {
            "training_accuracy": [training_accuracy(*pair) for pair in zip(models, folds, strict=True)],
            "validation_accuracy": fitted.metrics["accuracy"][start : start + len(folds)],
            "arc_accuracy": [100 * float(hits.double().mean()) for hits in right],
            "probability": [round(100 * value) for value in plane.tolist()],
        }
    return found


@torch.no_grad()
def training_accuracy(model: StackedMLP, fold: Fold) -> float:
    """Of a model on the examples that it was fitted to, in percent."""
    return 100 * float((model(fold.x[None])[0].argmax(1) == fold.y).double().mean())


def grid(across: int) -> Tensor:
    """Points of the plane, row by row from the bottom, (rows * across, 2)."""
    left, right, bottom, top = LIMITS
    x, y = torch.linspace(left, right, across), torch.linspace(bottom, top, max(2, across * 2 // 3))
    return torch.stack([x.repeat(len(y)), y.repeat_interleave(across)], 1)


def noiseless(count: int = 500) -> tuple[Tensor, Tensor]:
    """The half circles themselves: points (2 * count, 2) and labels."""
    angle = np.linspace(0, np.pi, count)
    points = np.concatenate([arc(angle, 0), arc(angle, 1)]).astype(np.float32)
    return torch.from_numpy(points), torch.arange(2).repeat_interleave(count)


@torch.no_grad()
def probability(model: StackedMLP, points: Tensor, d: int) -> Tensor:
    """Of class 1 at points of the plane (N, 2), the other d - 2 dimensions at 0; (N,)."""
    x = torch.zeros(1, len(points), d)
    x[0, :, :2] = points
    return model(x)[0].softmax(1)[:, 1]
