"""F1's images: test images a growing distance up the loss of an ERM model, and how unsure the model is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from rcad.errors import InputError
from rcad.evaluate.attack_search import seeded
from rcad.evaluate.ood import Direction, entropy_against_alpha
from rcad.evaluate.saved_run.loading import RunLoader, SavedRun
from rcad.loss.growth import as_unit_float
from rcad.loss.likelihoods import Categorical
from rcad.loss.perturbations import GradientStep
from rcad.paper.record import Series, Study
from rcad.paper.suite import Plan
from rcad.runs.plain import config_id

DIRECTIONS: Mapping[Direction, str] = {"adversarial": "the adversarial direction", "random": "a random direction"}
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
    series = []
    for direction, words in DIRECTIONS.items():
        y = [*zip(*(_entropy_by_alpha(subject, direction) for subject in subjects), strict=True)]
        series.append(Series(f"entropy along {words}, ERM, nats", ALPHAS, y, [None] * len(ALPHAS), "entropy"))
    details = {**study.details, "images": _images(subjects[0])}
    return replace(study, series=[*study.series, *series], details=details), ""


def _entropy_by_alpha(subject: SavedRun, direction: Direction) -> tuple[float, ...]:
    """The mean over test images at each distance."""
    x, y = (part[:AVERAGED] for part in subject.problem.test)
    generator = seeded(subject.problem.device)
    return entropy_against_alpha(subject.model, x, y, ALPHAS, direction=direction, generator=generator).entropy


def _images(subject: SavedRun) -> dict[str, Any]:
    x, y = (part[:SHOWN] for part in subject.problem.test)
    start = as_unit_float(x)
    moved = [GradientStep(alpha)(subject.model, start, y) for alpha in ALPHAS]
    sheets = torch.stack([(image.clamp(0, 1) * 255).round() for image in moved], 1).to(torch.uint8)
    entropies = torch.stack([Categorical().entropy(subject.outputs(image)) for image in moved], 1)
    return {
        "run": subject.record.id,
        "alphas": list(ALPHAS),
        "labels": [subject.problem.preprocessing["classes"][label] for label in y.tolist()],
        "entropy": entropies.tolist(),
        "pixels": sheets.tolist(),
    }
