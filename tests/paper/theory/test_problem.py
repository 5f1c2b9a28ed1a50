"""The linear problem: exact accuracy against counting; written gradients against autograd, batches against a loop."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rcad.paper.theory.problem import (
    Problem,
    Sample,
    random_directions,
    surrogate,
    surrogate_gradient,
    training_accuracy,
)
from rcad.paper.theory.simulation import Settings, run_finals, run_trajectories


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_exact_accuracy_is_what_counting_approaches() -> None:
    problem = Problem(n=400_000, d=3, sigma2=0.3)
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


PROJECTIONS, READINGS = ("sphere", "ball"), ("constant", "through")


def start(problem: Problem, draws: int):  # type: ignore[no-untyped-def]
    generator = torch.Generator().manual_seed(3)
    return problem.sample(draws, generator), random_directions(draws, problem.d + 1, generator)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("gamma", [0.4, 2.0])
def test_the_surrogate_s_gradient_is_autograd_s(reading: str, gamma: float) -> None:
    sample, w = start(Problem(n=15), 6)
    w = (0.8 * w).requires_grad_()
    (expected,) = torch.autograd.grad(surrogate(sample, w, 0.7, gamma, reading).sum(), w)  # type: ignore[arg-type]
    found = surrogate_gradient(sample, w.detach(), 0.7, gamma, reading)  # type: ignore[arg-type]
    assert torch.allclose(found, expected, atol=1e-12)
    other = "through" if reading == "constant" else "constant"
    assert not torch.allclose(surrogate_gradient(sample, w.detach(), 0.7, gamma, other), expected, atol=1e-3)  # type: ignore[arg-type]


def by_hand(x, y, w, *, alpha, gamma, steps, lr, projection, reading):  # type: ignore[no-untyped-def]
    """One draw, one example at a time, in Python's own floats; alpha None is ERM."""
    path = [list(w)]
    for _ in range(steps):
        step = [0.0] * len(w)
        for xi, yi in zip(x, y, strict=True):
            inside = yi * sum(a * b for a, b in zip(w, xi, strict=True)) < gamma
            if alpha is None:
                direction = [yi * v if inside else 0.0 for v in xi]
            else:
                moved = [v - alpha * yi * c if inside else v for v, c in zip(xi, w, strict=True)]
                u = sum(a * b for a, b in zip(w, moved, strict=True))
                factor = -math.copysign(1.0, u) * math.exp(-abs(u))
                if reading == "through" and inside:
                    moved = [v - alpha * yi * c for v, c in zip(moved, w, strict=True)]
                direction = [factor * v for v in moved]
            step = [s + v / len(y) for s, v in zip(step, direction, strict=True)]
        w = [a + lr * b for a, b in zip(w, step, strict=True)]
        length = math.sqrt(sum(v * v for v in w))
        if projection == "sphere" or length > 1:
            w = [v / length for v in w]
        path.append(list(w))
    return torch.tensor(path, dtype=torch.float64)


@pytest.mark.parametrize("projection", PROJECTIONS)
@pytest.mark.parametrize("reading", READINGS)
def test_a_loop_over_one_draw_gives_the_batched_trajectory(projection: str, reading: str) -> None:
    settings = Settings(draws=7, steps=60, projection=projection, reading=reading)  # type: ignore[arg-type]
    study = run_trajectories(settings)
    draw = 4
    x, y = study.sample.x[draw].tolist(), study.sample.y[draw].tolist()
    common = {"gamma": 2.0, "steps": 60, "projection": projection, "reading": reading}
    erm = by_hand(x, y, study.erm[0, draw].tolist(), alpha=None, lr=0.1, **common)
    assert (study.erm[:, draw] - erm).abs().max() < 1e-10
    for alpha in settings.alphas:
        rcad = by_hand(x, y, erm[-1].tolist(), alpha=alpha, lr=0.05, **common)
        assert (study.path(alpha)[:, draw] - rcad).abs().max() < 1e-10


def test_finals_are_the_ends_of_the_study() -> None:
    settings = Settings(draws=20, steps=15)
    study = run_trajectories(settings)
    erm, rcad = run_finals(settings)
    assert torch.equal(erm, study.erm[-1])
    assert torch.equal(rcad, study.rcad[-1])
