"""The theorem: its conditions, what happens where they hold, and the rate where they do not."""

from __future__ import annotations

import torch

from rcad.paper.theory.lemmas import conclusion_scan, conditions, path_signs, rate_fit, sign_scan, theorem_settings
from rcad.paper.theory.population import pushes
from rcad.paper.theory.problem import Problem


def test_the_paper_s_own_numbers_meet_no_condition() -> None:
    found = {c["name"]: c["holds"] for c in conditions(Problem(), 0.7)}
    assert len(found) == 5
    assert not any(found.values())


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


def test_the_update_lemma_s_signs_fail_where_its_conditions_hold() -> None:
    scans = {(s["kind"], s["K"]): s for s in sign_scan(torch.Generator().manual_seed(0), count=50_000)}
    for K in (1.0, 2.0, 5.0):
        scan = scans["derivative", K]
        assert scan["settings"] > 4000
        assert scan["true_grows"] == 0
        assert scan["true_falls"] > 0.99
        assert scan["noise_shrinks"] < 0.3
        assert scan["noise_loses"] < 0.05
    # The constant K that the proof wants large makes matters worse.
    assert scans["derivative", 5.0]["noise_shrinks"] < scans["derivative", 1.0]["noise_shrinks"]


def test_a_scan_without_the_start_condition_does_find_growth() -> None:
    """So that the zero above is not one of a scan that cannot see a positive sign."""
    setting, w = theorem_settings(20_000, torch.Generator().manual_seed(0))
    first, second = pushes(setting, w, "derivative")
    assert ((first > 0) & (second < 0)).double().mean() > 0.05


def test_at_the_figure_s_numbers_w1_falls_too_and_only_the_ratio_helps() -> None:
    for scan in path_signs(Problem(), 0.7):
        assert scan["noise_shrinks"] == 1
        assert scan["noise_loses"] == 1
    assert {s["kind"]: s["true_grows"] for s in path_signs(Problem(), 0.7)}["derivative"] < 0.5
    assert all(scan["noise_loses"] < 1 for scan in path_signs(Problem(), 1.5))


def test_ascent_under_the_theorem_s_conditions_moves_away_from_w_star() -> None:
    scan = conclusion_scan(torch.Generator().manual_seed(0), count=1000, steps=600)
    assert scan["settings"] > 100
    assert scan["reached"] < 0.02
    assert scan["noise_rose"] > 0.8


def test_the_number_of_iterations_grows_like_log_one_over_eps() -> None:
    for alpha in (0.5, 0.6, 0.7):
        fit = rate_fit(Problem(), alpha, steps=600)
        assert fit["r_squared"] > 0.995
        assert abs(fit["slope"] / fit["predicted"] - 1) < 0.05


def test_no_rate_outside_the_window() -> None:
    assert rate_fit(Problem(), 0.8, steps=600) is None
    assert rate_fit(Problem(), 0.2, steps=600) is None
