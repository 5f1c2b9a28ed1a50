"""The rate at hand-computed points."""

from __future__ import annotations

import math

import pytest

from rcad.runs.config import OptimConfig
from rcad.train.optim import learning_rate


def test_multistep_drops_at_the_start_of_a_milestone() -> None:
    optim = OptimConfig(lr=0.1, schedule="multistep", milestones=(100, 150, 180))
    rates = [learning_rate(optim, 200, p) for p in (0, 99.99, 100, 149.9, 150, 180, 199.9)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.0001, 0.0001])


def test_cosine_ends_at_zero_after_a_linear_warm_up() -> None:
    optim = OptimConfig(lr=0.2, schedule="cosine", warmup=5)
    assert learning_rate(optim, 25, 2.5) == pytest.approx(0.1)
    assert 0 < learning_rate(optim, 25, 0) < 0.001
    assert learning_rate(optim, 25, 5) == pytest.approx(0.2)
    assert learning_rate(optim, 25, 10) == pytest.approx(0.1 * (1 + math.cos(math.pi / 4)))
    assert learning_rate(optim, 25, 25) == pytest.approx(0.0, abs=1e-12)


def test_constant_is_constant() -> None:
    assert {learning_rate(OptimConfig(lr=0.3), 10, p / 7) for p in range(70)} == {0.3}
