"""The simulated studies are what they say they are, and the page on our verdicts is made from their record."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rcad.paper.published import T1
from rcad.paper.tables import T1 as SUITE
from rcad.study.statistics import paired

pytest.importorskip("scipy.stats")
ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "results/statistics/verdict_rates.json").read_text(encoding="utf-8"))
FAIR = ("T1, 10 seeds", "T1, 3 seeds", "T7, 20 splits of 90/10")


@pytest.fixture
def studies(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("simulated_studies")


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("verdict_rates")


def test_the_page_is_made_from_the_record(rates: Any) -> None:
    assert (ROOT / "results/statistics/verdict_rates.md").read_text(encoding="utf-8") == rates.page(RECORD)


def test_the_record_is_of_enough_studies_and_of_the_rule_as_it_stands(rates: Any) -> None:
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


def test_shares_of_claims_and_of_pages(rates: Any) -> None:
    steady = 0.1 * np.array([1.0, -1.0, 0.5, -0.5, 0.0])
    page = np.stack([5.0 + steady, steady])
    found = rates.one_sided(np.stack([page, np.stack([steady, steady])]), [1.0, 1.0])
    assert found["share"] == {"reproduced": 0.25, "not reproduced": 0.75, "opposite": 0.0, "undecided": 0.0}
    assert found["page"] == {"reproduced": 0.5, "not reproduced": 1.0, "opposite": 0.0, "undecided": 0.0}
    assert (found["page_decided"], found["reproduced_by_claim"], found["runs"]) == (0.5, [0.5, 0.0], 5)


def test_without_an_effect_the_claims_of_images_are_centred_and_with_one_as_printed(studies: Any) -> None:
    draw = np.random.default_rng(0)
    for odd in ("", "slips", "test set"):
        null = studies.images(draw, 4000, 5, true=False, spread=0.5, odd=odd)
        assert null.mean((0, 2)) == pytest.approx(np.zeros(len(SUITE.claims)), abs=0.05)
    true = studies.images(draw, 400, 5, true=True)
    assert true.mean((0, 2)) == pytest.approx([claim.published for claim in SUITE.claims], abs=0.03)


def test_claims_share_the_runs_of_rcad(studies: Any) -> None:
    null = studies.images(np.random.default_rng(0), 2000, 2, true=False, spread=1.0)
    first, second = null[:, 0].ravel(), null[:, 1].ravel()
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(0.5, abs=0.05)


def test_the_spread_of_a_printed_interval(studies: Any) -> None:
    one = T1["CIFAR-100-2k"]["ERM"]
    assert studies.printed_spread(one) == pytest.approx(one.half * 10**0.5 / 2.262157, rel=1e-6)


def test_splits_that_overlap_are_correlated_as_the_correction_assumes(studies: Any) -> None:
    claim = {"gain": {"df": 9, "se": 0.7 * (0.1 + 0.25) ** 0.5}, "published": 2.0}
    (found,) = studies.recorded(np.random.default_rng(0), 20_000, [claim], 0.25).transpose(1, 0, 2)
    assert (found.mean(), found.std()) == pytest.approx((2.0, 0.7), abs=0.01)
    assert np.corrcoef(found.T)[0, 1] == pytest.approx(0.2, abs=0.02)


def test_test_rows_of_splits_and_of_folds(studies: Any) -> None:
    draw = np.random.default_rng(0)
    splits = studies.held_out(draw, 50, 0.1, 20, folds=False)
    assert splits.shape == (20, 5)
    assert {len(set(row)) for row in splits.tolist()} == {5}
    folds = studies.held_out(draw, 50, 0.2, 10, folds=True)
    for start in (0, 5):
        assert sorted(folds[start : start + 5].ravel()) == list(range(50))


def test_least_squares_is_fitted_on_the_training_rows_alone(studies: Any) -> None:
    test = studies.held_out(np.random.default_rng(1), 40, 0.25, 3, folds=False)
    found = studies.least_squares(np.random.default_rng(2), 40, test)
    draw = np.random.default_rng(2)
    x = draw.normal(size=(40, 3, studies.FEATURES))
    y = 0.5 * x.sum((1, 2)) + draw.normal(size=40)
    for learner, split in np.ndindex(3, 3):
        train = np.setdiff1d(np.arange(40), test[split])
        weight, *_ = np.linalg.lstsq(x[train, learner], y[train], rcond=None)
        variance = np.mean((y[train] - x[train, learner] @ weight) ** 2)
        error = y[test[split]] - x[test[split], learner] @ weight
        nll = 0.5 * np.log(2 * np.pi * variance) + np.mean(error**2) / (2 * variance)
        assert found[learner, split] == pytest.approx(nll, rel=1e-9)


def test_every_cell_of_the_record_is_simulated(rates: Any) -> None:
    found = rates.simulate(3, 0)
    for part in ("null", "two_sided", "power"):
        assert {name: one["claims"] for name, one in found[part].items()} == {
            name: one["claims"] for name, one in RECORD[part].items()
        }
