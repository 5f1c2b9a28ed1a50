"""The paper's figure on the linear problem: ERM, then RCAD from where ERM ended, for many training sets at once.

Then how RCAD's gain depends on n, d, alpha and beta, and the window of alpha in which there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Any, get_args

import torch
from torch import Tensor

from rcad.paper.theory.problem import (
    ERM_LR,
    RCAD_LR,
    Band,
    Problem,
    Projection,
    Reading,
    Row,
    Sample,
    Setting,
    Step,
    attraction,
    band,
    erm_step,
    final,
    norms,
    random_directions,
    rcad_step,
    training_accuracy,
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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Trajectories:
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

    def bands(self) -> dict[str, dict[str, Band]]:
        """By curve: what the figure shows over draws, iteration by iteration."""
        curves = {"erm": self.erm, **{f"rcad alpha={a:g}": self.path(a) for a in self.settings.alphas}}
        values = {name: (*norms(w), self.accuracy(w), training_accuracy(self.sample, w)) for name, w in curves.items()}
        parts = ("w1", "w2", "test", "train")
        return {name: dict(zip(parts, map(band, of_curve), strict=True)) for name, of_curve in values.items()}


def start(settings: Settings) -> tuple[Sample, Tensor]:
    """Training sets and ERM's starting points, from the seed alone. w: (draws, d + 1)."""
    generator = torch.Generator().manual_seed(settings.seed)
    sample = settings.problem.sample(settings.draws, generator)
    return sample, random_directions(settings.draws, settings.problem.d + 1, generator)


def _steps(settings: Settings, sample: Sample) -> tuple[Step, Step]:
    """An iteration of ERM, and one of RCAD for all alphas together."""
    gamma, projection = settings.problem.gamma, settings.projection
    alphas = torch.tensor(settings.alphas, dtype=sample.x.dtype)[:, None]
    erm = erm_step(sample, gamma, lr=settings.erm_lr, projection=projection)
    rcad = rcad_step(sample, gamma, alphas, lr=settings.rcad_lr, projection=projection, reading=settings.reading)
    return erm, rcad


def run_trajectories(settings: Settings) -> Trajectories:
    """ERM for `steps` iterations, then RCAD for as many from there, for every alpha and draw together."""
    sample, w = start(settings)
    descend, ascend = _steps(settings, sample)
    erm = trajectory(descend, w, settings.steps)
    begun = erm[-1].expand(len(settings.alphas), -1, -1)
    return Trajectories(settings, sample, erm, trajectory(ascend, begun, settings.steps))


def run_finals(settings: Settings, *, rcad_steps: int | None = None) -> tuple[Tensor, Tensor]:
    """The last iterates alone. ERM: (draws, d + 1); RCAD, after so many steps of its own: (alphas, draws, d + 1)."""
    sample, w = start(settings)
    descend, ascend = _steps(settings, sample)
    erm = final(descend, w, settings.steps)
    return erm, final(ascend, erm.expand(len(settings.alphas), -1, -1), rcad_steps or settings.steps)


NS = (10, 20, 50, 100, 200, 500)
DS = (1, 2, 4, 8, 16, 32, 64)
BETAS = (0.1, 0.25, 0.5, 1.0, 2.0)
ALPHAS = (0.01, 0.05, *(round(0.1 * k, 1) for k in range(1, 16)), 1.75, 2.0, 2.5, 3.0, 4.0)
# Relative to beta, so that one grid serves every beta.
MULTIPLES = (0.02, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)
RCAD_LRS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
HELPFUL = 0.95  # share of draws in which RCAD must beat ERM for an alpha to count as inside the window


def sweep(over: str, values: Sequence[float], base: Settings) -> Row:
    """Vary alpha, or n, d or beta of the problem at the first of base's alphas; every band has one entry per value.

    better: share of draws in which RCAD's test accuracy exceeds ERM's.
    """
    if over == "alpha":
        first, ends = run_finals(replace(base, alphas=tuple(values)))
        weights = [(base.problem, first, end) for end in ends]
    else:
        problems = [replace(base.problem, **{over: value}) for value in values]  # type: ignore[arg-type]
        finals = [(problem, run_finals(replace(base, problem=problem))) for problem in problems]
        weights = [(problem, first, ends[0]) for problem, (first, ends) in finals]
    erm, rcad = (torch.stack([problem.accuracy(pair[k]) for problem, *pair in weights]) for k in (0, 1))
    noise = [torch.stack([norms(pair[k])[1] for _, *pair in weights]) for k in (0, 1)]
    return {
        "over": over,
        "base": asdict(base),
        "values": [float(v) for v in values],
        "erm_accuracy": band(erm),
        "rcad_accuracy": band(rcad),
        "erm_noise": band(noise[0]),
        "rcad_noise": band(noise[1]),
        "better": [round(share, 5) for share in (rcad > erm).double().mean(-1).tolist()],
    }


