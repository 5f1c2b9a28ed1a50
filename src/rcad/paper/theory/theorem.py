"""The theorem: whether a problem meets its conditions, whether its lemma's signs hold there, and the rate.

The paper's conditions hide constants ("up to a constant"). Here every hidden constant is 1 or larger, and drawn at
random in the scan, so that a failure is not that of a badly chosen constant.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from rcad.paper.theory.linear import Problem, norms
from rcad.paper.theory.population import Gradient, Setting, growth_at_best, population_step, pushes
from rcad.paper.theory.projected import final, trajectory


@dataclass(frozen=True)
class Condition:
    """One requirement "left >= right" of the theorem, with its numbers."""

    name: str
    left: float
    right: float

    @property
    def holds(self) -> bool:
        return self.left >= self.right

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "holds": self.holds}


def conditions(
    problem: Problem, alpha: float, *, K: float = 1.0, delta: float = 0.05, eps: float = 0.25
) -> list[Condition]:
    """The theorem's conditions with every hidden constant 1. c0 is left out: some c0 always serves.

    K: how far alpha lies below beta w1 at the start. delta: probability of failure. eps: final ||w2||.
    """
    variances = [problem.sigma1**2, *(s**2 for s in problem.noise_deviations)]
    largest, smallest, trace = max(variances), min(variances), sum(variances)
    tail = math.erfc(K * alpha / math.sqrt(2 * smallest))
    start = (problem.beta**2 + math.log(1 / delta) * largest + trace) / problem.gamma**2
    needed = (start / tail**2 if tail > 1e-150 else math.inf) + math.log(1 / delta) / eps**4
    return [
        Condition("beta >= ||Sigma||", problem.beta, largest),
        Condition("beta >= alpha", problem.beta, alpha),
        Condition("alpha >= gamma", alpha, problem.gamma),
        Condition("alpha >= ||Sigma||", alpha, largest),
        Condition("n >= the theorem's sample size", problem.n, needed),
    ]


def theorem_settings(count: int, generator: torch.Generator) -> tuple[Setting, Tensor]:
    """Random settings with beta >= alpha >= max(gamma, ||Sigma||) and w on the unit sphere, both (count, ...).

    The ratios are log-uniform up to several thousand; w1 is uniform, so that beta w1 / alpha covers many K.
    """

    def log_uniform(low: float, high: float) -> Tensor:
        u = torch.rand(count, generator=generator, dtype=torch.float64)
        return (math.log(low) + u * math.log(high / low)).exp()

    beta = log_uniform(0.05, 20)
    deviations = torch.stack([log_uniform(0.02, 5), log_uniform(0.02, 5)], -1)
    variances = torch.minimum(deviations.square(), beta[:, None])
    largest = variances.amax(-1)
    alpha = largest * (beta / largest) ** torch.rand(count, generator=generator, dtype=torch.float64)
    gamma = alpha * log_uniform(1e-3, 1)
    w1 = 0.02 + 0.979 * torch.rand(count, generator=generator, dtype=torch.float64)
    return Setting(alpha, beta, gamma, variances), torch.stack([w1, (1 - w1.square()).sqrt()], -1)


@dataclass(frozen=True)
class SignScan:
    """Shares of settings with beta w1 >= K alpha in which each statement of the update lemma holds.

    true_grows: <dM/dw1, w1> > 0; true_falls: < 0. noise_shrinks: <grad2 M, w2> < 0; noise_grows: > 0.
    noise_loses: ||w2|| / w1 falls, which is what decides on the sphere. c0: of the condition gamma + c0 sigma_min >=
    beta; None where it is left out, since the text says only that some c0 exists.
    """

    K: float
    kind: str
    settings: int
    true_grows: float
    true_falls: float
    noise_shrinks: float
    noise_grows: float
    noise_loses: float
    c0: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def sign_scan(
    generator: torch.Generator,
    *,
    count: int = 200_000,
    ks: tuple[float, ...] = (1.0, 2.0, 5.0),
    c0: float | None = None,
    kinds: tuple[Gradient, ...] = get_args(Gradient),
) -> list[SignScan]:
    """The update lemma over random settings, for the derivative of M and for the two sample gradients."""
    setting, w = theorem_settings(count, generator)
    scans = []
    for kind in kinds:
        statements = _statements(setting, w, kind)
        for K in ks:
            chosen = _allowed(setting, w, K, c0)
            scan = SignScan(K, kind, int(chosen.sum()), *statements[chosen].mean(0).tolist())
            scans.append(replace(scan, c0=c0))
    return scans


def _allowed(setting: Setting, w: Tensor, K: float, c0: float | None) -> Tensor:
    """Where beta w1 >= K alpha and, unless c0 is left open, gamma + c0 sigma_min >= beta. (settings,)."""
    chosen = setting.beta * w[:, 0] >= K * setting.alpha
    return chosen if c0 is None else chosen & (setting.gamma + c0 * setting.variances.amin(-1) >= setting.beta)


def path_signs(problem: Problem, alpha: float, *, points: int = 100) -> list[SignScan]:
    """The same for one problem, whatever its conditions, at unit vectors with w1 from 0.5 to 0.99 (K = 0)."""
    w1 = torch.linspace(0.5, 0.99, points, dtype=torch.float64)
    noise = ((1 - w1.square()) / problem.d).sqrt()
    w = torch.cat([w1[:, None], noise[:, None].expand(-1, problem.d)], -1)
    setting = Setting.of(problem, torch.full_like(w1, alpha))
    kinds = get_args(Gradient)
    return [SignScan(0.0, kind, points, *_statements(setting, w, kind).mean(0).tolist()) for kind in kinds]


def _statements(setting: Setting, w: Tensor, kind: Gradient) -> Tensor:
    """SignScan's five statements, 1 where one holds: (settings, 5)."""
    first, second = pushes(setting, w, kind)
    # Sums of terms of order 1: below 1e-13 the sign is rounding and counts for neither side.
    signed = (first, -first, -second, second, first - second)
    return torch.stack([push > 1e-13 for push in signed], -1).double()


