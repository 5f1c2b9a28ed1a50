"""The paper's figure on the linear problem: ERM, then RCAD from where ERM ended, for many training sets at once.

Then how RCAD's gain depends on n, d, alpha and beta, and the window of alpha in which there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_args

import torch
from torch import Tensor

from rcad.errors import finite, one_of, whole
from rcad.paper.theory.population import Setting, attraction
from rcad.paper.theory.problem import (
    ERM_LR,
    RCAD_LR,
    Band,
    Problem,
    Projection,
    Reading,
    Sample,
    Step,
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


def typical_draw(study: Trajectories) -> int:
    """The draw whose gain in test accuracy is the median one: chosen by rule, not by eye."""
    gain = study.accuracy(study.path(LARGE)[-1]) - study.accuracy(study.erm[-1])
    return int(gain.argsort()[len(gain) // 2])


def start(settings: Settings, dtype: torch.dtype = torch.float64) -> tuple[Sample, Tensor]:
    """Training sets and ERM's starting points, from the seed alone. w: (draws, d + 1)."""
    generator = torch.Generator().manual_seed(settings.seed)
    sample = settings.problem.sample(settings.draws, generator, dtype)
    return sample, random_directions(settings.draws, settings.problem.d + 1, generator).to(dtype)


def run_trajectories(settings: Settings, dtype: torch.dtype = torch.float64) -> Trajectories:
    """ERM for `steps` iterations, then RCAD for as many from there, for every alpha and draw together."""
    sample, w = start(settings, dtype)
    gamma = settings.problem.gamma
    erm = trajectory(erm_step(sample, gamma, lr=settings.erm_lr, projection=settings.projection), w, settings.steps)
    step = _rcad_step(settings, sample)
    return Trajectories(
        settings, sample, erm, trajectory(step, erm[-1].expand(len(settings.alphas), -1, -1), settings.steps)
    )


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


NS = (10, 20, 50, 100, 200, 500)
DS = (1, 2, 4, 8, 16, 32, 64)
BETAS = (0.1, 0.25, 0.5, 1.0, 2.0)
ALPHAS = (0.01, 0.05, *(round(0.1 * k, 1) for k in range(1, 16)), 1.75, 2.0, 2.5, 3.0, 4.0)
# Relative to beta, so that one grid serves every beta.
MULTIPLES = (0.02, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)
RCAD_LRS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
HELPFUL = 0.95  # share of draws in which RCAD must beat ERM for an alpha to count as inside the window


@dataclass(frozen=True)
class Sweep:
    """One quantity varied, the rest as in `base`. values: the grid; every Band has one entry per grid point.

    better: share of draws in which RCAD's test accuracy exceeds ERM's.
    """

    over: str
    base: dict[str, Any]
    values: list[float]
    erm_accuracy: Band
    rcad_accuracy: Band
    erm_noise: Band
    rcad_noise: Band
    better: list[float]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Window:
    """For one beta: which alphas help.

    helpful: grid points where RCAD beats ERM in at least 95% of draws. best_alpha: the highest mean accuracy, `best`.
    attracting: the alphas for which w* attracts at n = infinity (None where it never does).
    """

    beta: float
    helpful: list[float]
    best_alpha: float
    erm: float
    best: float
    attracting: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def sweep_problem(over: str, values: Sequence[float], base: Settings) -> Sweep:
    """Vary n, d or beta of the problem, at the first of base's alphas."""
    rows = []
    for value in values:
        changed: dict[str, Any] = {over: value}
        settings = replace(base, problem=replace(base.problem, **changed))
        erm, rcad = run_finals(settings)
        rows.append((settings.problem, erm, rcad[0]))
    return _sweep(over, values, base, rows)


def sweep_alpha(values: Sequence[float], base: Settings) -> Sweep:
    """Vary alpha; the training sets and ERM are the same for all."""
    erm, rcad = run_finals(replace(base, alphas=tuple(values)))
    return _sweep("alpha", values, base, [(base.problem, erm, w) for w in rcad])


def _sweep(over: str, values: Sequence[float], base: Settings, rows: list[tuple[Problem, Tensor, Tensor]]) -> Sweep:
    """rows: problem, ERM's and RCAD's weights (draws, d + 1) at each grid point."""
    erm, rcad = (torch.stack(v) for v in zip(*((p.accuracy(e), p.accuracy(r)) for p, e, r in rows), strict=True))
    erm_noise, rcad_noise = (
        torch.stack(v) for v in zip(*((norms(e)[1], norms(r)[1]) for _, e, r in rows), strict=True)
    )
    better = (rcad > erm).double().mean(-1)
    return Sweep(
        over,
        base.to_dict(),
        [float(v) for v in values],
        Band.over_draws(erm),
        Band.over_draws(rcad),
        Band.over_draws(erm_noise),
        Band.over_draws(rcad_noise),
        [round(share, 5) for share in better.tolist()],
    )


