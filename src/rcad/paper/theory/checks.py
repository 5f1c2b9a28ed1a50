"""The paper's lemmas as numbers: each function computes both sides of a statement and says how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rcad.paper.theory.linear import Problem, random_directions
from rcad.paper.theory.population import Gradient, Setting, paper_closed_form, population_gradient, population_surrogate
from rcad.paper.theory.projected import surrogate


@dataclass(frozen=True)
class EntropyCheck:
    """Entropy of a Bernoulli with logit z against exp(-|z|).

    decay: -d log H / dz at z = 30 (1 is that of exp(-z)). ratio_at_0, ratio_at_30: H / exp(-|z|), exactly log 2 and
    about 31. bracketed: log 2 <= H exp(|z|) <= 1 + |z| everywhere on the grid.
    """

    decay: float
    ratio_at_0: float
    ratio_at_30: float
    bracketed: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def entropy_ratio(z: Tensor) -> Tensor:
    """H(sigmoid(z)) / exp(-|z|), without the cancellation of computing either first. (...) -> (...).

    H = log(1 + q) + z q / (1 + q) with q = exp(-|z|), so the ratio tends to 1 + |z|: the tails agree in their
    exponential rate and not in size.
    """
    z = z.abs()
    q = (-z).exp()
    return torch.log1p(q) / q + z / (1 + q)


def entropy_check() -> EntropyCheck:
    """Lemma "entropy approximation" on |z| <= 30."""
    z = torch.linspace(-30, 30, 6001, dtype=torch.float64)
    ratio = entropy_ratio(z)
    bracketed = bool(((ratio >= math.log(2) - 1e-12) & (ratio <= 1 + z.abs() + 1e-12)).all())
    step = 1e-3
    ends = entropy_ratio(torch.tensor([30 - step, 30 + step], dtype=torch.float64)).log()
    decay = 1 - (ends[1] - ends[0]).item() / (2 * step)
    return EntropyCheck(decay, ratio[3000].item(), ratio[-1].item(), bracketed)


def _integrate(setting: Setting, w: Tensor, integrand: Callable[[Tensor, Tensor], Tensor], nodes: int = 120) -> Tensor:
    """Sum over nodes of integrand(m, mass): Gauss-Legendre between the kinks, where everything is smooth.

    integrand gets the margins and their probability mass, both (..., nodes), and returns (..., nodes) or, for a vector,
    (..., features, nodes); the result lacks the last dimension.
    """
    points, weights = (torch.from_numpy(v) for v in np.polynomial.legendre.leggauss(nodes))
    mean, deviation = setting.spread(w)
    # exp(+-m) moves the Gaussian's bulk by up to deviation^2.
    reach = 12 * deviation + deviation.square()
    a = setting.alpha * w.square().sum(-1)
    kinks = torch.stack([mean - reach, torch.minimum(a, setting.gamma), setting.gamma.expand_as(a), mean + reach], -1)
    kinks = torch.minimum(torch.maximum(kinks, kinks[..., :1]), kinks[..., -1:])
    total = torch.zeros(())
    for low, high in ((0, 1), (1, 2), (2, 3)):
        half = 0.5 * (kinks[..., high] - kinks[..., low])[..., None]
        m = half * (points + 1) + kinks[..., low, None]
        z = (m - mean[..., None]) / deviation[..., None]
        density = (-0.5 * z.square()).exp() / (math.sqrt(2 * math.pi) * deviation[..., None])
        total = total + (integrand(m, density * half * weights)).sum(-1)
    return total


def surrogate_by_quadrature(setting: Setting, w: Tensor) -> Tensor:
    """M(w) by numerical integration over the margin: (..., features) -> (...)."""
    return _integrate(setting, w, lambda m, mass: (-_argument(setting, w, m).abs()).exp() * mass)


def gradient_by_quadrature(setting: Setting, w: Tensor, kind: Gradient) -> Tensor:
    """The mean sample gradient ("through", "constant") by integration over the margin: (..., features)."""
    mean, deviation = setting.spread(w)
    times = 1 if kind == "constant" else 2

    def terms(m: Tensor, mass: Tensor) -> Tensor:
        u = _argument(setting, w, m)
        slope = -u.sign() * (-u.abs()).exp() * mass
        expected = (
            setting.variances[..., None]
            * w[..., None]
            * ((m - mean[..., None]) / deviation[..., None] ** 2)[..., None, :]
        )
        first = torch.nn.functional.one_hot(torch.tensor(0), w.shape[-1]).to(w.dtype)
        expected = expected + setting.beta[..., None, None] * first[:, None]
        moved = (m < setting.gamma[..., None]).to(w.dtype) * setting.alpha[..., None]
        return slope[..., None, :] * (expected - times * moved[..., None, :] * w[..., None])

    return _integrate(setting, w, terms)


def _argument(setting: Setting, w: Tensor, m: Tensor) -> Tensor:
    """y<w, x~> as a function of the margin m: (..., nodes)."""
    a = setting.alpha * w.square().sum(-1)
    return m - torch.where(m < setting.gamma[..., None], a[..., None], 0.0)


@dataclass(frozen=True)
class ClosedFormCheck:
    """Largest relative errors against quadrature over random settings: ours everywhere, the paper's on its domain."""

    settings: int
    ours: float
    gradient: float
    paper_inside: float
    paper_outside: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def closed_form_check(generator: torch.Generator, count: int = 500) -> ClosedFormCheck:
    """Random settings with four features on the unit sphere; "inside" means alpha >= gamma, as the paper requires."""

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=generator, dtype=torch.float64)

    setting = Setting(
        uniform(0.01, 3, count), uniform(0.05, 3, count), uniform(0.05, 3, count), uniform(0.1, 1.5, count, 4)
    )
    w = random_directions(count, 4, generator)
    exact = surrogate_by_quadrature(setting, w)
    paper = (paper_closed_form(setting, w) / exact - 1).abs()
    inside = setting.alpha >= setting.gamma
    gap = population_gradient(setting, w, "constant") - gradient_by_quadrature(setting, w, "constant")
    return ClosedFormCheck(
        count,
        (population_surrogate(setting, w) / exact - 1).abs().max().item(),
        gap.abs().max().item(),
        paper[inside].max().item(),
        paper[~inside].max().item(),
    )


