"""The page of an evaluation, from the summary of four small runs."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from browser import Tree
from evaluate.saved_run.conftest import QUICK
from rcad.evaluate.saved_run import page as module
from rcad.evaluate.saved_run.loading import RunLoader
from rcad.evaluate.saved_run.page import colours, document, figures, pooled
from rcad.evaluate.saved_run.run import evaluate
from rcad.evaluate.saved_run.settings import SUITES
from rcad.evaluate.saved_run.tables import comparison_notes, differences, notes, radius, signed, spread, tables
from rcad.report import html
from rcad.report.document import Document, Figure
from rcad.report.markdown import markdown
from rcad.report.terminal import text as terminal_text
from rcad.runs.store import Store
from rcad.study.evaluations import summary
from trained import run_id

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
OVERCONFIDENCE = "confidence \N{MINUS SIGN} accuracy"
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


def alone(mean: float, why: str) -> dict[str, Any]:
    return {"mean": mean, "low": None, "high": None, "p_two": None, "why": why}


def test_the_whole_page_is_closed_and_escaped(found: dict[str, Any]) -> None:
    text = html.page(document(found))
    tree = Tree(text)
    assert "alert('a')" not in "".join(tree.text["script"])
    assert text.count("<svg ") == 2 + 1 + 2 + 5
    assert all(link.startswith(("#", "data:")) for _, link in tree.links)
    assert len(tree.ids) == len({*tree.ids})
    assert "Provenance of the corrupted images: generated." in text


def test_numbers_of_the_tables(found: dict[str, Any]) -> None:
    plain, scaled, sets = tables(found["groups"], "calibration")
    assert plain.header[:4] == ["method", "accuracy, %", OVERCONFIDENCE, "top 5, %"]
    assert plain.rows[0][:3] == ["erm", "90.5 ± 1.0", "3.2 ± 1.0"]
    assert "in points: above 0 a model is overconfident" in plain.caption
    assert scaled.header[:3] == ["method", "temperature", "NLL, scaled"]
    assert sets.header[:3] == ["method", "in the 90% set", "classes in the 90% set"]
    attacked = tables(found["groups"], "attacks")[0]
    assert attacked.header == ["method", "attack", "0.05", "0.1"]
    assert [row[3] for row in attacked.rows if row[:2] == ["erm", "worst"]] == ["45.5 ± 1.0"]
    (corrupted,) = tables(found["groups"], "corruptions")
    assert (corrupted.header[1], corrupted.rows[0][-1]) == ("clean, %", "100.0 ± 0.0")
    assert "generated" in corrupted.caption
    (foreign,) = tables(found["groups"], "ood")
    assert foreign.rows[0][:3] == ["noise", "erm", "0.900 ± 1.000"]


def test_differences_are_signed_and_never_minus_zero(found: dict[str, Any]) -> None:
    cells = [row[1:] for row in differences(found["groups"], SUITES).rows]
    assert cells[0] == ["accuracy, %", "+2.0 [+1.5, +2.5]", "0.2500"]
    assert cells[1] == ["accuracy, %, worst attack within 0.05", "+0.0 [-0.5, +0.5]", "0.2500"]
    assert cells[2][0] == "AUROC against noise, MSP"
    assert differences(found["groups"][:1], SUITES) is None
    assert signed("accuracy", gain(-3)) == "-3.0 [-3.5, -2.5]"


def test_a_difference_without_a_test_says_why(found: dict[str, Any]) -> None:
    compared = found["groups"][1]["comparison"]
    compared["differences"]["ood_noise_msp_auroc"] = alone(0.028, "no spread")
    table = differences(found["groups"], SUITES)
    assert table.header[2] == "difference [95%]"
    assert table.rows[-1][2:] == ["+0.028", "no spread"]
    assert table.caption.endswith("No spread: every seed differs by the same amount, so there is nothing to test.")
    compared["differences"] = {"nll": alone(-0.012, "only 2 seeds")}
    table = differences(found["groups"], SUITES)
    assert [row[1:] for row in table.rows] == [["NLL", "-0.0120", "only 2 seeds"]]
    assert "95%" not in f"{table.header} {table.caption}"
    assert "No spread" not in table.caption


def test_a_page_names_its_command_and_why_examples_are_few(
    found: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [run for group in found["groups"] for run in group["runs"]]
    suites = "calibration,attacks,corruptions,ood"
    assert document(found).facts["Made by"] == f"rcad evaluate {' '.join(runs)} --suite {suites} --limit 24"
    assert "Test examples used: 24." in notes(found, "attacks")
    found["settings"] = {suite: {**settings, "limit": None} for suite, settings in found["settings"].items()}
    monkeypatch.setattr(module, "NAMED", 1)
    assert document(found).facts["Made by"] == f"rcad evaluate {runs[0]} ... --suite {suites}"
    for group in found["groups"]:
        for by_suite in group["evaluations"]:
            by_suite["attacks"]["examples"] = 500
    told = "Test examples used: 500, because all would take long; --limit 0 takes all."
    assert told in notes(found, "attacks")
    assert "Test examples used: 24." in notes(found, "ood")


def test_a_failed_check_is_told_at_once(found: dict[str, Any]) -> None:
    checks = [check for g in found["groups"] for e in g["evaluations"] for check in e["attacks"]["curves"]["masking"]]
    for check in checks:
        check["passed"] = True
    assert f"No signs of gradient masking were found: all {len(checks)} checks passed." in notes(found, "attacks")
    found["groups"][1]["evaluations"][1]["attacks"]["curves"]["masking"][1] |= {"passed": False, "sentence": "helped"}
    assert f"Signs of gradient masking were found: 1 of {len(checks)} checks failed (steps)." in notes(found, "attacks")
    rows = [row[2:] for row in tables(found["groups"], "attacks")[1].rows if row[1] == "steps"]
    assert (rows[0][0], rows[1]) == ("2 of 2", ["1 of 2", "helped"])


def test_notes_say_what_is_missing_and_for_how_many(found: dict[str, Any]) -> None:
    for group in found["groups"]:
        for by_suite in group["evaluations"]:
            by_suite["calibration"]["notes"] = []
    found["groups"][0]["evaluations"][0]["calibration"]["notes"] = ["No temperature."]
    found["groups"][1]["refused"] = {"ood": "Makes no sense."}
    assert notes(found, "calibration") == ["Test examples used: 24.", "1 of 4 runs: No temperature."]
    assert notes(found, "ood")[0].endswith("Makes no sense.")
    assert comparison_notes(found) == [f"method rcad {EVIL}: Over 2 seeds."]
    found["groups"][1] |= {"comparison": None, "notes": ["No ERM run is among these."]}
    assert comparison_notes(found) == [f"method rcad {EVIL}: No ERM run is among these."]


def test_one_seed_is_said_once(found: dict[str, Any]) -> None:
    sentence = "no spread can be given"
    assert sentence not in html.page(document(found))
    found["groups"] = found["groups"][:1]
    found["groups"][0] |= {key: found["groups"][0][key][:1] for key in ("seeds", "runs", "evaluations")}
    page = html.page(document(found))
    assert (page.count(sentence), page.count("One seed: ")) == (1, 1)
    assert "Mean ± standard deviation" not in page


def test_missing_values_are_counted() -> None:
    numbers = {"nll": {"mean": 0.5, "sd": None, "values": [0.5, None]}, "none": {"mean": None, "sd": None}}
    assert spread("nll", numbers) == "0.500 [1 of 2]"
    assert spread("none", numbers) == spread("other", numbers) == "-"
    assert (radius(8 / 255), radius(0.05)) == ("8/255", "0.05")


def test_bins_of_all_seeds_together() -> None:
    curves = [
        {"lower": [0.4, 0.8], "count": [count, 30], "confidence": [0.5, 0.9], "accuracy": [0.25, 0.95]}
        for count in (8, 2, 1)
    ]
    found = [[0.5, 0.9], [0.25, 0.95], [1 / 7, 6 / 7]]
    np.testing.assert_allclose(pooled(curves[:2]), found)
    assert len(pooled(curves[1:])[0]) == 1  # three examples say nothing


def test_black_is_for_one_erm_only() -> None:
    paint = colours([{"name": name, "is_erm": name != "rcad"} for name in ("erm (a)", "erm (b)", "rcad")])
    assert paint["erm (a)"] == "#000000"
    assert len(set(paint.values())) == 3


def test_figures_stay_within_one_data_set(found: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    found["groups"].append(found["groups"][0] | {"name": "erm on wine", "data": "wine"})
    drawn: list[list[str]] = []

    def draw(groups: list[Any], suite: str) -> list[Figure]:
        drawn.append([group["data"] for group in groups])
        return [Figure("<svg></svg>", "Reliability.", "")]

    monkeypatch.setattr(module, "figures", draw)
    captions = [figure.caption for figure in document({**found, "suites": ["ood"]}).figures]
    assert drawn == [["digits[:200]", "digits[:200]"], ["wine"]]
    assert captions == ["digits[:200]: Reliability.", "wine: Reliability."]


def test_a_real_target_has_its_own_tables_and_figure(loader: RunLoader) -> None:
    one = evaluate(loader, run_id("erm", 0, "diabetes"), ("calibration",), QUICK)
    (group,) = summary([one], ("calibration",), QUICK, 1.0)["groups"]
    plain, conformal = tables([group], "calibration")
    assert plain.header[:5] == ["method", "RMSE", "NLL", "CRPS", "in the 90% interval"]
    assert conformal.header[:3] == ["method", "in the 90% interval", "width of the 90% interval"]
    assert "Conformal intervals, calibrated on the validation split" in conformal.caption
    assert len(figures([group], "calibration")) == 1
    assert tables([group], "attacks") == figures([group], "ood") == []


@pytest.mark.parametrize("render", [markdown, terminal_text])
def test_every_section_is_told_without_figures_too(render: Callable[[Document], str], found: dict[str, Any]) -> None:
    text = render(document(found, brief=True))
    lines = [line.removeprefix("## ") for line in text.splitlines()]
    titles = ("Calibration", "Attacks", "Corruptions", "Out of distribution", "Against ERM")
    assert [line for line in lines if line in titles] == list(titles)
    assert "90.5 ± 1.0" in text
    assert EVIL not in text or render is terminal_text
    assert "no gradient to follow" not in text  # the checks are in the page, in a table to unfold
    assert "The runs" not in text
