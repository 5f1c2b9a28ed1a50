"""T7: no test row is seen before the end, claims are those that were printed, and verdicts follow the numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rcad.data.dataset import Dataset, Split
from rcad.errors import InputError
from rcad.paper import uci, uci_claims, uci_report
from rcad.paper.published import UCI_NLL
from rcad.paper.record import build, finished, plain, refuse_to_replace_full, write

SMOKE = uci.SCALES["smoke"]


def silent(what: str, done: int, total: int) -> None:
    pass


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return uci.run(SMOKE, None, silent)


def test_scales_come_from_the_training_rows() -> None:
    data = uci.synthetic()
    train, held = np.arange(40), np.arange(40, 60)
    fold = uci.fold(data, train, held)
    x, y = data.train.x[train].astype(np.float64), data.train.y[train].astype(np.float64)
    assert fold.x.numpy() == pytest.approx((x - x.mean(0)) / x.std(0), abs=1e-5)
    assert fold.held_x.numpy() == pytest.approx((data.train.x[held] - x.mean(0)) / x.std(0), abs=1e-5)
    assert fold.held_y.numpy() == pytest.approx((data.train.y[held] - y.mean()) / y.std(), abs=1e-5)
    assert fold.scale == pytest.approx(y.std(), abs=1e-6)


def test_test_rows_change_the_score_and_nothing_else() -> None:
    settings = replace(SMOKE, splits=2)
    data = uci.synthetic(splits=2)
    # Both splits train on the same rows, so that the others can be spoilt.
    train, test = np.arange(50), np.arange(50, 60)
    y = data.train.y.copy()
    first = Dataset("made", "regression", Split(data.train.x, y), standard_splits=((train, test),) * 2)
    spoilt = y.copy()
    spoilt[test] += 5
    second = Dataset("made", "regression", Split(data.train.x, spoilt), standard_splits=((train, test),) * 2)
    a, b = (uci.study(one, settings, silent)["methods"] for one in (first, second))
    for name in a:
        assert a[name].get("chosen") == b[name].get("chosen")
        assert a[name].get("validation_mean") == b[name].get("validation_mean")
        assert min(b[name]["nll"]) > max(a[name]["nll"])


def test_every_number_is_there(results: dict[str, Any]) -> None:
    (table,) = results["datasets"].values()
    assert set(table["methods"]) == set(uci_claims.LABELS)
    assert table["rows"] == {"train": 54, "test": 6, "validation": 11}
    assert all(len(one["nll"]) == SMOKE.splits for one in table["methods"].values())
    # ERM's first configuration is the last epoch, which is what the fixed row does.
    erm, fixed = table["methods"]["erm"], table["methods"]["erm_fixed"]
    for choice, tuned, plain_ in zip(erm["chosen"], erm["nll"], fixed["nll"], strict=True):
        assert (tuned == pytest.approx(plain_, abs=1e-6)) == (choice == 0)


def test_the_cap_matters_at_large_lambda(results: dict[str, Any]) -> None:
    found = results["uncapped"]
    first, last = (
        np.subtract(found["uncapped"]["validation_nll"], found["capped"]["validation_nll"])[k] for k in (0, -1)
    )
    assert first == pytest.approx(0.0, abs=1e-6)
    assert np.abs(last).max() > 1e-4


def test_a_study_without_a_cap_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replace(SMOKE, cap=None).arms()
    monkeypatch.setattr(uci, "LAMBDAS", (0.1, 0.9))
    with pytest.raises(InputError, match=r"cap=None and lam=0.9"):
        replace(SMOKE, cap=None).arms()
    assert replace(SMOKE, cap=0.0).arms()


def table(shift: dict[str, float], spread: float = 0.01) -> dict[str, Any]:
    noise = np.random.default_rng(0).normal(0, 1, (len(uci_claims.LABELS), 20))
    methods = {
        name: {"nll": (2.0 + shift.get(name, 0.0) + spread * row).tolist()}
        for name, row in zip(uci_claims.LABELS, noise, strict=True)
    }
    return {"rows": {"train": 90, "test": 10}, "methods": methods}


def test_claims_are_the_printed_signs() -> None:
    found = {name: table({"rcad": -0.5}) for name in UCI_NLL}
    claims = {(one.where, one.statement): one for one in uci_claims.claims(found)}
    assert len(claims) == 15
    assert claims["boston", "RCAD has lower NLL than ERM"].published == pytest.approx(0.25)
    assert claims["boston", "RCAD has lower NLL than ERM"].verdict == "reproduced"
    # On wine the paper itself prints ERM as the better one.
    wine = claims["wine", "ERM has lower NLL than RCAD"]
    assert wine.published == pytest.approx(0.12)
    assert wine.gain is not None
    assert wine.gain.mean == pytest.approx(-0.5, abs=0.02)
    assert wine.verdict == "opposite"
    assert claims["boston", "RCAD has lower NLL than a random direction"].verdict == "reproduced"


def test_no_difference_is_not_reproduced_where_the_printed_one_is_excluded() -> None:
    claims = uci_claims.claims({"boston": table({}, spread=0.01)})
    assert {one.verdict for one in claims} == {"not reproduced"}
    claims = uci_claims.claims({"boston": table({}, spread=3.0)})
    assert {one.verdict for one in claims} == {"undecided"}


def test_a_diverged_run_leaves_its_claims_undecided() -> None:
    broken = table({"rcad": -0.5})
    broken["methods"]["rcad"]["nll"][3] = None
    assert {one.verdict for one in uci_claims.claims({"boston": broken})} == {"undecided"}
    rows = uci_claims.tests({"boston": broken})["erm"]
    assert [row["test"] for row in rows if row["method"] == "rcad"] == [None]
    record = build("T7", "smoke", SMOKE.to_dict(), {}, 1.0)
    short = {"chosen": [0] * 20, "tuning_diverged": 1}
    for one in broken["methods"].values():
        one.update(short)
    record["results"] = {
        "datasets": {"boston": broken},
        "uncapped": {"lambdas": [], "alpha": 0.3, "dataset": "x", "capped": {}, "uncapped": {}},
    }
    page = uci_report.markdown(record, uci_claims.claims({"boston": broken}), uci_claims.tests({"boston": broken}))
    assert "(1 of 20 diverged)" in page
    assert "| a run diverged | - | - |" in page


def test_records_are_found_again_and_marked(results: dict[str, Any], tmp_path: Any) -> None:
    path = tmp_path / "uci.json"
    settings = SMOKE.to_dict()
    record = build("T7", "smoke", settings, {"a": [1.0, float("nan")], "b": results}, 1.0)
    assert record["not_finite"] == 1
    assert record["results"]["a"] == [1.0, None]
    write(path, record)
    assert finished(path, settings, "smoke") == record
    assert finished(path, settings, "full") is None
    assert finished(path, replace(SMOKE, splits=2).to_dict(), "smoke") is None
    refuse_to_replace_full(path)
    write(path, {**record, "scale": "full"})
    with pytest.raises(InputError, match="pass another --out"):
        refuse_to_replace_full(path)
    assert plain({"x": 1 / 3}) == {"x": 0.3333333}