@dataclass(frozen=True)
class SampleGradientCheck:
    """Autograd on a large sample against the exact gradients, along w1 and along w2 (inner products, as in the lemma).

    sample: by autograd; mean: the exact mean of the examples' gradients; derivative: of M, exact.
    errors_from_*: sample minus exact, in standard errors of the sample.
    """

    n: int
    alpha: float
    gamma: float
    sample: tuple[float, float]
    mean: tuple[float, float]
    derivative: tuple[float, float]
    errors_from_mean: tuple[float, float]
    errors_from_derivative: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def sample_gradient_check(
    problem: Problem, alpha: float, generator: torch.Generator, *, n: int = 400_000, batches: int = 100
) -> SampleGradientCheck:
    """Autograd of the sample objective with x~ moving with w, at one w with w1 = 0.7, in `batches` parts for its error.

    The paper's finite-sample step replaces the derivative of M by the sample gradient; this measures the difference.
    """
    big = Problem(n // batches, problem.d, problem.beta, problem.sigma1, problem.sigma2, problem.gamma)
    sample = big.sample(batches, generator)
    w = random_directions(1, problem.d + 1, generator)[0]
    w[1:] *= math.sqrt(1 - 0.49) / w[1:].norm()
    w[0] = 0.7
    copies = w.expand(batches, -1).clone().requires_grad_()
    (gradient,) = torch.autograd.grad(surrogate(sample, copies, alpha, problem.gamma, "through").sum(), copies)
    parts = _inner(gradient, w)
    setting = Setting.of(problem, torch.tensor(alpha, dtype=torch.float64))
    mean, derivative = (_inner(population_gradient(setting, w, k), w) for k in ("through", "derivative"))
    error = parts.std(0) / math.sqrt(batches)
    centre = parts.mean(0)
    return SampleGradientCheck(
        n,
        alpha,
        problem.gamma,
        *(_pair(v) for v in (centre, mean, derivative, (centre - mean) / error, (centre - derivative) / error)),
    )


def _inner(gradient: Tensor, w: Tensor) -> Tensor:
    """<grad1, w1> and <grad2, w2>: (..., features) -> (..., 2)."""
    product = gradient * w
    return torch.stack([product[..., 0], product[..., 1:].sum(-1)], -1)


def _pair(values: Tensor) -> tuple[float, float]:
    return values[0].item(), values[1].item()
