"""Does a model know what it does not know? Scores against foreign data, and its entropy along growing steps."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from rcad.evaluate.ood import AlphaCurve, Direction, detection, entropy_against_alpha, out_of_distribution
from rcad.evaluate.saved_run.finished_run import BATCH, Progress, Shelf, Subject
from rcad.evaluate.saved_run.foreign_data import foreign
from rcad.evaluate.saved_run.settings import Settings
from rcad.evaluate.saved_run.suite_result import Found
from rcad.loss.growth import as_unit_float
from rcad.loss.likelihoods import Categorical, Gaussian, Likelihood
from rcad.loss.perturbations import GradientStep
from rcad.loss.suggest_alpha import suggest_alpha

BINS, POINTS = 30, 60
DIRECTIONS: tuple[Direction, ...] = ("adversarial", "random")
PERTURBED = "perturbed"


def ood(subject: Subject, settings: Settings, progress: Progress, shelf: Shelf) -> Found:
    x, y = subject.examples("ood", settings)
    known, likelihood = subject.outputs(x), _likelihood(subject)
    numbers: dict[str, float] = {}
    curves: dict[str, Any] = {"foreign": {}, "alpha": {}}
    sets = {name: foreign(subject, shelf, name, len(y), settings.seed) for name in settings.ood_data}
    if subject.problem.classes:
        alpha = suggest_alpha(*subject.problem.train, generator=_generator(subject, settings))
        numbers["suggested_alpha"] = alpha
        sets[PERTURBED] = _perturbed(subject, x, y, alpha)
    for place, (name, inputs) in enumerate(sets.items()):
        progress("foreign data", place, len(sets))
        output = subject.outputs(inputs)
        inside, outside = (-likelihood.entropy(one.double()) for one in (known, output))
        if subject.problem.classes:
            found = out_of_distribution(known, output)
        else:
            found = {f"entropy_{quantity}": value for quantity, value in detection(inside, outside).items()}
        numbers |= {f"ood_{name}_{quantity}": value for quantity, value in found.items()}
        curves["foreign"][name] = {"count": len(inputs), "histogram": _histogram(subject, -inside, -outside)}
        curves["foreign"][name]["roc"] = roc(inside, outside)
    for direction in DIRECTIONS:
        curve = _along(subject, settings, x, y, direction, progress)
        curves["alpha"][direction] = asdict(curve)
        pairs = zip(curve.alphas, curve.entropy, strict=True)
        numbers |= {f"entropy_{direction}_{alpha:g}": value for alpha, value in pairs}
    notes = () if subject.problem.classes else ("A real target has one score: the entropy of the predicted Gaussian.",)
    return Found(numbers, curves, notes, len(y))


def roc(inside: Tensor, outside: Tensor, points: int = POINTS) -> dict[str, list[float]]:
    """Share of known and of foreign examples accepted, at falling thresholds; from (0, 0) to (1, 1)."""
    every = torch.cat([inside, outside]).sort(descending=True).values
    thresholds = every[torch.linspace(0, len(every) - 1, min(points, len(every)), device=every.device).long()]
    shares = [(one[:, None] >= thresholds).double().mean(0) for one in (inside, outside)]
    known, foreign_ = torch.stack(shares).tolist()
    return {"known": [0.0, *known], "foreign": [0.0, *foreign_]}


def _likelihood(subject: Subject) -> Likelihood:
    """Without a cap: it would hide where the entropy goes on growing."""
    return Categorical() if subject.problem.classes else Gaussian(cap=None)


def _generator(subject: Subject, settings: Settings) -> torch.Generator:
    return torch.Generator(subject.problem.device).manual_seed(settings.seed)


def _perturbed(subject: Subject, x: Tensor, y: Tensor, alpha: float) -> Tensor:
    """RCAD's own examples of doubt: one step of length alpha up the loss of the model itself."""
    step = GradientStep(alpha)
    parts = zip(torch.split(x, BATCH), torch.split(y, BATCH), strict=True)
    return torch.cat([step(subject.model, as_unit_float(some), labels, Categorical()) for some, labels in parts])


def _along(
    subject: Subject, settings: Settings, x: Tensor, y: Tensor, direction: Direction, progress: Progress
) -> AlphaCurve:
    return entropy_against_alpha(
        subject.model,
        x,
        y,
        settings.alphas,
        _likelihood(subject),
        direction=direction,
        batch_size=BATCH,
        generator=_generator(subject, settings),
        progress=lambda done, total: progress(f"entropy along {direction} steps", done, total),
    )


def _histogram(subject: Subject, inside: Tensor, outside: Tensor) -> dict[str, list[float]]:
    """Shares of known and of foreign examples in bins of entropy; the bins of K classes are the same for every run."""
    every = torch.cat([inside, outside])
    low, high = torch.stack([every.min(), every.max()]).tolist()
    if subject.problem.classes:
        low, high = 0.0, math.log(subject.problem.classes)
    edges = torch.linspace(low, max(high, low + 1e-9), BINS + 1, dtype=torch.float64)
    place = edges[1:-1].to(every.device)
    known, foreign_ = (
        torch.bincount(torch.bucketize(one, place), minlength=BINS).double() / len(one) for one in (inside, outside)
    )
    return {"edges": edges.tolist(), "known": known.tolist(), "foreign": foreign_.tolist()}
