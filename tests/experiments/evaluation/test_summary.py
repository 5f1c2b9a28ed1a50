"""Several runs side by side."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.evaluation.conftest import QUICK
from rcad.errors import InputError
from rcad.evaluate.corruption_error import mce
from rcad.experiments.evaluation import files
from rcad.experiments.evaluation.run import Outcome, evaluate
from rcad.experiments.evaluation.subject import Shelf
from rcad.experiments.evaluation.summary import summary
from rcad.experiments.store import Store
from rcad.experiments.suites.statistics import paired
from trained import DIGITS, run_id

SUITES = ("calibration", "corruptions")


@pytest.fixture(scope="module")
def outcomes(store: Store) -> dict[str, Outcome]:
    shelf = Shelf(store, device="cpu")
    wanted = [run_id(method, seed) for method in ("rcad", "erm") for seed in (1, 0)]
    return {run: evaluate(shelf, run, SUITES, QUICK) for run in wanted}


def errors(outcome: Outcome) -> dict[str, list[float]]:
    scores = outcome.evaluations["corruptions"].curves["scores"]
    return {name: [100 - cell["accuracy"] for cell in cells] for name, cells in scores.items()}


def test_groups_numbers_and_differences(outcomes: dict[str, Outcome]) -> None:
    pytest.importorskip("scipy")
    found = summary(list(outcomes.values()), SUITES, QUICK, 1.0)
    erm, rcad = found["groups"]
    assert [group["name"] for group in (erm, rcad)] == ["erm", "rcad"]
    assert erm["seeds"] == rcad["seeds"] == [0, 1]
    assert rcad["runs"] == [run_id("rcad", 0), run_id("rcad", 1)]
    nll = {
        method: [outcomes[run_id(method, seed)].evaluations["calibration"].numbers["nll"] for seed in (0, 1)]
        for method in ("erm", "rcad")
    }
    assert rcad["numbers"]["nll"]["values"] == nll["rcad"]
    assert rcad["numbers"]["nll"]["mean"] == pytest.approx(sum(nll["rcad"]) / 2)
    assert rcad["numbers"]["nll"]["sd"] == pytest.approx(abs(nll["rcad"][0] - nll["rcad"][1]) / 2**0.5)
    # Each seed draws its own split of one data set, so that test sets overlap.
    expected = paired(nll["rcad"], nll["erm"], test_ratio=359 / 180)
    assert rcad["comparison"]["differences"]["nll"] == pytest.approx(expected.to_dict())
    assert "overlap" in rcad["comparison"]["note"]
    assert erm["comparison"] is None
    assert erm["numbers"]["mce"]["values"] == [100, 100]
    own = [mce(errors(outcomes[run_id("rcad", s)]), errors(outcomes[run_id("erm", s)])) for s in (0, 1)]
    assert rcad["numbers"]["mce"]["values"] == pytest.approx(own)


def test_too_few_seeds_are_said(outcomes: dict[str, Outcome]) -> None:
    chosen = [outcomes[run_id("rcad", 0)], outcomes[run_id("rcad", 1)], outcomes[run_id("erm", 1)]]
    _, rcad = summary(chosen, SUITES, QUICK, 1.0)["groups"]
    assert rcad["comparison"]["differences"] == {}
    assert rcad["comparison"]["note"] == "A difference to erm needs 2 or more common seeds, but there is 1."
    assert rcad["numbers"]["mce"]["values"][0] is None


def test_without_erm(outcomes: dict[str, Outcome]) -> None:
    (rcad,) = summary([outcomes[run_id("rcad", 0)]], SUITES, QUICK, 1.0)["groups"]
    assert rcad["comparison"] is None
    assert "No ERM run" in rcad["notes"][0]
    assert "mce" not in rcad["numbers"]
    assert rcad["numbers"]["nll"]["sd"] is None


def test_names_tell_groups_apart(outcomes: dict[str, Outcome], shelf: Shelf) -> None:
    table = evaluate(shelf, run_id("erm", 0, "breast_cancer"), ("calibration",), QUICK)
    found = summary([table, outcomes[run_id("erm", 0)]], ("calibration",), QUICK, 1.0)
    assert {group["name"] for group in found["groups"]} == {"erm on breast_cancer", f"erm on {DIGITS}"}
    one = outcomes[run_id("erm", 0)]
    config = one.record.config
    longer = replace(one.record, config=replace(config, train=replace(config.train, epochs=7)), id="")
    found = summary([one, replace(one, record=longer)], ("calibration",), QUICK, 1.0)
    assert {group["name"] for group in found["groups"]} == {f"erm ({one.record.id[:8]})", f"erm ({longer.id[:8]})"}


def test_files(outcomes: dict[str, Outcome], tmp_path: Path) -> None:
    for package in ("jinja2", "matplotlib", "scipy"):
        pytest.importorskip(package)
    found = summary(list(outcomes.values()), SUITES, QUICK, 1.0)
    out = tmp_path / "out"
    files.check(out)
    page = files.write(out, found)
    assert page.read_text().count("<svg ") == 4
    assert json.loads((out / "evaluation.json").read_text()) == found
    files.check(out)  # ours may be replaced
    (out / "evaluation.json").write_text("{}")
    with pytest.raises(InputError, match="something else"):
        files.check(out)
    with pytest.raises(InputError, match="is a file"):
        files.check(page)
