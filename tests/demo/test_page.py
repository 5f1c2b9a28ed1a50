"""The demo's page and table, from a record alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rcad.demo.page import HEADER, page, rows, spread
from rcad.demo.run import run_demo
from rcad.demo.verdicts import verdicts

for package in ("jinja2", "matplotlib", "scipy", "sklearn"):
    pytest.importorskip(package)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run_demo(tmp_path_factory.mktemp("demo") / "out", lambda *told: None, fast=True).record


def test_a_row_for_each_method_of_each_act(record: dict[str, Any]) -> None:
    _, comparisons = verdicts(record["results"])
    table = rows(record, comparisons)
    assert len(table) == 3 + 5 + 6 + 6 + 5
    assert all(len(row) == len(HEADER) for row in table)
    for row in table:
        is_judged = row[1] not in ("ERM", "RCAD") or (row[1] == "ERM" and row[0] != "linear theory")
        assert (row[-1] in ("wins", "loses", "undecided")) == is_judged, row


@pytest.fixture(scope="module")
def text(record: dict[str, Any]) -> str:
    return page(record, verdicts(record["results"])[1])


def test_a_run_that_diverged_is_counted(record: dict[str, Any]) -> None:
    assert spread([1.0, None], "nll") == "1 of 2 diverged"
    assert spread([90.0, 91.0], "accuracy") == "90.5 ± 0.7%"
    moons = record["results"]["moons"]
    broken = {**moons["methods"], "fgsm": {"accuracy": [None, 80.0], "nll": [None, 0.5]}}
    results = {**record["results"], "moons": {**moons, "methods": broken}}
    sentences, comparisons = verdicts(results)
    text = page({**record, "results": results, "verdicts": sentences}, comparisons)
    assert "1 of 2 diverged" in text
    assert "a run that diverged" in text


def test_verdicts_and_acts_are_on_the_page(record: dict[str, Any], text: str) -> None:
    for sentence in record["verdicts"].values():
        assert sentence.splitlines()[-1] in text
    assert "its numbers mean nothing" in text
    assert text.count("<svg ") == 3 + 5 + 2 + 3 * 2
    assert text.count("<table>") == 1 + 1 + 1 + 3


def test_the_record_alone_gives_the_page_again(record: dict[str, Any], text: str) -> None:
    again = json.loads(json.dumps({**record, "scale": "full"}))
    plain = page(again, verdicts(again["results"])[1])
    trial = " This was a trial of seconds: its numbers mean nothing."
    assert plain == text.replace(trial, "").replace("rcad demo --fast", "rcad demo")
