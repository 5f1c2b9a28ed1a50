"""Several runs in one batch draw what each would draw alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rcad.loss.augmentations import Alternating, Augmentation, Cutmix, Cutout, Flip, Mixup, PadCrop, alternating, drawn
from rcad.loss.perturbations import GradientStep, Perturbation, ProjectedAscent, RandomStep

RUNS, EACH = 3, 5


def generators() -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in range(RUNS)]


def images() -> Tensor:
    return torch.rand(EACH * RUNS, 3, 8, 8, generator=torch.Generator().manual_seed(9))


def test_examples_alternate() -> None:
    parts = [torch.arange(2) + 10 * run for run in range(RUNS)]
    assert alternating(parts).tolist() == [0, 10, 20, 1, 11, 21]


def test_each_draws_from_its_own() -> None:
    both = drawn(torch.rand, EACH * RUNS, Alternating(generators()))
    for run, generator in enumerate(generators()):
        assert torch.equal(both[run::RUNS], torch.rand(EACH, generator=generator))
    (first, *_) = generators()
    assert torch.equal(drawn(torch.rand, EACH, first), torch.rand(EACH, generator=generators()[0]))


@pytest.mark.parametrize(
    "step", [PadCrop(), Flip(), Cutout(3), Mixup(), Cutmix(p=0.5)], ids=lambda step: type(step).__name__
)
def test_augmentations(step: Augmentation) -> None:
    x, y = images(), torch.arange(EACH * RUNS) % 7
    together = step(x, y, classes=7, generator=Alternating(generators()))
    for run, generator in enumerate(generators()):
        alone = step(x[run::RUNS], y[run::RUNS], classes=7, generator=generator)
        for one, other in zip(together, alone, strict=True):
            assert torch.equal(one[run::RUNS], other)


@pytest.mark.parametrize(
    "move",
    [RandomStep(0.5), GradientStep(0.5, jitter=0.01), ProjectedAscent(0.5, steps=2, random_start=True)],
    ids=lambda move: type(move).__name__,
)
def test_perturbations(move: Perturbation) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 7))
    x, y = images(), torch.arange(EACH * RUNS) % 7
    together = move(model, x, y, generator=Alternating(generators()))
    for run, generator in enumerate(generators()):
        torch.testing.assert_close(together[run::RUNS], move(model, x[run::RUNS], y[run::RUNS], generator=generator))
