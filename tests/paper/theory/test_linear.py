"""The linear problem: its data, and the exact accuracy against counting."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rcad import InputError
from rcad.paper.theory.problem import Problem, Sample, random_directions, training_accuracy


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_defaults_are_the_paper_s_numbers() -> None:
    p = Problem()
    assert (p.n, p.d, p.beta, p.sigma1, p.sigma2, p.gamma) == (20, 8, 0.5, 0.1, 1.0, 2.0)


def test_exact_accuracy_is_what_counting_approaches() -> None:
    problem = Problem(n=400_000, d=3, sigma2=(1.0, 0.3, 2.0))
    w = random_directions(4, 4, generator(1))
    sample = problem.sample(1, generator(2))
    counted = training_accuracy(Sample(*(v.expand(4, *v.shape[1:]) for v in sample)), w)
    # Four standard errors of a share of 400,000.
    assert (counted - problem.accuracy(w)).abs().max() < 4 * 0.5 / math.sqrt(400_000)


def test_accuracy_at_its_ends() -> None:
    problem = Problem()
    w = torch.zeros(4, 9, dtype=torch.float64)
    w[0, 0], w[1, 0], w[2, 3] = 1, -2, 1
    best = problem.best_accuracy
    assert best == pytest.approx(0.5 * (1 + math.erf(5 / math.sqrt(2))), abs=1e-12)
    assert problem.accuracy(w).tolist() == pytest.approx([best, 1 - best, 0.5, 0.5], abs=1e-12)


@given(st.floats(1e-3, 1e3), st.integers(0, 1000))
def test_accuracy_depends_on_the_direction_alone_and_never_exceeds_the_best(scale: float, seed: int) -> None:
    problem = Problem(d=3)
    w = random_directions(5, 4, generator(seed))
    assert torch.allclose(problem.accuracy(w), problem.accuracy(scale * w), atol=1e-12)
    assert (problem.accuracy(w) <= problem.best_accuracy + 1e-12).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "expected n to be a whole number >= 1, but got 0"),
        ({"sigma2": (1.0, 1.0)}, "expected 8 deviations in sigma2"),
    ],
)
def test_impossible_problems_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Problem(**change)  # type: ignore[arg-type]
