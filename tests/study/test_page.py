"""The page and the Markdown of a comparison say what its record says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from browser import BROWSER, seen
from rcad.study.page import chosen_table, difference_tables, markdown, page, results_table

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")


def difference(method: str, metric: str, **more: Any) -> dict[str, Any]:
    values = {"method": method, "against": "erm", "metric": metric, "test": "paired t", "n": 3, "mean": 1.25,
              "low": 0.5, "high": 2.0, "p_two": 0.01, "p_holm": 0.02, "effect": 1.5, "superiority": 1.0,
              "seeds_needed": 7, "note": "", "outcome": "better"}  # fmt: skip
    return {**values, **more}


def result(*values: float | None) -> dict[str, Any]:
    good = [value for value in values if value is not None]
    summary = {"n": 3, "mean": sum(good) / len(good), "sd": 1.0, "low": 1.0, "high": 99.0} if good else None
    return {"values": dict(enumerate(values)), "summary": summary, "diverged": len(values) - len(good)}


@pytest.fixture
def record() -> dict[str, Any]:
    cell = {"role": "asked", "space": ["lam=log(0.01, 1)"], "seconds": 6.0, "runs": 3, "chosen": {"lam": "0.1"}}
    unknown = ("mean", "low", "high", "p_two", "p_holm", "effect", "superiority", "seeds_needed")
    nothing = {**dict.fromkeys(unknown), "outcome": "undecided", "note": "1 of the runs diverged"}
    return {
        "data": "<my> data.csv",
        "command": "rcad compare --data x",
        "seeds": [0, 1, 2],
        "budget": 8,
        "epochs": 30,
        "metrics": ["accuracy", "nll"],
        "test_ratio": 0.25,
        "sizes": {"train": 1234, "validation": 30, "test": 80},
        "held_out": {"told": "chosen by 30 held-out examples"},
        "seconds": 12.0,
        "base": "erm",
        "rule": "The rule",
        "methods": {
            "erm": {**cell, "role": "base", "seconds": 3.0},
            "rcad": cell,
            "rcad_random": {**cell, "role": "control"},
        },
        "results": {
            "erm": {"accuracy": result(90.0, 91.0, 92.0), "nll": result(0.3, 0.3, 0.4)},
            "rcad": {"accuracy": result(92.0, 93.0, None), "nll": result(0.2, 0.3, None)},
            "rcad_random": {"accuracy": result(None, None, None), "nll": result(None, None, None)},
        },
        "differences": [
            difference("rcad", "accuracy"),
            difference("rcad", "nll", outcome="worse", mean=-0.1, low=-0.2, high=0.0, seeds_needed=None),
            difference("rcad_random", "accuracy", **nothing),
            difference("rcad", "accuracy", against="rcad_random", p_holm=0.0001),
        ],
        "sentences": ["Accuracy: rcad & co are shown.", "NLL: no method is shown."],
        "versions": {"rcad": "0.1.0"},
    }


def test_the_page_says_it_all(record: dict[str, Any]) -> None:
    html = page(record)
    assert "&lt;my&gt; data.csv" in html
    assert "<my>" not in html
    for text in (
        "rcad &amp; co are shown.",
        "1,234 rows to train on",
        "The rule.",
        "n_test/n_train = 0.25",
        "8 configurations",
        "numbers are chosen by 30 held-out examples.",
    ):
        assert text in html
    assert html.count("<svg") == 4  # dots and differences of two metrics


def test_results_and_cost(record: dict[str, Any]) -> None:
    rows = [[cell.text for cell in row] for row in results_table(record).cells]
    assert rows[0] == ["erm", "91.00 ± 1.00", "0.333 ± 1.000", "1.00", "1.0"]
    assert rows[1][-2:] == ["2.00", "2.0"]
    assert rows[2][1] == "-"
    notes = [[cell.note for cell in row] for row in results_table(record).cells]
    assert notes[1][1] == "1 diverged"
    assert notes[2][0] == "control"


def test_differences(record: dict[str, Any]) -> None:
    against_erm, controls = difference_tables(record)
    rows = [[cell.text for cell in row] for row in against_erm.cells]
    assert rows[0] == ["rcad", "accuracy", "+1.25 [0.50, 2.00]", "+1.50", "100%", "0.020", "7", "better"]
    assert rows[1][2:] == ["-0.100 [-0.200, 0.000]", "+1.50", "100%", "0.020", "-", "worse"]
    assert rows[2][2:] == ["-", "-", "-", "-", "-", "undecided"]
    assert [row[-1].mark for row in against_erm.cells] == ["good", "bad", "open"]
    assert against_erm.cells[2][-1].note == "1 of the runs diverged"
    assert controls.cells[0][-3].text == "<0.001"


def test_what_was_chosen_only_where_something_was_tuned(record: dict[str, Any]) -> None:
    assert [cell.text for cell in chosen_table(record).cells[1]] == ["rcad", "lam 0.1", "lam=log(0.01, 1)"]
    assert "half distances between classes" in chosen_table(record).caption
    assert "standardised units" in chosen_table({**record, "metrics": ["rmse", "nll"]}).caption
    assert "What was chosen" in page(record)
    untuned = {**record, "budget": 1}
    assert "What was chosen" not in page(untuned)
    assert "Nothing was tuned" in page(untuned)


def test_a_test_set_of_its_own_is_said(record: dict[str, Any]) -> None:
    text = markdown({**record, "test_ratio": 0.0})
    assert "bring a test set of their own" in text
    assert "Nadeau" not in text


def test_markdown(record: dict[str, Any]) -> None:
    text = markdown(record)
    assert text.startswith("# Does it help on <my> data.csv?")
    assert "| rcad | 92.50 ± 1.00 (1 diverged) | 0.250 ± 1.000 (1 diverged) | 2.00 | 2.0 |" in text
    assert "- **Accuracy: rcad & co are shown.**" in text
    assert "| rcad | accuracy | +1.25 [0.50, 2.00] |" in text


@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_a_browser_shows_it_without_complaint(record: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(record), encoding="utf-8")
    assert "are shown." in seen(file, tmp_path)