@dataclass(frozen=True)
class ConclusionScan:
    """Where the theorem's own conditions hold with beta w1 >= K alpha: what exact ascent does to ||w2||."""

    K: float
    settings: int
    reached: float
    noise_fell: float
    noise_rose: float
    c0: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def conclusion_scan(
    generator: torch.Generator,
    *,
    K: float = 2.0,
    c0: float | None = None,
    count: int = 4000,
    eps: float = 0.05,
    lr: float = 0.02,
    steps: int = 2000,
) -> ConclusionScan:
    """Projected ascent on the population objective from a start that the theorem allows. reached: ||w2|| <= eps.

    Settings that start at ||w2|| <= eps are left out.
    """
    setting, w = theorem_settings(count, generator)
    chosen = _allowed(setting, w, K, c0) & (w[:, 1] > eps)
    setting = Setting(setting.alpha[chosen], setting.beta[chosen], setting.gamma[chosen], setting.variances[chosen])
    start = w[chosen]
    end = final(population_step(setting, "derivative", lr), start, steps)
    noise, before = end[:, 1].abs(), start[:, 1]
    return ConclusionScan(
        K,
        len(start),
        ((noise <= eps) & (end[:, 0] > 0)).double().mean().item(),
        (noise < before - 1e-9).double().mean().item(),
        (noise > before + 1e-9).double().mean().item(),
        c0,
    )


@dataclass(frozen=True)
class RateFit:
    """Iterations T until ||w2|| <= eps, fitted by T = slope * log(1 / eps) + c. predicted: slope by the closed form."""

    alpha: float
    lr: float
    eps: tuple[float, ...]
    iterations: tuple[int, ...]
    slope: float
    predicted: float
    r_squared: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def rate_fit(
    problem: Problem, alpha: float, *, lr: float = 0.05, start: float = 0.7, steps: int = 1000
) -> RateFit | None:
    """T = O(log 1/eps) for exact ascent from ||w2|| = start; None where ||w2|| never falls to the smallest eps."""
    setting = Setting.of(problem, alpha)
    w = torch.full((problem.d + 1,), start / math.sqrt(problem.d), dtype=torch.float64)
    w[0] = math.sqrt(1 - start**2)
    noise = norms(trajectory(population_step(setting, "through", lr), w, steps))[1]
    eps = tuple(10.0**-k for k in range(1, 8))
    if noise.min() > eps[-1]:
        return None
    iterations = tuple(int((noise <= e).nonzero()[0].item()) for e in eps)
    x, y = np.log(1 / np.array(eps)), np.array(iterations, dtype=float)
    slope, constant = np.polyfit(x, y, 1)
    residual = y - slope * x - constant
    true, noises = growth_at_best(setting, "through")
    # ||w2|| shrinks by this factor per iteration, once it is small; the slowest feature decides.
    contraction = (1 + lr * noises.max().item()) / (1 + lr * true.item())
    r_squared = 1 - float(residual @ residual) / float(((y - y.mean()) ** 2).sum())
    return RateFit(alpha, lr, eps, iterations, float(slope), -1 / math.log(contraction), r_squared)
