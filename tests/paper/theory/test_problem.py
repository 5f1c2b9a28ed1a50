"""The linear problem and its proofs: against counting, loops, autograd, quadrature, and by hand where one can."""

import math

import pytest
import torch

from rcad.paper.theory import appendix, lemmas
from rcad.paper.theory.problem import (
    Problem,
    Sample,
    Setting,
    paper_closed_form,
    population_gradient,
    population_surrogate,
    random_directions,
    surrogate,
    surrogate_gradient,
    training_accuracy,
)
from rcad.paper.theory.simulation import Settings, run_finals, run_trajectories

FIGURE = Problem()
READINGS = ("constant", "through")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_exact_accuracy_is_what_counting_approaches() -> None:
    problem = Problem(n=400_000, d=3, sigma2=0.3)
    w = random_directions(4, 4, seeded(1))
    sample = problem.sample(1, seeded(2))
    counted = training_accuracy(Sample(*(v.expand(4, *v.shape[1:]) for v in sample)), w)
    # Four standard errors of a share of 400,000.
    assert (counted - problem.accuracy(w)).abs().max() < 4 * 0.5 / math.sqrt(400_000)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("gamma", [0.4, 2.0])
def test_the_surrogate_s_gradient_is_autograd_s(reading: str, gamma: float) -> None:
    generator = seeded(3)
    sample, w = Problem(n=15).sample(6, generator), random_directions(6, 9, generator)
    w = (0.8 * w).requires_grad_()
    (expected,) = torch.autograd.grad(surrogate(sample, w, 0.7, gamma, reading).sum(), w)  # type: ignore[arg-type]
    for one in READINGS:
        found = surrogate_gradient(sample, w.detach(), 0.7, gamma, one)  # type: ignore[arg-type]
        assert torch.allclose(found, expected, atol=1e-12 if one == reading else 1e-3) == (one == reading)


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


@pytest.mark.parametrize("projection", ["sphere", "ball"])
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
    for made, kept in zip(run_finals(settings), (study.erm, study.rcad), strict=True):
        assert torch.equal(made, kept[-1])


def test_the_derivative_is_autograd_s_and_the_others_are_those_of_quadrature() -> None:
    generator = seeded()
    u = torch.rand(3, 200, generator=generator, dtype=torch.float64)
    variances = 0.1 + torch.rand(200, 4, generator=generator, dtype=torch.float64)
    w = (random_directions(200, 4, generator) * (0.4 + u[0, :, None])).requires_grad_()
    setting = Setting(3 * u[0] + 0.01, 2 * u[1] + 0.1, 3 * u[2] + 0.05, variances)
    (expected,) = torch.autograd.grad(population_surrogate(setting, w).sum(), w)
    w = w.detach()
    assert torch.allclose(population_gradient(setting, w, "derivative"), expected, atol=1e-10)
    for kind in READINGS:
        gradient = population_gradient(setting, w, kind)  # type: ignore[arg-type]
        assert not torch.allclose(gradient, expected, atol=1e-3)
        quadrature = lemmas.gradient_by_quadrature(setting, w, kind)  # type: ignore[arg-type]
        assert (gradient - quadrature).abs().max() < 1e-10


def test_the_paper_s_formula_holds_on_its_domain_and_only_there() -> None:
    check = lemmas.closed_form_check(seeded(), 300)
    assert max(check["ours"], check["gradient"], check["paper_inside"]) < 1e-9
    assert check["paper_outside"] > 0.1
    setting = Setting.of(FIGURE, 0.7)
    w = torch.tensor([0.7, *([math.sqrt(0.51 / 8)] * 8)], dtype=torch.float64)
    assert (paper_closed_form(setting, w) / population_surrogate(setting, w)).item() > 1.3


def test_statements_over_random_settings() -> None:
    generator = seeded(2)
    sphere, ball = appendix.initial_feature(generator)
    assert (sphere["fails"], sphere["cases"]) == (0, ball["cases"])
    assert 0.3 < ball["fails"] / ball["cases"] < 0.9
    enough, bound = appendix.enough_examples(generator, problems=20), appendix.margin_bound(generator, problems=5)
    assert (enough["fails"], bound["fails"]) == (0, 0)
    assert (enough["cases"] > 50, bound["cases"]) == (True, 200)
    for row in appendix.products_are_bounded(FIGURE, generator):
        assert row["fails"] < row["worst"] * row["cases"]
    assert appendix.gradients_as_printed(generator) < 1e-12
