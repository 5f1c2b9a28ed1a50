"""The linear problem: its data, and the exact accuracy against counting."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rcad import InputError
from rcad.paper.theory.problem import Problem, Sample, margins, norms, random_directions, training_accuracy


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_defaults_are_the_paper_s_numbers() -> None:
    p = Problem()
    assert (p.n, p.d, p.beta, p.sigma1, p.sigma2, p.gamma) == (20, 8, 0.5, 0.1, 1.0, 2.0)


def test_samples_have_the_moments_of_the_distribution() -> None:
    problem = Problem(n=200_000, d=2, sigma2=(0.5, 2.0))
    x, y = problem.sample(1, generator())
    assert x.shape == (1, 200_000, 3)
    assert y.unique().tolist() == [-1, 1]
    signed = (y[..., None] * x)[0]
    assert torch.allclose(signed.mean(0), torch.tensor([0.5, 0, 0], dtype=torch.float64), atol=0.02)
    assert torch.allclose(signed.std(0), torch.tensor([0.1, 0.5, 2.0], dtype=torch.float64), rtol=0.01)
    assert abs(y.mean().item()) < 0.01


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


def test_margins_for_many_w_are_those_for_each() -> None:
    sample = Problem(n=5, d=2).sample(3, generator())
    w = torch.randn(2, 4, 3, 3, generator=generator(1), dtype=torch.float64)
    many = margins(sample, w)
    assert many.shape == (2, 4, 3, 5)
    for i, j, k, m in ((0, 0, 0, 0), (1, 3, 2, 4), (1, 0, 1, 2)):
        assert many[i, j, k, m].item() == pytest.approx((sample.y[k, m] * (sample.x[k, m] @ w[i, j, k])).item())
    assert torch.equal(margins(sample, w[1, 2]), many[1, 2])


def test_norms_split_the_weight() -> None:
    true, noise = norms(torch.tensor([[-3.0, 3.0, 4.0]]))
    assert (true.item(), noise.item()) == (3.0, 5.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "expected n to be a whole number >= 1, but got 0"),
        ({"beta": -1.0}, "expected beta to be a finite number > 0"),
        ({"sigma2": (1.0, 1.0)}, "expected 8 deviations in sigma2"),
        ({"sigma2": 0.0}, "expected sigma2 to be a finite number > 0"),
    ],
)
def test_impossible_problems_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Problem(**change)  # type: ignore[arg-type]
