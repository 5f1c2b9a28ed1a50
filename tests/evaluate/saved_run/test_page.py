"""The page of an evaluation, from a summary that is written out here."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from rcad.evaluate.saved_run import page as module
from rcad.evaluate.saved_run.page import colours, document, figures, pooled
from rcad.evaluate.saved_run.tables import comparison_notes, differences, notes, radius, signed, spread, tables
from rcad.report import html
from rcad.report.document import Document, Figure
from rcad.report.markdown import markdown
from rcad.report.terminal import text as terminal_text
from report.test_html import Tree

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
EVIL = "<script>alert('a')</script> | & \"b\""
ALL = ("calibration", "attacks", "corruptions", "ood")
EPS = [8 / 255, 0.05]


def reliability(low: int = 1) -> dict[str, Any]:
    seen = {"count": [low, 30], "confidence": [0.5, 0.9], "accuracy": [0.25, 0.95]}
    return {"lower": [0.4, 0.8], "upper": [0.6, 1.0], **seen}


def curve(level: float) -> dict[str, Any]:
    found = {"entropy": [0.1, level], "quantiles": [[0.0, 0.2], [0.1, 2 * level]], "accuracy": [90.0, 10.0]}
    return {"direction": "random", "alphas": [0.0, 1.0], "levels": [0.1, 0.9], **found, "unmoved": 0.0}


def evaluation(suite: str, numbers: dict[str, float], curves: dict[str, Any]) -> dict[str, Any]:
    fixed = {"suite": suite, "notes": [], "examples": 50, "seconds": 1.5, "device": "CPU"}
    return {**fixed, "numbers": numbers, "curves": curves}


def evaluations(shift: float, passed: bool = True) -> dict[str, Any]:
    attacked = {f"attacked_accuracy_{a}_{e:.4g}": 50 - 100 * e + shift for a in ("fgsm", "worst") for e in EPS}
    accuracies = {"mean": 70 + shift, "clean": 90.0, "fog": 70 + shift, "severity_1": 80 + shift}
    numbers = {
        "calibration": {"accuracy": 90 + shift, "nll": 0.5, "ece": 0.04, "temperature": 1.5, "nll_scaled": 0.4},
        "attacks": {"attacked_accuracy_clean": 90.0, **attacked, "masking_signs": float(not passed)},
        "corruptions": {
            f"corrupted_accuracy_{name}": value for name, value in {**accuracies, "severity_5": 60 + shift}.items()
        },
        "ood": {"ood_noise_msp_auroc": 0.9, "ood_noise_entropy_auroc": 0.91, "ood_noise_entropy_fpr95": 0.3},
    }
    check = {"name": "steps", "passed": passed, "numbers": {}, "sentence": f"helped: {not passed}"}
    by_attack = {a: [attacked[f"attacked_accuracy_{a}_{e:.4g}"] for e in EPS] for a in ("fgsm", "worst")}
    cells = [{"accuracy": 80 + shift, "nll": 1.0}, {"accuracy": 60 + shift, "nll": 2.0}]
    bins = {"edges": [0.0, 1.0, 2.0], "known": [0.9, 0.1], "foreign": [0.2, 0.8]}
    foreign = {"count": 9, "histogram": bins, "roc": {"known": [0.0, 0.9, 1.0], "foreign": [0.0, 0.2, 1.0]}}
    risk = {"coverage": [0.5, 1.0], "risk": [0.0, 0.1]}
    curves = {
        "calibration": {**dict.fromkeys(("reliability", "reliability_scaled"), reliability(8)), "risk_coverage": risk},
        "attacks": {"eps": EPS, "accuracy": by_attack, "masking": [check]},
        "corruptions": {"provenance": "generated", "severities": [1, 5], "clean": None, "scores": {"fog": cells}},
        "ood": {"foreign": {"noise": foreign}, "alpha": {"adversarial": curve(1.0), "random": curve(0.5)}},
    }
    return {suite: evaluation(suite, numbers[suite], curves[suite]) for suite in ALL}


def group(name: str, is_erm: bool, shifts: tuple[float, ...], **more: Any) -> dict[str, Any]:
    found = [evaluations(shift) for shift in shifts]
    rows = [{k: v for e in one.values() for k, v in e["numbers"].items()} for one in found]
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    sd = 1.0 if len(rows) > 1 else None
    fixed = {"name": name, "data": "digits", "is_erm": is_erm, "classes": True, "comparison": None}
    return {
        **fixed,
        "seeds": list(range(len(shifts))),
        "runs": [f"{k:016x}" for k in range(len(shifts))],
        "numbers": {key: {"mean": sum(v) / len(v), "sd": sd, "values": v} for key, v in columns.items()},
        "refused": {},
        "notes": [],
        "evaluations": found,
        **more,
    }


def gain(mean: float) -> dict[str, Any]:
    return {"mean": mean, "low": mean - 0.5, "high": mean + 0.5, "p_two": 0.25}


def summary(**more: Any) -> dict[str, Any]:
    found = {"accuracy": gain(2.0), "attacked_accuracy_worst_0.05": gain(-0.04), "ood_noise_msp_auroc": gain(0.1)}
    comparison = {"to": "erm", "seeds": [0, 1], "differences": found, "note": "Over 2 seeds."}
    groups = [group("erm", True, (0, 1)), group(f"rcad {EVIL}", False, (2, 3), comparison=comparison)]
    fixed = {"suites": list(ALL), "groups": groups, "versions": {"torch": "2"}, "seconds": 3.0}
    return {**fixed, **more}


def test_the_whole_page_is_closed_and_escaped() -> None:
    text = html.page(document(summary()))
    tree = Tree(text)
    assert "alert('a')" not in "".join(tree.text["script"])
    assert text.count("<svg ") == 8  # 2 + 1 + 2 + 3
    for tag, attributes in tree.tags:
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names))
    assert "Provenance of the corrupted images: generated." in text


def test_numbers_of_the_tables() -> None:
    found = summary()
    (plain, scaled) = tables(found["groups"], "calibration")
    assert plain.header == ["method", "accuracy, %", "NLL", "ECE"]
    assert plain.rows[0][1] == "90.5 ± 1.0"
    assert scaled.header == ["method", "temperature", "NLL, scaled"]
    attacked = tables(found["groups"], "attacks")[0]
    assert attacked.header == ["method", "attack", "8/255", "0.05"]
    assert attacked.rows[1][1:] == ["worst", "47.4 ± 1.0", "45.5 ± 1.0"]
    (corrupted,) = tables(found["groups"], "corruptions")
    assert corrupted.rows[0][:3] == ["erm", "90.0 ± 1.0", "70.5 ± 1.0"]
    assert "generated" in corrupted.caption
    (foreign,) = tables(found["groups"], "ood")
    assert foreign.rows[0] == ["noise", "erm", "0.900 ± 1.000", "0.910 ± 1.000", "-", "-", "0.300 ± 1.000"]


def test_differences_are_signed_and_never_minus_zero() -> None:
    table = differences(summary()["groups"], ALL)
    cells = [row[1:] for row in table.rows]
    assert cells[0] == ["accuracy, %", "+2.0 [+1.5, +2.5]", "0.2500"]
    assert cells[1] == ["accuracy, %, worst attack within 0.05", "+0.0 [-0.5, +0.5]", "0.2500"]
    assert cells[2][0] == "AUROC against noise, MSP"
    assert differences([group("erm", True, (0,))], ALL) is None
    assert signed("accuracy", gain(-3)) == "-3.0 [-3.5, -2.5]"


def alone(mean: float, why: str) -> dict[str, Any]:
    return {"mean": mean, "low": None, "high": None, "p_two": None, "why": why}


def test_a_difference_without_a_test_says_why() -> None:
    found = summary()
    compared = found["groups"][1]["comparison"]
    compared["differences"]["ood_noise_msp_auroc"] = alone(0.028, "no spread")
    table = differences(found["groups"], ALL)
    assert table.header[2] == "difference [95%]"
    assert [row[2:] for row in table.rows][-1] == ["+0.028", "no spread"]
    assert table.caption.endswith("No spread: every seed differs by the same amount, so there is nothing to test.")
    compared["differences"] = {"nll": alone(-0.012, "only 2 seeds")}
    table = differences(found["groups"], ALL)
    assert [row[1:] for row in table.rows] == [["NLL", "-0.0120", "only 2 seeds"]]
    assert "95%" not in f"{table.header} {table.caption}"
    assert "No spread" not in table.caption


def test_a_failed_check_is_told_at_once() -> None:
    found = summary()
    assert "Signs of gradient masking: all 4 checks passed." in notes(found, "attacks")
    found["groups"][1]["evaluations"][1] = evaluations(3, passed=False)
    assert "Signs of gradient masking: 1 of 4 checks failed (steps)." in notes(found, "attacks")
    table = tables(found["groups"], "attacks")[1]
    assert [row[2:] for row in table.rows] == [["2 of 2", "helped: False"], ["1 of 2", "helped: True"]]


def test_notes_say_what_is_missing_and_for_how_many() -> None:
    found = summary()
    found["groups"][0]["evaluations"][0]["calibration"]["notes"] = ["No temperature."]
    found["groups"][1]["refused"] = {"ood": "Makes no sense."}
    assert notes(found, "calibration") == ["Test examples used: 50.", "1 of 4 runs: No temperature."]
    assert notes(found, "ood")[0].endswith("Makes no sense.")
    assert comparison_notes(found) == [f"rcad {EVIL}: Over 2 seeds."]
    found["groups"][1] |= {"comparison": None, "notes": ["No ERM run is among these."]}
    assert comparison_notes(found) == [f"rcad {EVIL}: No ERM run is among these."]


def test_missing_values_are_counted() -> None:
    numbers = {"nll": {"mean": 0.5, "sd": None, "values": [0.5, None]}, "none": {"mean": None, "sd": None}}
    assert spread("nll", numbers) == "0.500 [1 of 2]"
    assert spread("none", numbers) == spread("other", numbers) == "-"
    assert radius(8 / 255) == "8/255"
    assert radius(0.05) == "0.05"


def test_bins_of_all_seeds_together() -> None:
    confidence, accuracy, share = pooled([reliability(8), reliability(2)])
    assert accuracy == pytest.approx([0.25, 0.95])
    assert confidence == pytest.approx([0.5, 0.9])
    assert share == pytest.approx([1 / 7, 6 / 7])
    assert len(pooled([reliability(1), reliability(2)])[0]) == 1  # three examples say nothing


def test_black_is_for_one_erm_only() -> None:
    groups = [group(name, name != "rcad", (0,)) for name in ("erm (a)", "erm (b)", "rcad")]
    paint = colours(groups)
    assert paint["erm (a)"] == "#000000"
    assert len(set(paint.values())) == 3


def test_figures_stay_within_one_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    found = summary()
    other = deepcopy(found["groups"][0]) | {"name": "erm on wine", "data": "wine"}
    found["groups"].append(other)
    drawn: list[list[str]] = []

    def draw(groups: list[Any], suite: str) -> list[Figure]:
        drawn.append([group["data"] for group in groups])
        return [Figure("<svg></svg>", "Reliability.", "")]

    monkeypatch.setattr(module, "figures", draw)
    captions = [figure.caption for figure in document({**found, "suites": ["ood"]}).figures]
    assert drawn == [["digits", "digits"], ["wine"]]
    assert captions == ["digits: Reliability.", "wine: Reliability."]


def test_a_real_target_has_its_own_table_and_figure() -> None:
    intervals = {"intervals": {"level": [0.5, 0.9], "coverage": [0.4, 0.85]}}
    one = group("erm", True, (0,), classes=False)
    numbers = {"rmse": 3.0, "nll": 1.0, "coverage_90": 0.85}
    one["evaluations"] = [{"calibration": evaluation("calibration", numbers, intervals)}]
    one["numbers"] = {key: {"mean": value, "sd": None, "values": [value]} for key, value in numbers.items()}
    (table,) = tables([one], "calibration")
    assert table.header == ["method", "RMSE", "NLL", "in the 90% interval"]
    more = {"conformal_coverage_90": 0.91, "conformal_width_90": 120.0}
    one["numbers"] |= {key: {"mean": value, "sd": None, "values": [value]} for key, value in more.items()}
    (_, conformal) = tables([one], "calibration")
    assert conformal.header == ["method", "in the 90% interval", "width of the 90% interval"]
    assert conformal.rows == [["erm", "0.910", "120"]]
    assert "Conformal intervals, calibrated on the validation split" in conformal.caption
    assert len(figures([one], "calibration")) == 1
    assert tables([one], "attacks") == figures([one], "ood") == []


@pytest.mark.parametrize("render", [markdown, terminal_text])
def test_every_section_is_told_without_figures_too(render: Callable[[Document], str]) -> None:
    text = render(document(summary(), brief=True))
    lines = [line.removeprefix("## ") for line in text.splitlines()]
    titles = ("Calibration", "Attacks", "Corruptions", "Out of distribution", "Against ERM")
    assert [line for line in lines if line in titles] == list(titles)
    assert "90.5 ± 1.0" in text
    assert EVIL not in text or render is terminal_text
    assert "helped: False" not in text  # the checks are in the page, in a table to unfold
    assert "The runs" not in text
