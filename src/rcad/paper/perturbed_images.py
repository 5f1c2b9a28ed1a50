"""F1's images: test images a growing distance up the loss of an ERM model, and how unsure the model is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rcad.errors import MissingExtraError
from rcad.evaluate.saved_run.loading import RunLoader, SavedRun
from rcad.loss.growth import as_unit_float
from rcad.loss.likelihoods import Categorical
from rcad.loss.perturbations import GradientStep, RandomStep
from rcad.paper.grid import Plan
from rcad.paper.suite_page import ENTROPY
from rcad.runs.files import replacing
from rcad.runs.plain import config_id

ALPHAS = (0.0, 0.05, 0.5, 1.0, 2.0, 5.0)
"""Distances at which images are shown."""
SHOWN, AVERAGED = 4, 200
"""Images that are shown, and those over which entropies are averaged."""
SCALE = 3
"""Pixels of the picture for one of an image, where images are small."""
ROW = "DA"


def perturbed(planned: Plan, shelf: RunLoader) -> dict[str, Any]:
    """What F1 adds to its record: images of the first seed, and curves of the mean entropy over all seeds."""
    done = [one for one in planned.runs if one.row == ROW and shelf.store.status(one.config) == "done"]
    subjects = [shelf.load(config_id(one.config)) for one in done]
    if not subjects:
        return {}
    found = [_entropies(subject) for subject in subjects]
    series = [
        {
            "name": f"entropy along {words}, ERM, nats",
            "panel": ENTROPY,
            "over": None,
            "x": list(ALPHAS),
            "y": [[one[kind][index] for one in found] for index in range(len(ALPHAS))],
            "published": [None] * len(ALPHAS),
        }
        for kind, words in (("adversarial", "the adversarial direction"), ("random", "a random direction"))
    ]
    return {"series": series, "images": _images(subjects[0])}


def draw(images: dict[str, Any], path: Path) -> None:
    """The images as a sheet: a row for each, alpha grows to the right."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("Pillow", "data") from None
    pixels = torch.tensor(images["pixels"], dtype=torch.uint8)  # (images, alphas, C, H, W)
    sheet = pixels.permute(2, 0, 3, 1, 4).flatten(3, 4).flatten(1, 2)
    sheet = sheet.expand(3, -1, -1) if len(sheet) == 1 else sheet
    height, width = sheet.shape[1:]
    picture = Image.fromarray(sheet.permute(1, 2, 0).contiguous().numpy())
    with replacing(path) as temporary, temporary.open("wb") as file:
        picture.resize((width * SCALE, height * SCALE), Image.Resampling.NEAREST).save(file, format="PNG")


def _entropies(subject: SavedRun) -> dict[str, list[float]]:
    """Mean entropy at each distance, along the loss and along noise."""
    x, y = (part[:AVERAGED] for part in subject.problem.test)
    start = as_unit_float(x)
    generator = torch.Generator(start.device).manual_seed(0)
    found: dict[str, list[float]] = {"adversarial": [], "random": []}
    for alpha in ALPHAS:
        moved = {
            "adversarial": GradientStep(alpha)(subject.model, start, y),
            "random": RandomStep(alpha)(subject.model, start, y, generator=generator),
        }
        for kind, there in moved.items():
            found[kind].append(float(_entropy(subject, there).mean()))
    return found


def _images(subject: SavedRun) -> dict[str, Any]:
    x, y = (part[:SHOWN] for part in subject.problem.test)
    start = as_unit_float(x)
    moved = [GradientStep(alpha)(subject.model, start, y) for alpha in ALPHAS]
    sheets = torch.stack([(there.clamp(0, 1) * 255).round() for there in moved], 1).to(torch.uint8)
    entropies = torch.stack([_entropy(subject, there) for there in moved], 1)
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
