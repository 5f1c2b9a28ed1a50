"""The demo's acts are judged as a comparison is, and its page says what its record says."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from contracts.house import without_pictures
from rcad.demo import ACTS, FAST, FULL, SHARES, _judged, document, linear, run_demo, table, verdicts
from rcad.report import html, terminal
from rcad.study.compare_page import sentences
from rcad.train.progress import SILENT, Silent

for package in ("jinja2", "matplotlib", "scipy", "sklearn"):
    pytest.importorskip(package)


TOLD: list[tuple[float, float]] = []


class Seen(Silent):
    def overall(self, done: float, total: float, text: str) -> None:
        TOLD.append((done, total))


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    TOLD.clear()
    with without_pictures():
        return run_demo(tmp_path_factory.mktemp("demo"), Seen(), fast=True)[0]


def test_the_linear_theory_is_that_of_the_paper() -> None:
    act = linear(FAST, SILENT)
    question = act["question"]
    assert (question["method"], question["outcome"], question["n"]) == ("rcad(alpha=0.7)", "better", 20)
    assert act["results"]["erm"]["accuracy"]["summary"]["mean"] == pytest.approx(70, abs=6)


def test_numbers_become_a_question_and_a_lost_run_decides_nothing() -> None:
    results = {"erm": {"accuracy": [1.0, 2.0, 3.0]}, "rcad": {"accuracy": [2.1, 3.0, 4.2]}}
    seconds = dict.fromkeys(results, 1.0)
    act = _judged(results, seconds)
    assert act["question"]["mean"] == pytest.approx(1.1)
    assert act["sentences"][0].startswith("Accuracy: rcad is better than ERM")
    results["rcad"]["accuracy"][1] = math.nan
    assert "1 of the runs diverged" in _judged(results, seconds)["sentences"][0]


@pytest.mark.usefixtures("undrawn")
def test_every_act_is_on_the_page_and_in_the_table(record: dict[str, Any]) -> None:
    assert list(record["results"]) == list(ACTS) == list(SHARES)
    rows = table(record).cells
    assert {row[0].text for row in rows} == set(ACTS.values())
    assert all(row[2].text for row in rows)
    text = html.page(document(record))
    for name, act in record["results"].items():
        assert ACTS[name] in text
        assert html._prose(act["sentences"][0]) in text
    assert list(verdicts(record["results"])) == ["linear", "moons", "few_labels"]
    assert "its numbers mean nothing" in text
    assert text.count("<svg") == 2 + sum(2 * min(len(act["metrics"]), 2) for act in record["results"].values())


def judged(record: dict[str, Any], outcome: str) -> dict[str, Any]:
    """The trial as if it were whole and every comparison had come out like this."""
    acts = {}
    for name, act in record["results"].items():
        pairs = [{**one, "outcome": outcome} for one in act["differences"]]
        whole = {**act, "differences": pairs, "question": pairs[0]}
        acts[name] = {**whole, "sentences": sentences(whole)}
    return {**record, "scale": "full", "results": acts}


@pytest.mark.parametrize(("outcome", "word"), [("better", "wins"), ("worse", "loses"), ("undecided", "undecided")])
def test_the_sentences_say_what_the_table_says(record: dict[str, Any], outcome: str, word: str) -> None:
    whole = judged(record, outcome)
    assert {row[-1].text for row in table(whole).cells} == {word, ""}
    told = list(verdicts(whole["results"]).values())
    assert sum(text.count(f" is {outcome} than ERM (") for text in told) == (0 if outcome == "undecided" else len(ACTS))
    for other in {"better", "worse"} - {outcome}:
        assert f"is {other} than" not in " ".join(told)
    assert (" is not shown to differ from ERM" in " ".join(told)) == (outcome == "undecided")


def test_a_trial_judges_nothing(record: dict[str, Any]) -> None:
    page = terminal.text(document(record), 80)
    for word in ("better than", "worse than", "wins", "undecided"):
        assert word not in " ".join([*verdicts(record["results"]).values(), page.partition("How it was judged")[0]])
    assert "better than ERM" in terminal.text(document(judged(record, "better")), 80)


def test_it_fits_eighty_columns(record: dict[str, Any]) -> None:
    lines = terminal.text(document(record), 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1].startswith("  python -c 'import rcad")  # it ends with what to do next


def test_the_time_left_is_told_over_all_acts(record: dict[str, Any]) -> None:
    assert {total for _, total in TOLD} == {sum(SHARES.values())}
    done = [one for one, _ in TOLD]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, sum(SHARES.values()))


def test_one_thread_whatever_the_machine_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import torch

    threads = []
    for name in ACTS:
        monkeypatch.setattr(f"rcad.demo.{name}", lambda settings, progress: threads.append(torch.get_num_threads()))
    monkeypatch.setattr("rcad.demo.verdicts", lambda results: {})
    monkeypatch.setattr("rcad.demo.document", lambda record: None)
    monkeypatch.setattr("rcad.demo.html.page", lambda document: "")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run_demo(tmp_path / "out", SILENT)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert threads == [1] * len(ACTS)
    assert FULL != FAST
