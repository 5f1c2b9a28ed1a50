"""The theorem's conditions, and the settings that are drawn to meet them."""

from __future__ import annotations

import torch

from rcad.paper.theory.lemmas import conditions, theorem_settings
from rcad.paper.theory.population import pushes
from rcad.paper.theory.problem import Problem


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
