"""The paper's linear problem: one true feature, d features of noise, and the exact accuracy of a linear classifier.

    y ~ Unif{-1, 1},   x1 ~ N(beta y, sigma1^2),   x2 ~ N(0, sigma2^2 I) in R^d,   predict sign(<w, x>)

Projected gradient steps on the linear problem, for many training sets (and many alpha) at once.

    ERM:   w <- P(w - lr * grad mean max(0, gamma - y<w, x>))
    RCAD:  w <- P(w + lr * grad M(w)),   M(w) = mean exp(-|<w, x~>|),   x~ = x - alpha y w  if y<w, x> < gamma, else x

The paper defines P as the projection onto the unit ball and then, "for simplicity", renormalises to the sphere in its
proofs; and its x~ depends on w, while its algorithm holds x~ constant. All four combinations are here.

At n = infinity M has a closed form: with m = y<w, x> ~ N(beta w1, s^2), s^2 = w' Sigma w, and a = alpha ||w||^2,

    M(w) = E[exp(-|m - a|); m < gamma] + E[exp(-m); m >= gamma]

falls into three pieces on which the integrand is exp(+-m), so moments of truncated, tilted Gaussians suffice.
Unlike the paper's formula it needs neither alpha >= gamma nor ||w|| = 1. Three gradients must be kept apart:
  "derivative"  of M itself, which the paper's proof studies;
  "through"     the mean of the per-example gradients when x~ moves with w;
  "constant"    the same with x~ held constant, as in the paper's algorithm.
The integrand jumps where m = gamma. Gradients of examples do not see a jump, the derivative of M does: so "through" is
not "derivative", and no sample size makes up the difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rcad.study.statistics import Z95

QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}
Row = dict[str, Any]
"""A line of the record."""
Band = dict[str, list[float]]
"""Quantiles by name, and the mean, over draws: one entry per iteration or grid point."""


def band(values: Tensor) -> Band:
    """values: (points, draws)."""
    rows = np.quantile(values.double().numpy(), list(QUANTILES.values()), axis=-1).tolist()
    rows.append(values.double().mean(-1).tolist())
    return {name: [round(v, 5) for v in row] for name, row in zip((*QUANTILES, "mean"), rows, strict=True)}


class Interval(NamedTuple):
    """An estimate with a 95% interval."""

    value: float
    low: float
    high: float


def mean_interval(values: Tensor) -> Interval:
    """Mean over draws with its normal interval. values: (draws,)."""
    mean = values.double().mean().item()
    half = Z95 * values.double().std().item() / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


class Sample(NamedTuple):
    """Training sets, one per draw. x: (draws, n, d + 1); y: (draws, n) in {-1, 1}."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Problem:
    """The distribution and the size n of a training set; the defaults are those of the paper's figure.

    d: features of noise; the classifier has d + 1 weights, as in the paper's definition; its figure, though, shows x2
    to x8, which would be d = 7. beta: distance of a class mean from 0 along x1. sigma1, sigma2: deviations of x1 about
    it, and of each feature of noise. gamma: margin of the loss max(0, gamma - y<w, x>).
    """

    n: int = 20
    d: int = 8
    beta: float = 0.5
    sigma1: float = 0.1
    sigma2: float = 1.0
    gamma: float = 2.0

    @property
    def variances(self) -> list[float]:
        """Of every feature about its mean, the true one first."""
        return [self.sigma1**2, *[self.sigma2**2] * self.d]

    @property
    def best_accuracy(self) -> float:
        """Accuracy of w* = (1, 0, ..., 0), which no linear classifier exceeds."""
        return 0.5 * math.erfc(-self.beta / self.sigma1 / math.sqrt(2))

    def deviations(self, like: Tensor) -> Tensor:
        """Of each feature about its mean: (d + 1,), in the dtype and on the device of `like`."""
        return like.new_tensor((self.sigma1, *[self.sigma2] * self.d))

    def sample(self, draws: int, generator: torch.Generator) -> Sample:
        """Independent training sets, in float64."""
        y = torch.randint(0, 2, (draws, self.n), generator=generator).double() * 2 - 1
        x = torch.randn(draws, self.n, self.d + 1, generator=generator, dtype=torch.float64)
        x = x * self.deviations(x)
        x[..., 0] += self.beta * y
        return Sample(x, y)

    def accuracy(self, w: Tensor) -> Tensor:
        """Exact test accuracy Phi(beta w1 / sqrt(w' Sigma w)). w: (..., d + 1) -> (...); w = 0 is a coin, 0.5."""
        deviation = (w * self.deviations(w)).norm(dim=-1)
        score = torch.where(deviation > 0, self.beta * w[..., 0] / deviation.clamp_min(torch.finfo(w.dtype).tiny), 0.0)
        accuracy: Tensor = torch.special.ndtr(score)
        return accuracy


