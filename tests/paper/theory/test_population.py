"""The closed forms: against scipy's integrals, autograd, large samples, and the formula the paper prints."""

from __future__ import annotations

import math

import pytest
import torch

from rcad.paper.theory.lemmas import (
    closed_form_check,
    entropy_ratio,
    gradient_by_quadrature,
    sample_gradient_check,
)
from rcad.paper.theory.problem import (
    Problem,
    Setting,
    attraction,
    final,
    paper_closed_form,
    population_gradient,
    population_step,
    population_surrogate,
    random_directions,
)


def settings(count: int = 40, seed: int = 0) -> tuple[Setting, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(3, count, generator=generator, dtype=torch.float64)
    variances = 0.1 + torch.rand(count, 4, generator=generator, dtype=torch.float64)
    w = random_directions(count, 4, generator) * (0.4 + u[0, :, None])
    return Setting(3 * u[0] + 0.01, 2 * u[1] + 0.1, 3 * u[2] + 0.05, variances), w


def test_the_derivative_is_autograd_s_and_the_others_are_not() -> None:
    setting, w = settings()
    w.requires_grad_()
    (expected,) = torch.autograd.grad(population_surrogate(setting, w).sum(), w)
    w = w.detach()
    assert torch.allclose(population_gradient(setting, w, "derivative"), expected, atol=1e-10)
    assert not torch.allclose(population_gradient(setting, w, "through"), expected, atol=1e-3)


@pytest.mark.parametrize("kind", ["through", "constant"])
def test_mean_gradients_are_those_of_quadrature(kind: str) -> None:
    setting, w = settings(200, seed=1)
    gap = population_gradient(setting, w, kind) - gradient_by_quadrature(setting, w, kind)  # type: ignore[arg-type]
    assert gap.abs().max() < 1e-10


def test_the_paper_s_formula_holds_on_its_domain_and_only_there() -> None:
    check = closed_form_check(torch.Generator().manual_seed(0), 300)
    assert check["ours"] < 1e-9
    assert check["gradient"] < 1e-9
    assert check["paper_inside"] < 1e-9
    assert check["paper_outside"] > 0.1
    figure = Setting.of(Problem(), 0.7)
    w = torch.tensor([0.7, *([math.sqrt(0.51 / 8)] * 8)], dtype=torch.float64)
    assert (paper_closed_form(figure, w) / population_surrogate(figure, w)).item() > 1.3


def test_sample_gradients_miss_the_jump_at_the_margin() -> None:
    check = sample_gradient_check(Problem(), 0.7, torch.Generator().manual_seed(0), n=200_000)
    assert max(abs(e) for e in check["errors_from_mean"]) < 4
    assert max(abs(e) for e in check["errors_from_derivative"]) > 8


def test_ascent_follows_the_attraction() -> None:
    w = torch.tensor([math.sqrt(1 - 1e-4), 1e-2], dtype=torch.float64)
    problem = Problem(d=1)
    alphas = torch.tensor([0.1, 0.5, 0.7, 1.2], dtype=torch.float64)
    setting = Setting.of(problem, alphas)
    end = final(population_step(setting, "constant", 0.01), w.expand(4, -1), 50)
    shrank = end[:, 1].abs() < 1e-2
    assert shrank.tolist() == (attraction(setting) > 0).tolist() == [False, True, True, False]


def test_entropy_against_its_stand_in() -> None:
    z = torch.linspace(-8, 8, 33, dtype=torch.float64)
    p = torch.sigmoid(z)
    entropy = -(p * p.log() + (1 - p) * (1 - p).log())
    assert torch.allclose(entropy_ratio(z) * (-z.abs()).exp(), entropy, atol=1e-12)
