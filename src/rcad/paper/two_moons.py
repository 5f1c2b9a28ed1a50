"""Two moons in d dimensions: two features that tell the classes apart, and d - 2 that are noise.

The plane holds two half circles of radius 1: class 0 is (cos t, sin t), class 1 is (1 - cos t, 1/2 - sin t), with t
uniform in [0, pi). The same seed gives the same examples on every machine and NumPy: only raw 64-bit draws of
`PCG64(SeedSequence)` are used, which NumPy keeps fixed, and normal numbers are made from them by Box and Muller's
formula. Example i depends on the seed, d and i alone, so a smaller set is the beginning of a larger one.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

Noise = Literal["all", "rest"]
Real = npt.NDArray[np.float64]
Rows = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]

# One stream for each purpose: test examples are not training examples of a larger n.
_ARC, _NOISE = range(2)
_TRAIN, _TEST = range(2)
# Rows of noise made at a time: bounds the memory of the 64-bit draws.
_BLOCK = 2048


def arc(t: npt.ArrayLike, label: int) -> Real:
    """The points of a class's half circle at the angles t, shape (..., 2)."""
    angle = np.asarray(t, dtype=np.float64)
    x, y = np.cos(angle), np.sin(angle)
    return np.stack([x, y], -1) if label == 0 else np.stack([1 - x, 0.5 - y], -1)


def bayes_accuracy(sigma: float, noise: Noise = "all") -> float:
    """The accuracy, in [0, 1], of the best possible classifier: the further dimensions tell it nothing.

    Quadrature in the plane: a class's density at a point is the Gaussian averaged along its half circle
    (Gauss-Legendre nodes), and the error is half the integral of the smaller density (midpoint rule). Good to
    about 1e-5.
    """
    # Without noise in the plane, and below any noise that could cross the gap, the half circles do not touch.
    if noise == "rest" or sigma < 0.02:
        return 1.0
    step = min(sigma / 12, 0.02)
    margin = 7 * sigma
    across, along = (np.arange(low - margin, high + margin, step) for low, high in ((-1.0, 2.0), (-0.5, 1.0)))
    nodes, weights = np.polynomial.legendre.leggauss(max(48, math.ceil(16 / sigma)))
    angle, share = (nodes + 1) * (math.pi / 2), weights / 2

    def density(label: int) -> Real:
        # The Gaussian is a product over the two axes, so the average along the arc is one matrix product.
        points = arc(angle, label)
        left = _gaussian(across[:, None] - points[:, 0], sigma) * share
        return np.asarray(left @ _gaussian(along[:, None] - points[:, 1], sigma).T)

    error = 0.5 * float(np.minimum(density(0), density(1)).sum()) * step**2
    return 1.0 - error


def draw(
    n: int, *, d: int = 625, sigma: float = 0.1, noise: Noise = "all", seed: int = 0, test: bool = False
) -> tuple[Rows, Labels]:
    """n examples: x float32 (n, d), labels int64 (n,).

    Args:
        n: how many; the classes take turns, so any number of first examples is balanced to within one.
        d: dimensions, at least 2; the moons lie in the first two.
        sigma: standard deviation of the Gaussian noise, in units of the moons' radius.
        noise: "all" adds noise to every dimension, "rest" to the d - 2 others only.
        test: from another stream of the same seed.
    """
    part = _TEST if test else _TRAIN
    labels = np.arange(n, dtype=np.int64) % 2
    angle = math.pi * _uniform(_stream(seed, part, _ARC), n)
    x = np.zeros((n, d), np.float32)
    x[:, :2] = np.where(labels[:, None] == 0, arc(angle, 0), arc(angle, 1))
    bits = _stream(seed, part, _NOISE)
    for start in range(0, n, _BLOCK):
        rows = x[start : start + _BLOCK]
        added = sigma * _normal(bits, len(rows), d)
        if noise == "rest":
            added[:, :2] = 0.0
        rows += added.astype(np.float32)
    return x, labels


def _stream(seed: int, *purpose: int) -> np.random.PCG64:
    return np.random.PCG64(np.random.SeedSequence(entropy=seed, spawn_key=purpose))


def _uniform(bits: np.random.PCG64, count: int) -> Real:
    """Numbers in [0, 1): the upper 53 bits of each draw."""
    raw = np.asarray(bits.random_raw(count), dtype=np.uint64)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _normal(bits: np.random.PCG64, rows: int, columns: int) -> Real:
    """Standard normal numbers (rows, columns); a row takes the same number of draws whatever follows it."""
    pairs = (columns + 1) // 2
    u = _uniform(bits, rows * pairs * 2).reshape(rows, pairs, 2)
    radius = np.sqrt(-2 * np.log1p(-u[..., 0]))
    turn = 2 * math.pi * u[..., 1]
    return np.stack([radius * np.cos(turn), radius * np.sin(turn)], -1).reshape(rows, -1)[:, :columns]


def _gaussian(z: Real, sigma: float) -> Real:
    return np.asarray(np.exp(-0.5 * (z / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi)))