def window(beta: float, base: Settings, multiples: Sequence[float] = MULTIPLES) -> Window:
    """The window of alpha for one class separation, on a grid relative to beta."""
    problem = replace(base.problem, beta=beta)
    alphas = tuple(round(beta * m, 6) for m in multiples)
    sweep = sweep_alpha(alphas, replace(base, problem=problem))
    helpful = [a for a, share in zip(alphas, sweep.better, strict=True) if share >= HELPFUL]
    best = max(range(len(alphas)), key=lambda i: sweep.rcad_accuracy.mean[i])
    return Window(
        beta,
        helpful,
        alphas[best],
        sweep.erm_accuracy.mean[0],
        sweep.rcad_accuracy.mean[best],
        attracting_alphas(problem),
    )


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


@dataclass(frozen=True)
class Variant:
    """One projection and one reading of x~, for one alpha: means over draws after `steps` iterations of RCAD."""

    projection: Projection
    reading: Reading
    steps: int
    alpha: float
    norm: float
    accuracy: float
    better: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def variants(base: Settings, alphas: tuple[float, ...], steps: Sequence[int]) -> list[Variant]:
    """Both projections and both readings; steps: iterations of RCAD, from where base's ERM ended."""
    rows = []
    for projection in get_args(Projection):
        for reading in get_args(Reading):
            settings = replace(base, alphas=alphas, projection=projection, reading=reading)
            for count in steps:
                erm, rcad = run_finals(settings, rcad_steps=count)
                accuracy = base.problem.accuracy(rcad)
                better = (accuracy > base.problem.accuracy(erm)).double()
                columns = (rcad.norm(dim=-1).mean(-1), accuracy.mean(-1), better.mean(-1))
                for alpha, *row in zip(alphas, *(c.tolist() for c in columns), strict=True):
                    rows.append(Variant(projection, reading, count, alpha, *(round(v, 5) for v in row)))
    return rows


@dataclass(frozen=True)
class ReadingGap:
    """How far the two readings of x~ end apart on the sphere: test accuracy, and distance of the unit vectors w."""

    alpha: float
    mean_accuracy_gap: float
    max_accuracy_gap: float
    mean_distance: float
    max_distance: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def reading_gap(base: Settings, alpha: float) -> ReadingGap:
    """Same draws, same iterations; only the length of the steps along the sphere differs between the readings."""
    constant, through = (
        run_finals(replace(base, alphas=(alpha,), projection="sphere", reading=reading))[1][0]
        for reading in get_args(Reading)
    )
    accuracy = (base.problem.accuracy(constant) - base.problem.accuracy(through)).abs()
    distance = (constant - through).norm(dim=-1)
    return ReadingGap(
        alpha, *(round(v.item(), 6) for v in (accuracy.mean(), accuracy.max(), distance.mean(), distance.max()))
    )


@dataclass(frozen=True)
class Together:
    """What the figure shows, in how many draws, and all of it at once: shares of draws; erm and rcad: mean accuracies.

    right: RCAD at `alpha` reaches 99%. capped: ERM is at most 70%. poorer: alpha = 0.01 is below ERM.
    """

    n: int
    d: int
    alpha: float
    erm: float
    rcad: float
    right: float
    capped: float
    poorer: float
    together: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def together(base: Settings, alpha: float) -> Together:
    """Judged by accuracy alone; the paper's one draw shows all three."""
    erm, rcad = run_finals(replace(base, alphas=(SMALL, alpha)))
    before, (small, large) = base.problem.accuracy(erm), base.problem.accuracy(rcad)
    shown = torch.stack([large >= 0.99, before <= 0.70, small < before])
    shares = (*shown.double().mean(-1).tolist(), shown.all(0).double().mean().item())
    numbers = (before.mean().item(), large.mean().item(), *shares)
    return Together(base.problem.n, base.problem.d, alpha, *(round(v, 5) for v in numbers))


@dataclass(frozen=True)
class StepSize:
    """What RCAD's learning rate, which the paper does not give, decides: accuracies and shares better than ERM."""

    lr: float
    steps: int
    small: float
    small_better: float
    large: float
    large_better: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def step_sizes(base: Settings, lrs: Sequence[float], steps: Sequence[int]) -> list[StepSize]:
    """alpha = 0.01 (small) and 0.7 (large) for every learning rate and number of iterations of RCAD."""
    rows = []
    for lr in lrs:
        for count in steps:
            erm, rcad = run_finals(replace(base, alphas=(SMALL, LARGE), rcad_lr=lr), rcad_steps=count)
            accuracy = base.problem.accuracy(rcad)
            better = (accuracy > base.problem.accuracy(erm)).double().mean(-1)
            (a, b), (c, d) = ([round(v, 5) for v in t.tolist()] for t in (accuracy.mean(-1), better))
            rows.append(StepSize(lr, count, a, c, b, d))
    return rows
