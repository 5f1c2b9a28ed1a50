"""Moons: where the examples lie, that they never change, and the best accuracy one can have."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from rcad.paper.two_moons import bayes_accuracy, draw


def moons(n: int, d: int = 2, sigma: float = 0.1, seed: int = 0, noise: Any = "all") -> tuple[np.ndarray, np.ndarray]:
    return draw(n, d=d, sigma=sigma, seed=seed, noise=noise)


def test_examples_lie_on_the_moons() -> None:
    x, y = moons(1000, d=5, sigma=0.3, seed=1, noise="rest")
    assert (x.shape, x.dtype, y.dtype) == ((1000, 5), np.float32, np.int64)
    upper, lower = x[y == 0, :2], x[y == 1, :2]
    assert len(upper) == len(lower) == 500
    assert np.abs(np.hypot(*upper.T) - 1).max() < 1e-6
    assert np.abs(np.hypot(*(lower - [1, 0.5]).T) - 1).max() < 1e-6
    assert upper[:, 1].min() >= 0
    assert lower[:, 1].max() <= 0.5
    angle = np.arctan2(upper[:, 1], upper[:, 0]) / np.pi
    assert np.abs(np.sort(angle) - (np.arange(500) + 0.5) / 500).max() < 1.63 / 500**0.5  # Kolmogorov, level 1%
    assert np.ptp(x[:, 2:], axis=0).min() > 1


@pytest.mark.parametrize("d", [2, 5, 625])
def test_a_smaller_set_is_the_beginning_of_a_larger_one(d: int) -> None:
    x, y = moons(2500, d, 0.1, 7)
    less, labels = moons(33, d, 0.1, 7)
    assert np.array_equal(x[:33], less)
    assert np.array_equal(y[:33], labels)
    assert not np.array_equal(moons(33, d, 0.1, 8)[0], less)


def test_the_stream_is_fixed() -> None:
    x, _ = moons(50, 7, 0.25, 8)
    # Rounded: the last bit of a logarithm or a cosine is the C library's.
    rounded = np.round(x.astype(np.float64), 3) + 0.0
    assert hashlib.sha256(rounded.astype("<f8").tobytes()).hexdigest()[:16] == "c75d1c63f130d77c"


@pytest.mark.parametrize(
    ("sigma", "expected"), [(0.02, 1.0), (0.1, 0.999357), (0.3, 0.914590), (0.75, 0.756836), (2.0, 0.619982)]
)
def test_bayes_accuracy(sigma: float, expected: float) -> None:
    assert bayes_accuracy(sigma) == pytest.approx(expected, abs=2e-6)
    assert bayes_accuracy(sigma, "rest") == 1


def test_test_examples_are_others() -> None:
    held, _ = draw(300, d=10, sigma=0.75, seed=2, test=True)
    assert not np.isin(held[:, 5], moons(500, 10, 0.75, 2)[0][:, 5]).any()