def window(beta: float, base: Settings) -> Row:
    """The window of alpha for one class separation, on a grid relative to beta.

    helpful: grid points where RCAD beats ERM in at least 95% of draws. best_alpha: the highest mean accuracy, `best`.
    attracting: the alphas for which w* attracts at n = infinity (None where it never does).
    """
    problem = replace(base.problem, beta=beta)
    alphas = tuple(round(beta * m, 6) for m in MULTIPLES)
    by_alpha = sweep("alpha", alphas, replace(base, problem=problem))
    means = by_alpha["rcad_accuracy"]["mean"]
    best = means.index(max(means))
    return {
        "beta": beta,
        "helpful": [a for a, share in zip(alphas, by_alpha["better"], strict=True) if share >= HELPFUL],
        "best_alpha": alphas[best],
        "erm": by_alpha["erm_accuracy"]["mean"][0],
        "best": means[best],
        "attracting": attracting_alphas(problem),
    }


def attracting_alphas(problem: Problem, points: int = 8000) -> tuple[float, float] | None:
    """Ends of the interval of alpha around the strongest attraction in which w* attracts the exact ascent."""
    alphas = torch.linspace(0, 8 * problem.beta, points + 1, dtype=torch.float64)[1:]
    pull = attraction(Setting.of(problem, alphas))
    peak = int(pull.argmax())
    if pull[peak] <= 0:
        return None
    repelled = (pull <= 0).nonzero().flatten()
    below, above = repelled[repelled < peak], repelled[repelled > peak]
    low = alphas[below[-1]] if len(below) else alphas[0]
    high = alphas[above[0]] if len(above) else alphas[-1]
    return round(low.item(), 4), round(high.item(), 4)


def _row(names: str, *values: Any, digits: int = 5) -> Row:
    """Values by name, numbers rounded."""
    plain = [round(float(v), digits) if isinstance(v, float | Tensor) else v for v in values]
    return dict(zip(names.split(), plain, strict=True))


def _ends(settings: Settings, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """By alpha, means over draws after so many iterations of RCAD: ||w||, accuracy, and share better than ERM."""
    erm, rcad = run_finals(settings, rcad_steps=steps)
    accuracy = settings.problem.accuracy(rcad)
    better = (accuracy > settings.problem.accuracy(erm)).double()
    return rcad.norm(dim=-1).mean(-1), accuracy.mean(-1), better.mean(-1)


def variants(base: Settings, alphas: tuple[float, ...], steps: Sequence[int]) -> list[Row]:
    """Both projections and both readings of x~, means over draws; steps: iterations of RCAD after base's ERM."""
    rows = []
    for projection, reading, count in product(get_args(Projection), get_args(Reading), steps):
        settings = replace(base, alphas=alphas, projection=projection, reading=reading)
        for numbers in zip(alphas, *_ends(settings, count), strict=True):
            words = "projection reading steps alpha norm accuracy better"
            rows.append(_row(words, projection, reading, count, *numbers))
    return rows


def reading_gap(base: Settings, alpha: float) -> Row:
    """How far the two readings of x~ end apart on the sphere: test accuracy, and distance of the unit vectors w."""
    constant, through = (
        run_finals(replace(base, alphas=(alpha,), projection="sphere", reading=reading))[1][0]
        for reading in get_args(Reading)
    )
    accuracy = (base.problem.accuracy(constant) - base.problem.accuracy(through)).abs()
    distance = (constant - through).norm(dim=-1)
    numbers = (alpha, accuracy.mean(), accuracy.max(), distance.mean(), distance.max())
    return _row("alpha mean_accuracy_gap max_accuracy_gap mean_distance max_distance", *numbers, digits=6)


def together(base: Settings, alpha: float) -> Row:
    """What the figure's one draw shows, in how many draws, and all of it at once; erm and rcad are mean accuracies.

    right: RCAD at `alpha` reaches 99%. capped: ERM is at most 70%. poorer: alpha = 0.01 is below ERM.
    """
    erm, rcad = run_finals(replace(base, alphas=(SMALL, alpha)))
    before, (small, large) = base.problem.accuracy(erm), base.problem.accuracy(rcad)
    holds = torch.stack([large >= 0.99, before <= 0.70, small < before])
    numbers = (before.mean(), large.mean(), *holds.double().mean(-1), holds.all(0).double().mean())
    return _row("n d alpha erm rcad right capped poorer together", base.problem.n, base.problem.d, alpha, *numbers)


def step_sizes(base: Settings, lrs: Sequence[float], steps: Sequence[int]) -> list[Row]:
    """What RCAD's learning rate decides at the small and the large alpha: accuracies and shares better than ERM."""
    rows = []
    for lr, count in product(lrs, steps):
        _, *means = _ends(replace(base, alphas=(SMALL, LARGE), rcad_lr=lr), count)
        numbers = torch.stack(means, 1).flatten()
        rows.append(_row("lr steps small small_better large large_better", lr, count, *numbers))
    return rows
