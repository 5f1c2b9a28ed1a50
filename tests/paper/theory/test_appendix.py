"""The appendix in numbers: by hand where one can, and the verdicts that follow."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from rcad.paper.theory import appendix
from rcad.paper.theory.claims import agreed, appendix_claims, sweep_claims
from rcad.paper.theory.lemmas import conclusion_scan, sign_scan
from rcad.paper.theory.population import Setting, population_gradient
from rcad.paper.theory.problem import Problem, Row, random_directions
from rcad.paper.theory.simulation import Settings, sweep

FIGURE = Problem()


@pytest.fixture(scope="module")
def check() -> Row:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("enough_examples", "margin_bound"):
            patch.setattr(appendix, name, partial(getattr(appendix, name), problems=20))
        return appendix.appendix_check(FIGURE, (0.5, 0.7), torch.Generator().manual_seed(2))


def test_with_one_variance_everywhere_the_first_lemma_is_an_equality_on_the_sphere() -> None:
    one = torch.ones((), dtype=torch.float64)
    setting = Setting(one, 0.8 * one, one, torch.full((3,), 0.49, dtype=torch.float64))
    w = torch.tensor([0.6, 0.8, 0.0], dtype=torch.float64)
    error = torch.special.ndtr(-setting.beta * w[0] / 0.7)
    torch.testing.assert_close(appendix.true_feature_bound(setting, error), w[0])
    # Half as long a w has the same error, and half the weight on the true feature: the bound is above it.
    assert appendix.true_feature_bound(setting, error) > 0.5 * w[0]


def test_the_first_lemma_holds_on_the_sphere_alone(check: Row) -> None:
    sphere, ball = check["initial_feature"]
    assert (sphere["fails"], sphere["cases"]) == (0, ball["cases"])
    assert 0.3 < ball["fails"] / ball["cases"] < 0.9
    assert sphere["cases"] > 15_000


def test_the_sample_size_and_the_bound_by_hand() -> None:
    assert appendix.sample_size(FIGURE, 0.1) == math.ceil((0.25 + math.log(20) + 8.01) / 0.04)
    assert appendix.norm_bound(FIGURE, 0.1) == pytest.approx(math.sqrt(2 * math.log(20)) + math.sqrt(8.01) + 0.5)


def test_the_best_error_is_not_the_printed_one(check: Row) -> None:
    best, printed = check["best_errors"]
    assert best == pytest.approx(0.5 * math.erfc(5 / math.sqrt(2)), rel=1e-6)
    assert printed == pytest.approx(0.5 * math.erfc(0.5 / math.sqrt(0.2)), rel=1e-12)


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


def test_the_gradient_s_norm_is_a_number_by_alpha(check: Row) -> None:
    w = torch.tensor([[0.6, *[0.8 / math.sqrt(8)] * 8]], dtype=torch.float64)
    setting = Setting.of(FIGURE, torch.tensor([0.7], dtype=torch.float64))
    at_one_place = population_gradient(setting, w, "derivative")[0, 1:].square().sum() / 0.64
    assert 0 < at_one_place < check["gradient_norm"][0.7] < 100


def test_the_verdicts(check: Row) -> None:
    found = {(claim.where, claim.statement.rpartition(", ")[2]): claim.verdict for claim in appendix_claims(check)}
    assert found["initial-feature lemma", "||w|| = 1"] == "reproduced"
    assert found["initial-feature lemma", "||w|| <= 1"] == "not reproduced"
    wrong = [where for (where, _), verdict in found.items() if verdict != "reproduced"]
    assert wrong == ["initial-feature lemma", "corollary on ERM"]
    assert check["enough_examples"]["cases"] > 50
    assert all(row["fails"] < 0.05 * row["cases"] for row in check["products"])


def test_where_readings_disagree_nothing_is_decided() -> None:
    assert agreed(["opposite", "opposite"]) == "opposite"
    assert agreed(["opposite", "not reproduced"]) == "undecided"


def test_the_second_half_of_the_update_lemma_depends_on_c0() -> None:
    scans = {
        c0: sign_scan(torch.Generator().manual_seed(2), count=100_000, ks=(1.0,), c0=c0, kinds=("derivative",))[0]
        for c0 in (None, 5.0)
    }
    assert scans[None]["noise_grows"] > 0.5 > scans[5.0]["noise_grows"]
    assert scans[5.0]["c0"] == 5.0
    assert 100 < scans[5.0]["settings"] < scans[None]["settings"]
    assert scans[None]["true_grows"] == scans[5.0]["true_grows"] == 0
    assert conclusion_scan(torch.Generator().manual_seed(2), K=1.0, c0=5.0, count=20_000, steps=500)["reached"] < 0.1


def test_erm_leans_on_noise_the_more_the_fewer_examples_and_the_more_dimensions() -> None:
    base = Settings(draws=60, alphas=(0.7,))
    sweeps = [sweep("n", (10, 50, 200), base), sweep("d", (1, 8, 64), base)]
    assert [claim.verdict for claim in sweep_claims(sweeps)] == ["reproduced", "reproduced"]
    backwards = [sweep("n", (200, 50, 10), base), sweep("d", (64, 8, 1), base)]
    assert [claim.verdict for claim in sweep_claims(backwards)] == ["not reproduced", "not reproduced"]
