"""The paper's figure on the linear problem: ERM, then RCAD from where ERM ended, for many training sets at once."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from rcad.errors import finite, one_of, whole
from rcad.paper.theory.bands import Band
from rcad.paper.theory.linear import Problem, Sample, norms, random_directions, training_accuracy
from rcad.paper.theory.projected import (
    ERM_LR,
    RCAD_LR,
    Projection,
    Reading,
    Step,
    erm_step,
    final,
    rcad_step,
    trajectory,
)

SMALL, LARGE = 0.01, 0.7  # the two step sizes of the paper's figure


@dataclass(frozen=True)
class Settings:
    """What a study depends on. alphas: the steps tried; steps: iterations of ERM, and again of RCAD."""

    problem: Problem = field(default_factory=Problem)
    draws: int = 200
    seed: int = 0
    steps: int = 100
    alphas: tuple[float, ...] = (SMALL, LARGE)
    erm_lr: float = ERM_LR
    rcad_lr: float = RCAD_LR
    projection: Projection = "sphere"
    reading: Reading = "constant"

    def __post_init__(self) -> None:
        whole("draws", self.draws, minimum=2)
        whole("steps", self.steps, minimum=1)
        for name, value in (("erm_lr", self.erm_lr), ("rcad_lr", self.rcad_lr)):
            finite(name, value, above=0)
        for alpha in self.alphas:
            finite("alpha", alpha, minimum=0)
        one_of("projection", self.projection, ("sphere", "ball"))
        one_of("reading", self.reading, ("constant", "through"))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Study:
    """The iterates. erm: (steps + 1, draws, d + 1); rcad, from ERM's end: (steps + 1, alphas, draws, d + 1)."""

    settings: Settings
    sample: Sample
    erm: Tensor
    rcad: Tensor

    def path(self, alpha: float) -> Tensor:
        """RCAD's iterates for one of the alphas: (steps + 1, draws, d + 1)."""
        return self.rcad[:, self.settings.alphas.index(alpha)]

    def accuracy(self, w: Tensor) -> Tensor:
        """Exact test accuracy: (..., d + 1) -> (...)."""
        return self.settings.problem.accuracy(w)

    def bands(self, w: Tensor) -> dict[str, Band]:
        """Quantiles over draws by iteration of what the figure shows. w: (iterations, draws, d + 1)."""
        true, noise = norms(w)
        values = {"w1": true, "w2": noise, "test": self.accuracy(w), "train": training_accuracy(self.sample, w)}
        return {name: Band.over_draws(value) for name, value in values.items()}

    def to_dict(self) -> dict[str, Any]:
        """Settings and bands; the iterates are a function of the settings and are not kept."""
        curves = {"erm": self.erm, **{f"rcad alpha={a:g}": self.path(a) for a in self.settings.alphas}}
        bands = {name: {k: b.to_dict() for k, b in self.bands(w).items()} for name, w in curves.items()}
        return {"settings": self.settings.to_dict(), "by_iteration": bands}


def start(settings: Settings, dtype: torch.dtype = torch.float64) -> tuple[Sample, Tensor]:
    """Training sets and ERM's starting points, from the seed alone. w: (draws, d + 1)."""
    generator = torch.Generator().manual_seed(settings.seed)
    sample = settings.problem.sample(settings.draws, generator, dtype)
    return sample, random_directions(settings.draws, settings.problem.d + 1, generator).to(dtype)


def run_study(settings: Settings, dtype: torch.dtype = torch.float64) -> Study:
    """ERM for `steps` iterations, then RCAD for as many from there, for every alpha and draw together."""
    sample, w = start(settings, dtype)
    gamma = settings.problem.gamma
    erm = trajectory(erm_step(sample, gamma, lr=settings.erm_lr, projection=settings.projection), w, settings.steps)
    step = _rcad_step(settings, sample)
    return Study(settings, sample, erm, trajectory(step, erm[-1].expand(len(settings.alphas), -1, -1), settings.steps))


def run_finals(settings: Settings, *, rcad_steps: int | None = None) -> tuple[Tensor, Tensor]:
    """The last iterates alone, for large sweeps. ERM: (draws, d + 1); RCAD: (alphas, draws, d + 1).

    rcad_steps: iterations of RCAD where they are not to be as many as ERM's.
    """
    sample, w = start(settings)
    gamma = settings.problem.gamma
    erm = final(erm_step(sample, gamma, lr=settings.erm_lr, projection=settings.projection), w, settings.steps)
    step = _rcad_step(settings, sample)
    return erm, final(step, erm.expand(len(settings.alphas), -1, -1), rcad_steps or settings.steps)


def _rcad_step(settings: Settings, sample: Sample) -> Step:
    alphas = torch.tensor(settings.alphas, dtype=sample.x.dtype)[:, None]
    return rcad_step(
        sample,
        settings.problem.gamma,
        alphas,
        lr=settings.rcad_lr,
        projection=settings.projection,
        reading=settings.reading,
    )
