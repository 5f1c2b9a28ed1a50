"""F1's images: test images a growing distance up the loss of an ERM model, and how unsure the model is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rcad.errors import InputError
from rcad.evaluate.saved_run.loading import RunLoader, SavedRun
from rcad.loss.growth import as_unit_float
from rcad.loss.likelihoods import Categorical
from rcad.loss.perturbations import GradientStep, RandomStep
from rcad.paper.record import Series, Study
from rcad.paper.suite import Plan
from rcad.runs.plain import config_id

ALPHAS = (0.0, 0.05, 0.5, 1.0, 2.0, 5.0)
SHOWN, AVERAGED = 4, 200
"""Images that are shown, and those over which entropies are averaged."""


def with_images(study: Study, planned: Plan, shelf: RunLoader) -> tuple[Study, str]:
    """F1's record with the images of the first seed and curves of the mean entropy over all seeds; or why not."""
    done = [run for run in planned.runs if run.row == "DA" and shelf.store.status(run.config) == "done"]
    try:
        subjects = [shelf.load(config_id(run.config)) for run in done]
    except InputError as error:
        return study, f"no images: {error}"
    if not subjects:
        return study, "no images: every ERM run diverged"
    by_seed = [_entropies(subject) for subject in subjects]
    series = []
    for direction in by_seed[0]:
        y = [*zip(*(entropies[direction] for entropies in by_seed), strict=True)]
        series.append(Series(f"entropy along {direction}, ERM, nats", ALPHAS, y, [None] * len(ALPHAS), "entropy"))
    details = {**study.details, "images": _images(subjects[0])}
    return replace(study, series=[*study.series, *series], details=details), ""


def _entropies(subject: SavedRun) -> dict[str, list[float]]:
    """Mean entropy at each distance, by direction: along the loss and along noise."""
    x, y = (part[:AVERAGED] for part in subject.problem.test)
    start = as_unit_float(x)
    generator = torch.Generator(start.device).manual_seed(0)
    ends = {
        "the adversarial direction": [GradientStep(alpha)(subject.model, start, y) for alpha in ALPHAS],
        "a random direction": [RandomStep(a)(subject.model, start, y, generator=generator) for a in ALPHAS],
    }
    return {name: [float(_entropy(subject, x).mean()) for x in moved] for name, moved in ends.items()}


def _images(subject: SavedRun) -> dict[str, Any]:
    x, y = (part[:SHOWN] for part in subject.problem.test)
    start = as_unit_float(x)
    moved = [GradientStep(alpha)(subject.model, start, y) for alpha in ALPHAS]
    sheets = torch.stack([(image.clamp(0, 1) * 255).round() for image in moved], 1).to(torch.uint8)
    entropies = torch.stack([_entropy(subject, image) for image in moved], 1)
    return {
        "run": subject.record.id,
        "alphas": list(ALPHAS),
        "labels": [subject.problem.preprocessing["classes"][label] for label in y.tolist()],
        "entropy": entropies.tolist(),
        "pixels": sheets.tolist(),
    }


@torch.no_grad()
def _entropy(subject: SavedRun, x: Tensor) -> Tensor:
    return Categorical().entropy(subject.outputs(x))
