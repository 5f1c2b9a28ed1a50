"""The paper's linear problem: one true feature, d features of noise, and the exact accuracy of a linear classifier.

    y ~ Unif{-1, 1},   x1 ~ N(beta y, sigma1^2),   x2 ~ N(0, diag(sigma2^2)) in R^d,   predict sign(<w, x>)

A rotation of the noise makes any covariance diagonal, so a diagonal one loses nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from rcad.errors import InputError, finite, whole


class Sample(NamedTuple):
    """Training sets, one per draw. x: (draws, n, d + 1); y: (draws, n) in {-1, 1}."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Problem:
    """The distribution and the size of a training set; the defaults are those of the paper's figure.

    n: training examples. d: features of noise; the classifier has d + 1 weights, as in the paper's definition
    (x in R^(d+1)); its figure, though, shows x2 to x8, which would be d = 7.
    beta: distance of a class mean from 0 along x1. sigma1: deviation of x1 about it.
    sigma2: deviation of the noise, one number or one per feature. gamma: margin of the loss max(0, gamma - y<w, x>).
    """

    n: int = 20
    d: int = 8
    beta: float = 0.5
    sigma1: float = 0.1
    sigma2: float | tuple[float, ...] = 1.0
    gamma: float = 2.0

    def __post_init__(self) -> None:
        for name in ("n", "d"):
            whole(name, getattr(self, name), minimum=1)
        for name in ("beta", "sigma1", "gamma"):
            finite(name, getattr(self, name), above=0)
        for deviation in self.noise_deviations:
            finite("sigma2", deviation, above=0)
        if len(self.noise_deviations) != self.d:
            raise InputError(f"expected {self.d} deviations in sigma2, one per feature, but got {self.sigma2}")

    @property
    def noise_deviations(self) -> tuple[float, ...]:
        """sigma2 as d numbers."""
        return self.sigma2 if isinstance(self.sigma2, tuple) else (self.sigma2,) * self.d

    @property
    def best_accuracy(self) -> float:
        """Accuracy of w* = (1, 0, ..., 0), which no linear classifier exceeds."""
        return 0.5 * math.erfc(-self.beta / self.sigma1 / math.sqrt(2))

    def deviations(self, like: Tensor) -> Tensor:
        """Deviation of each feature about its mean: (d + 1,), in the dtype and on the device of `like`."""
        return like.new_tensor((self.sigma1, *self.noise_deviations))

    def sample(self, draws: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Sample:
        """Independent training sets. Always drawn in float64, so that a float32 run sees the same data, rounded."""
        y = torch.randint(0, 2, (draws, self.n), generator=generator).double() * 2 - 1
        x = torch.randn(draws, self.n, self.d + 1, generator=generator, dtype=torch.float64)
        x = x * self.deviations(x)
        x[..., 0] += self.beta * y
        return Sample(x.to(dtype), y.to(dtype))

    def accuracy(self, w: Tensor) -> Tensor:
        """Exact test accuracy Phi(beta w1 / sqrt(w' Sigma w)). w: (..., d + 1) -> (...); w = 0 is a coin, 0.5.

        It depends on the direction of w alone.
        """
        deviation = (w * self.deviations(w)).norm(dim=-1)
        score = torch.where(deviation > 0, self.beta * w[..., 0] / deviation.clamp_min(torch.finfo(w.dtype).tiny), 0.0)
        accuracy: Tensor = torch.special.ndtr(score)
        return accuracy


def random_directions(draws: int, features: int, generator: torch.Generator) -> Tensor:
    """Starting points for ERM, uniform on the unit sphere: (draws, features), float64."""
    w = torch.randn(draws, features, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(w, dim=-1)


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
