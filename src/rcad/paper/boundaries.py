"""F7: what ERM and RCAD make of the plane of the true features, the noise dimensions at 0, as training goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rcad.loss.methods import erm
from rcad.paper import stacked_tuning
from rcad.paper.claims import TRIAL, Claim, PlannedClaim, judge_all
from rcad.paper.moons import Cell, arc, build_arms, draw, draws_held
from rcad.paper.record import OnProgress, Study
from rcad.paper.report.pictures import LIMITS
from rcad.paper.stacked_tuning import TUNING_SEED, Arm, Candidate, Fold, Job, Progress, Protocol, fit, tune
from rcad.stacked.model import StackedMLP
from rcad.study.judge import CLAIM_RULE

CELL, PROTOCOL = Cell(625, 0.10), Protocol("sgd", 0.05, 128, 300, (128,))
SHOWN, ON_ARC = 300, 500
"""Training examples that are drawn, and points of each noise-free half circle."""
SHARE, FRESH, FITTED = MEASURES = ("share of the curves", "accuracy", "training accuracy, %")


@dataclass(frozen=True)
class Settings:
    """All that the pictures depend on besides the versions.

    Args:
        cell: the distribution; the paper does not say which it draws.
        n, n_validation: examples to train and, in a draw of their own, to tune RCAD by, at the first of `epochs`.
        grid: points across; two thirds as many up.
        draws: training sets (and weights), numbered from 0; the first is drawn.
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
        (arm,) = (arm for arm in build_arms(self.epochs[0]) if arm.name == "rcad")
        return arm.cut(self.budget)


SCALES = {
    "full": Settings(),
    "small": Settings(draws=3, budget=4),
    "smoke": Settings(
        Cell(10, 0.1), 40, 50, (2, 4, 6), 12, draws=2, budget=2, protocol=Protocol("sgd", 0.05, 32, 6, (8,))
    ),
}


def run(settings: Settings, data_dir: Path | None, on_progress: OnProgress) -> Study:
    """The probability of class 1 on the grid for both methods at every epoch, in percent."""
    cell, arm = settings.cell, settings.arm()
    tuning = draw(cell, settings.n, settings.n_validation, TUNING_SEED)
    short = replace(settings.protocol, epochs=settings.epochs[0])
    scores, (choice,) = tune(arm, [tuning], short, "accuracy", partial(on_progress, "tuning RCAD"))
    chosen = arm.candidates[choice]
    folds = draws_held(cell, settings.n, settings.draws, tuning)
    panels = [
        {"method": name, **panel}
        for name, candidate in (("erm", Candidate({}, erm())), ("rcad", chosen))
        for panel in _panels(candidate, folds, settings, partial(on_progress, name))
    ]
    x, y = folds[0].x[:SHOWN, :2], folds[0].y[:SHOWN]
    points = {"x": np.round(x.tolist(), 3).tolist(), "y": y.tolist()}
    return describe(settings, panels, {"chosen": dict(chosen.numbers), "validation": scores[0], "points": points})


def describe(settings: Settings, panels: Sequence[Mapping[str, Any]], details: Mapping[str, Any]) -> Study:
    """The record of what was computed."""
    chosen = ", ".join(f"{name} {value:g}" for name, value in details["chosen"].items())
    tables: dict[str, dict[str, Any]] = {}
    for panel in panels:
        tables.setdefault(f"epoch {panel['epoch']}", {})[panel["method"]] = panel
    shown = [{key: panel[key] for key in ("method", "epoch", "probability")} for panel in panels]
    more = {"metric": SHARE, "rule": CLAIM_RULE, "details": {**details, "panels": shown}}
    return stacked_tuning.describe("F7", settings, tables, MEASURES, {"chosen": chosen}, **more)


def judge(study: Study) -> Study:
    """RCAD's boundary follows the half circles more closely; ERM fits its training set, and more epochs harm it."""
    text = "RCAD's boundary follows the moons more closely than ERM's"
    planned = [PlannedClaim(column, text, ("RCAD", column), ("ERM", column), None) for column in study.columns]
    first, last = study.columns[0], study.columns[-1]
    longer = f"epochs {first.removeprefix('epoch ')} to {last.removeprefix('epoch ')}"
    fresh = {("ERM on fresh examples", name): study.places["ERM", name].by_seed(FRESH) for name in (first, last)}
    worse = "more epochs of ERM lower its accuracy on fresh examples"
    early, late = fresh
    planned.append(PlannedClaim(longer, worse, early, late, None))
    trial = study.scale == "smoke"
    claims = judge_all(planned, {**study.cells(), **fresh}, trial=trial, count_all=True)
    fitted = study.places["ERM", last].values(FITTED)
    perfect = sum(value == 100 for value in fitted)
    fits = Claim(
        last,
        "ERM's training accuracy is 100%",
        TRIAL if trial else "reproduced" if perfect == len(fitted) else "not reproduced",
        ours=f"in {perfect} of {len(fitted)} draws, {min(fitted, default=0.0):.2f}% at least",
        rule="reproduced: in every draw",
    )
    return replace(study, claims=[*claims, *([fits] if fitted else [])])


def _panels(
    candidate: Candidate, folds: list[Fold], settings: Settings, progress: Progress
) -> Iterator[dict[str, Any]]:
    """At each epoch: the measures of every draw, and the first draw's probabilities on the grid."""
    jobs = [Job(replace(candidate, epochs=epoch), k, k) for epoch in settings.epochs for k in range(len(folds))]
    fitted = fit(jobs, folds, settings.protocol, progress)
    angle = np.linspace(0, np.pi, ON_ARC)
    arcs = torch.from_numpy(np.concatenate([arc(angle, 0), arc(angle, 1)]).astype(np.float32))
    labels = torch.arange(2).repeat_interleave(ON_ARC)
    for start, epoch in zip(range(0, len(jobs), len(folds)), settings.epochs, strict=True):
        models = fitted.models[start : start + len(folds)]
        right = [(probability(model, arcs, settings.cell.d) > 0.5) == (labels == 1) for model in models]
        plane = probability(models[0], grid(settings.grid), settings.cell.d)
        yield {
            "epoch": epoch,
            SHARE: [100 * float(hits.double().mean()) for hits in right],
            FRESH: fitted.metrics["accuracy"][start : start + len(folds)],
            FITTED: [training_accuracy(*pair) for pair in zip(models, folds, strict=True)],
            "probability": [round(100 * value) for value in plane.tolist()],
        }


@torch.no_grad()
def training_accuracy(model: StackedMLP, fold: Fold) -> float:
    """Of a model on the examples that it was fitted to, in percent."""
    return 100 * float((model(fold.x[None])[0].argmax(1) == fold.y).double().mean())


def grid(across: int) -> Tensor:
    """Points of the plane, row by row from the bottom, (rows * across, 2)."""
    left, right, bottom, top = LIMITS
    x, y = torch.linspace(left, right, across), torch.linspace(bottom, top, max(2, across * 2 // 3))
    return torch.stack([x.repeat(len(y)), y.repeat_interleave(across)], 1)


@torch.no_grad()
def probability(model: StackedMLP, points: Tensor, d: int) -> Tensor:
    """Of class 1 at points of the plane (N, 2), the other d - 2 dimensions at 0; (N,)."""
    x = torch.zeros(1, len(points), d)
    x[0, :, :2] = points
    return model(x)[0].softmax(1)[:, 1]
