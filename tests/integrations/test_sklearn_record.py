"""The comparison's page and the numbers in the documentation are those of its record."""

from __future__ import annotations

import json
import re
import runpy
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "results/sklearn/tables.json").read_text(encoding="utf-8"))
DOCUMENT = (ROOT / "docs/stacks/sklearn.md").read_text(encoding="utf-8")


def rows_below(title: str) -> list[list[str]]:
    """The cells of the table in a section of the page."""
    section = DOCUMENT.split(f"## {title}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", section, re.M)]


def test_the_page_is_made_from_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("scipy")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    page = runpy.run_path(str(ROOT / "benchmarks/sklearn_page.py"))["page"]
    assert (ROOT / "results/sklearn/tables.md").read_text(encoding="utf-8") == page(RECORD, 5)


def test_the_record_is_whole() -> None:
    found = {(row["task"], row["model"], row["fold"]) for row in RECORD["runs"]}
    assert len(found) == len(RECORD["runs"]) == 4 * 6 * 50


def test_the_documentation_s_table_is_the_record_s() -> None:
    header, _, *lines = rows_below("Does it help?")
    for column, task in enumerate(header[1:], start=1):
        mine = [row for row in RECORD["runs"] if row["task"] == task]
        models = list(dict.fromkeys(row["model"] for row in mine))
        for model, line in zip(models, lines, strict=True):
            own = [row for row in mine if row["model"] == model]
            first, nll = line[column].split(", ")
            metric = "rmse" if "rmse" in own[0] else "accuracy"
            for name, text in ((metric, first), ("nll", nll)):
                half = 0.51 * 10 ** -len(text.split(".")[1])
                assert float(text) == pytest.approx(statistics.fmean(row[name] for row in own), abs=half), (task, model)


def test_the_documentation_s_times_are_the_record_s() -> None:
    for row in RECORD["times"]:
        assert f"{row['task']} {row['rcad ratio']:.1f}" in DOCUMENT
        assert row["rcad ratio"] <= 3, "a fit takes at most three times as long as that of scikit-learn's MLP"
    for name, words in (
        ("rcad", "{} to {} times as long"),
        ("erm", "{} to {} times with"),
        ("weighted", "{} to\n{} times"),
    ):
        ratios = [row[f"{name} ratio"] for row in RECORD["times"]]
        assert words.format(f"{min(ratios):.1f}", f"{max(ratios):.1f}") in DOCUMENT
