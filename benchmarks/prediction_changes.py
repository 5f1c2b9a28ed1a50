"""Where does a model's prediction change? Two rules for alpha that ask a model trained by ERM, for `measured_alpha.py`.

Along a random line through the example, the nearer of both ways ("random"), and up its loss ("gradient").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from rcad.data.dataset import subset
from rcad.data.registry import load
from rcad.loss.growth import as_unit_float
from rcad.loss.method_rows import parse_method
from rcad.paper.record import OnProgress
from rcad.predict.predictor import load as load_run
from rcad.runs.configure import configure
from rcad.train.place import Place
from rcad.train.scheduler import schedule

DISTANCES = torch.logspace(-7, 10, 8 * 17 + 1, base=2.0)
FARTHEST = float(DISTANCES[-1])


def change_distance(model: Callable[[Tensor], Tensor], x: Tensor, directions: Sequence[Tensor]) -> Tensor:
    """For each example the smallest of DISTANCES, along any of its directions, at which the predicted class is another.

    The largest of them where it is nowhere.
    """
    before = model(x).argmax(1)
    nearest = torch.full((len(x),), FARTHEST)
    for distance in DISTANCES.flip(0):
        for direction in directions:
            nearest[model(x + distance * direction).argmax(1) != before] = distance
    return nearest


def change_distances(model: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> dict[str, float]:
    """Both rules for one model, by name: medians over the examples."""
    moved = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(cross_entropy(model(moved), y, reduction="sum"), moved)
    line, uphill = (
        normalize(one.flatten(1), dim=1).view_as(x) for one in (torch.randn(x.shape, generator=drawn()), gradient)
    )
    with torch.no_grad():
        ways = {"random": (line, -line), "gradient": (uphill,)}
        return {rule: float(change_distance(model, x, directions).median()) for rule, directions in ways.items()}


def image_flips(data_dir: Path | None, on_progress: OnProgress) -> dict[str, list[float]]:
    """The same rules for the small CNN on 500 images of CIFAR-100, trained by ERM as `rcad train` does: by seed.

    A fifth of the images is looked at.
    """
    train = load("cifar100", data_dir=data_dir).train
    found: dict[str, list[float]] = {"random": [], "gradient": []}
    for seed in range(3):
        on_progress(f"images, seed {seed}: where ERM changes its mind", 0, 1)
        settings = ("train.selection=last", "model.name=small_cnn")
        config = configure("cifar100[:500]", parse_method("erm"), recipe="small", seed=seed, settings=settings)
        with TemporaryDirectory() as folder:
            place = Place.of(Path(folder), data_dir=data_dir, device="cpu")
            (record,) = schedule([config], place).records
            model = load_run(place.store.folder(record.id), device="cpu").model.eval()
        rows = subset(train.y, 500, seed=seed)[::5]
        x, y = as_unit_float(torch.from_numpy(train.x[rows])), torch.from_numpy(train.y[rows]).long()
        for rule, distance in change_distances(model, x, y).items():
            found[rule].append(distance)
    return found


def drawn() -> torch.Generator:
    return torch.Generator().manual_seed(0)
