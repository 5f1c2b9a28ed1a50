"""The page of an evaluation, from the summary of four small runs."""

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from browser import Tree
from evaluate.saved_run.conftest import QUICK
from rcad.evaluate.saved_run.loading import RunLoader
from rcad.evaluate.saved_run.page import document, pooled
from rcad.evaluate.saved_run.run import evaluate
from rcad.evaluate.saved_run.settings import SUITES
from rcad.evaluate.saved_run.tables import differences, notes, spread, tables
from rcad.report import html
from rcad.report.markdown import markdown
from rcad.runs.store import Store
from rcad.study.evaluations import summary
from trained import run_id

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
EVIL = "<script>alert('a')</script> | & \"b\""


@pytest.fixture(scope="module")
def measured(store: Store) -> dict[str, Any]:
    loader = RunLoader(store, device="cpu")
    runs = [run_id(method, seed) for method in ("erm", "rcad") for seed in (0, 1)]
    return summary([evaluate(loader, run, SUITES, QUICK) for run in runs], SUITES, QUICK, 1.0)


@pytest.fixture
def found(measured: dict[str, Any]) -> dict[str, Any]:
    """ERM and a method with a name that no page should believe; some numbers are set, to be told from others."""
    found = deepcopy(measured)
    erm, rcad = found["groups"]
    rcad["name"] = f"rcad {EVIL}"
    set_to = {"accuracy": 90.5, "overconfidence": 3.21, "attacked_accuracy_worst_0.1": 45.5, "ood_noise_msp_auroc": 0.9}
    for name, mean in set_to.items():
        erm["numbers"][name] = {"mean": mean, "sd": 1.0, "values": [mean, mean]}
    rcad["comparison"]["note"] = "Over 2 seeds."
    gains = {"accuracy": gain(2.0), "attacked_accuracy_worst_0.05": gain(-0.04), "ood_noise_msp_auroc": gain(0.1)}
    rcad["comparison"]["differences"] = gains
    return found


def gain(mean: float) -> dict[str, Any]:
    return {"mean": mean, "low": mean - 0.5, "high": mean + 0.5, "p_two": 0.25}


def test_the_whole_page_is_closed_and_escaped(found: dict[str, Any]) -> None:
    text = html.page(document(found))
    tree = Tree(text)
    assert "alert('a')" not in "".join(tree.text["script"])
    assert text.count("<svg ") == 2 + 1 + 2 + 5
    assert all(link.startswith(("#", "data:")) for _, link in tree.links)
    assert len(tree.ids) == len({*tree.ids})
    assert "Provenance of the corrupted images: generated." in text
    plain = markdown(document(found, brief=True))
    assert "90.5 ± 1.0" in plain
    assert EVIL not in plain


def test_numbers_of_the_tables(found: dict[str, Any]) -> None:
    plain, scaled, sets = tables(found["groups"], "calibration")
    assert plain.header[:3] == ["method", "accuracy, %", "confidence \N{MINUS SIGN} accuracy"]
    assert plain.rows[0][:3] == ["erm", "90.5 ± 1.0", "3.2 ± 1.0"]
    assert scaled.header[:3] == ["method", "temperature", "NLL, scaled"]
    assert sets.header[:3] == ["method", "in the 90% set", "classes in the 90% set"]
    attacked = tables(found["groups"], "attacks")[0]
    assert attacked.header == ["method", "attack", "0.05", "0.1"]
    assert [row[3] for row in attacked.rows if row[:2] == ["erm", "worst"]] == ["45.5 ± 1.0"]
    (foreign,) = tables(found["groups"], "ood")
    assert foreign.rows[0][:3] == ["noise", "erm", "0.900 ± 1.000"]
    numbers = {"nll": {"mean": 0.5, "sd": None, "values": [0.5, None]}, "none": {"mean": None, "sd": None}}
    assert (spread("nll", numbers), spread("none", numbers)) == ("0.500 [1 of 2]", "-")


def test_differences_are_signed_never_minus_zero_and_say_why_there_is_no_test(found: dict[str, Any]) -> None:
    cells = [row[1:] for row in differences(found["groups"], SUITES).rows]
    assert cells[0] == ["accuracy, %", "+2.0 [+1.5, +2.5]", "0.2500"]
    assert cells[1] == ["accuracy, %, worst attack within 0.05", "+0.0 [-0.5, +0.5]", "0.2500"]
    assert differences(found["groups"][:1], SUITES) is None
    alone = {"mean": 0.028, "low": None, "high": None, "p_two": None, "why": "no spread"}
    found["groups"][1]["comparison"]["differences"] = {"ood_noise_msp_auroc": alone}
    assert differences(found["groups"], SUITES).rows[-1][2:] == ["+0.028", "no spread"]


def test_a_page_names_its_command_why_examples_are_few_and_what_is_missing(found: dict[str, Any]) -> None:
    runs = [run for group in found["groups"] for run in group["runs"]]
    suites = "calibration,attacks,corruptions,ood"
    assert document(found).facts["Made by"] == f"rcad evaluate {' '.join(runs)} --suite {suites} --limit 24"
    assert "Test examples used: 24." in notes(found, "attacks")
    found["settings"]["attacks"]["limit"] = None
    for by_suite in (one for group in found["groups"] for one in group["evaluations"]):
        by_suite["attacks"]["examples"] = 500
        by_suite["calibration"]["notes"] = []
    told = "Test examples used: 500, because all would take long; --limit 0 takes all."
    assert told in notes(found, "attacks")
    found["groups"][0]["evaluations"][0]["calibration"]["notes"] = ["No temperature."]
    assert "1 of 4 runs: No temperature." in notes(found, "calibration")
    found["groups"][1]["refused"] = {"ood": "Makes no sense."}
    assert notes(found, "ood")[0].endswith("Makes no sense.")


def test_a_failed_check_is_told_at_once(found: dict[str, Any]) -> None:
    checks = [check for g in found["groups"] for e in g["evaluations"] for check in e["attacks"]["curves"]["masking"]]
    for check in checks:
        check["passed"] = True
    assert f"No signs of gradient masking were found: all {len(checks)} checks passed." in notes(found, "attacks")
    found["groups"][1]["evaluations"][1]["attacks"]["curves"]["masking"][1] |= {"passed": False, "sentence": "helped"}
    assert f"Signs of gradient masking were found: 1 of {len(checks)} checks failed (steps)." in notes(found, "attacks")
    rows = [row[2:] for row in tables(found["groups"], "attacks")[1].rows if row[1] == "steps"]
    assert (rows[0][0], rows[1]) == ("2 of 2", ["1 of 2", "helped"])


def test_bins_of_all_seeds_together() -> None:
    curve = {"lower": [0.4, 0.8], "confidence": [0.5, 0.9], "accuracy": [0.25, 0.95]}
    curves = [{**curve, "count": [count, 30]} for count in (8, 2, 1)]
    found = [[0.5, 0.9], [0.25, 0.95], [1 / 7, 6 / 7]]
    np.testing.assert_allclose(pooled(curves[:2]), found)
    assert len(pooled(curves[1:])[0]) == 1  # three examples say nothing
