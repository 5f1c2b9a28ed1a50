"""The paper's objective at n = infinity, in closed form: M(w), its derivative, and what sample gradients converge to.

With m = y<w, x> ~ N(beta w1, s^2), s^2 = w' Sigma w, and a = alpha ||w||^2,

    M(w) = E[exp(-|m - a|); m < gamma] + E[exp(-m); m >= gamma]

falls into three pieces on which the integrand is exp(+-m), so moments of truncated, tilted Gaussians suffice.
Unlike the paper's formula it needs neither alpha >= gamma nor ||w|| = 1.

Three gradients must be kept apart:
  "derivative"  of M itself, which the paper's proof studies;
  "through"     the mean of the per-example gradients when x~ moves with w;
  "constant"    the same with x~ held constant, as in the paper's algorithm.
The integrand jumps where m = gamma. Gradients of examples do not see a jump, the derivative of M does: so "through" is
not "derivative", and no sample size makes up the difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from rcad.paper.theory.problem import Problem, Step, project

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
    """An interval of margins where the integrand is scale * exp(tilt * m); tilt is also the sign of its slope in m.

    moved: whether examples with such margins were perturbed.
    """

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

    The paper's lemma says that the first is positive and the second negative. After renormalising, w2 loses to w1
    whenever the first exceeds the second.
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

    Equal for both readings of x~, whose gradients differ along w alone. Zeros of this function of alpha are the ends of
    the population's window of alpha.
    """
    true, noise = growth_at_best(setting, "constant")
    return (true[..., None] - noise).amin(-1)