def random_directions(draws: int, features: int, generator: torch.Generator) -> Tensor:
    """Starting points for ERM, uniform on the unit sphere: (draws, features), float64."""
    w = torch.randn(draws, features, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(w, dim=-1)


def on_sphere(w1: Tensor, d: int) -> Tensor:
    """Unit vectors with these weights on the true feature, the rest shared evenly by the noise: (..., d + 1)."""
    noise = ((1 - w1.square()) / d).sqrt()
    return torch.cat([w1[..., None], noise[..., None].expand(*noise.shape, d)], -1)


def uniform(generator: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    return low + (high - low) * torch.rand(*shape, generator=generator, dtype=torch.float64)


def margins(sample: Sample, w: Tensor) -> Tensor:
    """y<w, x> of every example. w: (..., draws, d + 1) -> (..., draws, n)."""
    # One matrix product per draw serves all leading dimensions of w.
    flat = w.reshape(-1, *w.shape[-2:]).movedim(0, -1)
    product = (sample.y[..., None] * sample.x) @ flat
    return product.movedim(-1, 0).reshape(*w.shape[:-1], sample.y.shape[-1])


def training_accuracy(sample: Sample, w: Tensor) -> Tensor:
    """Share of the training examples on the right side. w: (..., draws, d + 1) -> (..., draws)."""
    return (margins(sample, w) > 0).to(w.dtype).mean(-1)


def norms(w: Tensor) -> tuple[Tensor, Tensor]:
    """|w1| and ||w2||: what a classifier makes of the true feature and of the noise. (..., d + 1) -> two (...)."""
    return w[..., 0].abs(), w[..., 1:].norm(dim=-1)


Projection = Literal["sphere", "ball"]
Reading = Literal["constant", "through"]
Step = Callable[[Tensor], Tensor]

# The paper names no step sizes. ERM's mean accuracy is the same from 0.05 to 0.5; RCAD's matters for alpha = 0.01.
ERM_LR, RCAD_LR = 0.1, 0.05


def project(w: Tensor, onto: Projection) -> Tensor:
    """w: (..., features) -> the same shape. "sphere": norm 1; "ball": norm at most 1."""
    norm: Tensor = w.norm(dim=-1, keepdim=True)
    return w / norm if onto == "sphere" else w / norm.clamp_min(1)


def surrogate(sample: Sample, w: Tensor, alpha: float | Tensor, gamma: float, reading: Reading = "constant") -> Tensor:
    """M(w), the stand-in for the mean entropy at x~. w: (..., draws, d + 1) -> (..., draws).

    The readings have the same value and differ under autograd. alpha: a number, or broadcastable to (..., draws).
    """
    frozen = w.detach() if reading == "constant" else w
    margin = margins(sample, w)
    inside = (margin.detach() < gamma).to(w.dtype)
    step = torch.as_tensor(alpha, dtype=w.dtype) * (w * frozen).sum(-1)
    return (-(margin - step[..., None] * inside).abs()).exp().mean(-1)


def surrogate_gradient(sample: Sample, w: Tensor, alpha: float | Tensor, gamma: float, reading: Reading) -> Tensor:
    """Gradient of M in w, written out: autograd on `surrogate` gives the same. (..., draws, d + 1).

    The readings differ by a multiple of w alone, so on the sphere they differ only in the length of a step.
    """
    alpha = torch.as_tensor(alpha, dtype=w.dtype)
    margin = margins(sample, w)
    inside = (margin < gamma).to(w.dtype)
    at_step = margin - (alpha * w.square().sum(-1))[..., None] * inside
    slope = -at_step.sign() * (-at_step.abs()).exp()
    radial = alpha * (slope * inside).mean(-1)
    return _weighted_mean(sample, slope) - (1 if reading == "constant" else 2) * radial[..., None] * w


def _weighted_mean(sample: Sample, weight: Tensor) -> Tensor:
    """Mean over examples of weight * y x. weight: (..., draws, n) -> (..., draws, d + 1)."""
    flat = weight.reshape(-1, *weight.shape[-2:]).movedim(0, -2)
    total = flat @ (sample.y[..., None] * sample.x)
    return total.movedim(-2, 0).reshape(*weight.shape[:-1], sample.x.shape[-1]) / sample.y.shape[-1]


def erm_step(sample: Sample, gamma: float, *, lr: float = ERM_LR, projection: Projection = "sphere") -> Step:
    """One iteration of projected descent on mean max(0, gamma - y<w, x>), as a function of w; 0 at its kink."""

    def step(w: Tensor) -> Tensor:
        inside = (margins(sample, w) < gamma).to(w.dtype)
        return project(w + lr * _weighted_mean(sample, inside), projection)

    return step


def rcad_step(
    sample: Sample,
    gamma: float,
    alpha: float | Tensor,
    *,
    lr: float = RCAD_LR,
    projection: Projection = "sphere",
    reading: Reading = "constant",
) -> Step:
    """One iteration of projected ascent on M, as a function of w. alpha: a number, or broadcastable to (..., draws)."""
    return lambda w: project(w + lr * surrogate_gradient(sample, w, alpha, gamma, reading), projection)


def trajectory(step: Step, w: Tensor, steps: int) -> Tensor:
    """w and the iterates after it: (steps + 1, *w.shape)."""
    path = [w]
    for _ in range(steps):
        path.append(step(path[-1]))
    return torch.stack(path)


def final(step: Step, w: Tensor, steps: int) -> Tensor:
    """The last iterate alone: the shape of one step's result."""
    for _ in range(steps):
        w = step(w)
    return w


Gradient = Literal["derivative", "through", "constant"]


@dataclass(frozen=True)
class Setting:
    """A batch of distributions with a step alpha each. alpha, beta, gamma: (...); variances: (..., features).

    Noise with one variance in every direction acts through ||w2|| alone, so two features stand for any d.
    """

    alpha: Tensor
    beta: Tensor
    gamma: Tensor
    variances: Tensor

    @classmethod
    def of(cls, problem: Problem, alpha: float | Tensor) -> Setting:
        """One setting per alpha, all of the one problem."""
        alpha = torch.as_tensor(alpha, dtype=torch.float64)
        variances = problem.deviations(alpha).square().expand(*alpha.shape, problem.d + 1)
        return cls(alpha, torch.full_like(alpha, problem.beta), torch.full_like(alpha, problem.gamma), variances)

    def spread(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of the margin. w: (..., features) -> two (...)."""
        return self.beta * w[..., 0], (self.variances * w.square()).sum(-1).sqrt()


class _Piece(NamedTuple):
    """Margins where the integrand is scale * exp(tilt * m); tilt is also its slope's sign; moved: x was perturbed."""

    tilt: int
    low: Tensor
    high: Tensor
    scale: Tensor
    moved: bool


def _pieces(setting: Setting, w: Tensor) -> tuple[_Piece, _Piece, _Piece]:
    a = setting.alpha * w.square().sum(-1)
    gamma = setting.gamma.expand_as(a)
    far = torch.full_like(a, 1e9)  # beyond any mass, and finite, so that autograd stays finite too
    kink = torch.minimum(a, gamma)
    return (
        _Piece(+1, -far, kink, (-a).exp(), True),
        _Piece(-1, kink, gamma, a.exp(), True),
        _Piece(-1, gamma, far, torch.ones_like(a), False),
    )


def _normal_density(z: Tensor) -> Tensor:
    return (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)


def _moments(piece: _Piece, mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
    """E[f(m); low < m < high] and E[f(m) (m - mean) / deviation^2; ...], f = scale * exp(tilt * m)."""
    shift = mean + piece.tilt * deviation.square()
    low, high = (piece.low - shift) / deviation, (piece.high - shift) / deviation
    # Difference of two probabilities, taken in the tail where both are small.
    flip = low > 0
    below, above = torch.where(flip, -high, low), torch.where(flip, -low, high)
    mass = torch.special.ndtr(above) - torch.special.ndtr(below)
    factor = piece.scale * (piece.tilt * mean + 0.5 * deviation.square()).exp()
    slope = (_normal_density(low) - _normal_density(high)) / deviation + piece.tilt * mass
    return factor * mass, factor * slope


def population_surrogate(setting: Setting, w: Tensor) -> Tensor:
    """M(w). w: (..., features) -> (...)."""
    mean, deviation = setting.spread(w)
    return sum((_moments(p, mean, deviation)[0] for p in _pieces(setting, w)), torch.zeros_like(mean))


def _coefficients(setting: Setting, w: Tensor, kind: Gradient) -> tuple[Tensor, Tensor, Tensor]:
    """The level, slope and radial of the gradient, beta * level * e1 + slope * Sigma w - radial * w. All (...).

    Given m, the mean of y x is beta e1 + Sigma w (m - beta w1) / s^2: so two moments per piece give everything.
    """
    mean, deviation = setting.spread(w)
    level = slope = moved = torch.zeros_like(mean)
    for piece in _pieces(setting, w):
        zeroth, first = _moments(piece, mean, deviation)
        level, slope = level + piece.tilt * zeroth, slope + piece.tilt * first
        if piece.moved:
            moved = moved + piece.tilt * zeroth
    if kind == "derivative":
        # How far the integrand falls at m = gamma, times the density of m there.
        a = setting.alpha * w.square().sum(-1)
        fall = (-(setting.gamma - a).abs()).exp() - (-setting.gamma).exp()
        jump = fall * _normal_density((setting.gamma - mean) / deviation) / deviation
        level, slope = level - jump, slope - jump * (setting.gamma - mean) / deviation.square()
    return level, slope, (1 if kind == "constant" else 2) * setting.alpha * moved


def population_gradient(setting: Setting, w: Tensor, kind: Gradient) -> Tensor:
    """One of the three gradients of M. w: (..., features) -> the same shape."""
    level, slope, radial = _coefficients(setting, w, kind)
    gradient = (slope[..., None] * setting.variances - radial[..., None]) * w
    gradient[..., 0] += setting.beta * level
    return gradient


def pushes(setting: Setting, w: Tensor, kind: Gradient) -> tuple[Tensor, Tensor]:
    """<grad1, w1> / w1^2 and <grad2, w2> / ||w2||^2, the growth of each part per unit of step. Two (...).

    The paper's lemma says that the first is positive and the second negative. w2 loses to w1 where the first is larger.
    """
    gradient = population_gradient(setting, w, kind)
    noise = (gradient[..., 1:] * w[..., 1:]).sum(-1) / w[..., 1:].square().sum(-1)
    return gradient[..., 0] / w[..., 0], noise


def paper_closed_form(setting: Setting, w: Tensor) -> Tensor:
    """The paper's formula for M, printed for alpha >= gamma and ||w|| = 1. w: (..., features) -> (...)."""
    mean, s = setting.spread(w)
    a_w = (mean - setting.gamma) / s
    first = (mean - setting.alpha * w.square().sum(-1) + s.square() / 2).exp() * torch.erfc((s + a_w) / math.sqrt(2))
    second = (-mean + s.square() / 2).exp() * torch.erfc((s - a_w) / math.sqrt(2))
    return 0.5 * (first + second)


def population_step(setting: Setting, kind: Gradient, lr: float) -> Step:
    """One iteration of ascent on the sphere with exact gradients, as a function of w: (..., features)."""
    return lambda w: project(w + lr * population_gradient(setting, w, kind), "sphere")


def growth_at_best(setting: Setting, kind: Gradient) -> tuple[Tensor, Tensor]:
    """At w* = e1: growth of w1, and of a small weight on each feature of noise, per unit of step. (...), (..., d)."""
    best = torch.zeros_like(setting.variances)
    best[..., 0] = 1
    level, slope, radial = _coefficients(setting, best, kind)
    growth = slope[..., None] * setting.variances - radial[..., None]
    return setting.beta * level + growth[..., 0], growth[..., 1:]


def attraction(setting: Setting) -> Tensor:
    """How fast the slowest feature of noise loses to w1 near w* = e1: positive where w* attracts. (...).

    Equal for both readings of x~. Its zeros, as a function of alpha, are the ends of the population's window.
    """
    true, noise = growth_at_best(setting, "constant")
    return (true[..., None] - noise).amin(-1)
