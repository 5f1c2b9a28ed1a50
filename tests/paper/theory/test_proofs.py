"""The theorem's conditions and the appendix: by hand where one can, over random settings where one cannot."""

from __future__ import annotations

import math

import pytest
import torch

from rcad.paper.theory import appendix
from rcad.paper.theory.lemmas import conditions, theorem_settings
from rcad.paper.theory.problem import Problem, Setting, population_gradient, pushes, random_directions

FIGURE = Problem()


def test_with_one_variance_everywhere_the_first_lemma_is_an_equality_on_the_sphere() -> None:
    one = torch.ones((), dtype=torch.float64)
    setting = Setting(one, 0.8 * one, one, torch.full((3,), 0.49, dtype=torch.float64))
    w = torch.tensor([0.6, 0.8, 0.0], dtype=torch.float64)
    error = torch.special.ndtr(-setting.beta * w[0] / 0.7)
    torch.testing.assert_close(appendix.true_feature_bound(setting, error), w[0])
    # Half as long a w has the same error, and half the weight on the true feature: the bound is above it.
    assert appendix.true_feature_bound(setting, error) > 0.5 * w[0]


def test_statements_over_random_settings() -> None:
    generator = torch.Generator().manual_seed(2)
    sphere, ball = appendix.initial_feature(generator)
    assert (sphere["fails"], sphere["cases"]) == (0, ball["cases"])
    assert 0.3 < ball["fails"] / ball["cases"] < 0.9
    enough, bound = appendix.enough_examples(generator, problems=20), appendix.margin_bound(generator, problems=5)
    assert (enough["fails"], bound["fails"]) == (0, 0)
    assert (enough["cases"] > 50, bound["cases"]) == (True, 200)
    for row in appendix.products_are_bounded(FIGURE, generator):
        assert row["fails"] < row["worst"] * row["cases"]
    assert appendix.gradients_as_printed(generator) < 1e-12


def test_the_sample_size_and_the_bound_by_hand() -> None:
    assert appendix.sample_size(FIGURE, 0.1) == math.ceil((0.25 + math.log(20) + 8.01) / 0.04)
    assert appendix.norm_bound(FIGURE, 0.1) == pytest.approx(math.sqrt(2 * math.log(20)) + math.sqrt(8.01) + 0.5)


def test_the_bounds_of_erfc_at_one() -> None:
    """erfc(1 / sqrt 2) = 0.3173: between the bounds, which are not far from it."""
    bell = math.sqrt(2 / math.pi) * math.exp(-0.5)
    assert 2 * bell / (1 + math.sqrt(5)) < math.erfc(1 / math.sqrt(2)) < bell
    assert max(appendix.erfc_bounds(1000).values()) < 1e-12


def test_the_printed_gradients_are_the_derivative_of_m() -> None:
    """Against our own closed form, which knows neither the paper's formula nor its gradients."""
    generator = torch.Generator().manual_seed(3)
    setting = Setting.of(Problem(d=3, gamma=0.4), torch.full((50,), 0.6, dtype=torch.float64))
    w = random_directions(50, 4, generator)
    along, across = appendix.printed_gradients(setting, w)
    torch.testing.assert_close(torch.cat([along[:, None], across], -1), population_gradient(setting, w, "derivative"))


def test_conditions_can_be_met() -> None:
    problem = Problem(n=10**7, d=2, beta=2.0, sigma1=1.0, sigma2=1.0, gamma=0.5)
    assert all(c["holds"] for c in conditions(problem, 1.0))
    by_name = {c["name"]: c for c in conditions(problem, 3.0)}
    assert not by_name["beta >= alpha"]["holds"]
    assert (by_name["beta >= alpha"]["left"], by_name["beta >= alpha"]["right"]) == (2.0, 3.0)
    assert not any(c["holds"] for c in conditions(problem, 0.4) if c["name"].startswith("alpha"))


def test_the_scan_s_settings_meet_the_conditions() -> None:
    setting, w = theorem_settings(5000, torch.Generator().manual_seed(0))
    assert (setting.beta >= setting.alpha * (1 - 1e-9)).all()
    assert (setting.alpha >= torch.maximum(setting.gamma, setting.variances.amax(-1)) * (1 - 1e-9)).all()
    assert torch.allclose(w.norm(dim=-1), torch.ones(5000, dtype=torch.float64))


def test_a_scan_without_the_start_condition_does_find_growth() -> None:
    """So that the zeros of the record's scans are not those of scans that cannot see a positive sign."""
    setting, w = theorem_settings(20_000, torch.Generator().manual_seed(0))
    first, second = pushes(setting, w, "derivative")
    assert ((first > 0) & (second < 0)).double().mean() > 0.05
