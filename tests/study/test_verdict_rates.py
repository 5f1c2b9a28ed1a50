"""The simulated studies are what they say they are, and the page on our verdicts is made from their record."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rcad.paper.tables import T1 as SUITE
from rcad.study.statistics import paired

pytest.importorskip("scipy.stats")
ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "results/statistics/verdict_rates.json").read_text(encoding="utf-8"))
FAIR = ("T1, 10 seeds", "T1, 3 seeds", "T7, 20 splits of 90/10")


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("verdict_rates")


def test_the_page_is_made_from_a_record_of_enough_studies_and_of_the_rule_as_it_stands(rates: Any) -> None:
    assert (ROOT / "results/statistics/verdict_rates.md").read_text(encoding="utf-8") == rates.page(RECORD)
    assert RECORD["studies"] >= 2000
    assert RECORD["rule"] == rates.RULE
    assert RECORD["T1"] == [f"{claim.where}: {claim.statement}" for claim in SUITE.claims]


def test_the_level_that_the_rule_promises_was_kept() -> None:
    error = 3 * (0.05 * 0.95 / RECORD["studies"]) ** 0.5
    for name in FAIR:
        assert max(RECORD["null"][name]["page"][verdict] for verdict in ("reproduced", "opposite")) < 0.05 + error
    for cell in RECORD["two_sided"].values():
        assert cell["page_decided"] < 0.05 + error


@pytest.mark.parametrize("ratio", [0.0, 0.25])
def test_tests_of_many_studies_are_those_of_one(rates: Any, ratio: float) -> None:
    differences = np.random.default_rng(0).normal(0.3, 1.0, (4, 3, 7))
    found = rates.Tests.of(differences, ratio)
    for k in np.ndindex(4, 3):
        one = paired(differences[k].tolist(), [0.0] * 7, test_ratio=ratio)
        expected = (one.mean, one.se, one.low, one.high, one.t, one.p_less, one.p_greater, one.p_two)
        assert tuple(part[k] for part in found) == pytest.approx(expected, rel=1e-12)


def test_a_verdict_is_that_of_the_rule(rates: Any) -> None:
    steady = np.array([1.0, -1.0, 0.5, -0.5, 0.0])
    centres = (5.0, -5.0, 0.0, 0.0)
    differences = np.stack([centre + 0.1 * steady for centre in centres])[None]
    assert rates.verdicts(differences, [5.0, 5.0, 5.0, None]) == [
        ["reproduced", "opposite", "not reproduced", "undecided"]
    ]


def test_without_an_effect_the_claims_of_images_are_centred_and_with_one_as_printed(rates: Any) -> None:
    draw, studies = np.random.default_rng(0), importlib.import_module("simulated_studies")
    for odd in ("", "slips", "test set"):
        null = studies.images(draw, 4000, 5, true=False, spread=0.5, odd=odd)
        assert null.mean((0, 2)) == pytest.approx(np.zeros(len(SUITE.claims)), abs=0.05)
    true = studies.images(draw, 400, 5, true=True)
    assert true.mean((0, 2)) == pytest.approx([claim.published for claim in SUITE.claims], abs=0.03)
