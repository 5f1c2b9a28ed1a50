"""`rcad demo`: judged as a comparison is; a table, verdicts, a record and one page that needs nothing else."""

import math
import os
import re
import signal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from browser import BROWSER, Tree, seen
from cli.conftest import Refused
from contracts.house import rcad, workplace
from forked import Forked, until
from made import files, saved
from rcad import demo as acts
from rcad.report import html, terminal
from rcad.study.compare_page import sentences
from rcad.train.progress import SILENT

for package in ("jinja2", "matplotlib", "scipy", "sklearn"):
    pytest.importorskip(package)
PAGE, RECORD = Path("rcad-demo/index.html"), Path("rcad-demo/demo.json")


class Made(NamedTuple):
    page: Path
    lines: list[str]
    record: dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A trial: the page, the lines that it printed, and its record."""
    with workplace(tmp_path_factory.mktemp("demo")) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        files(**{"rcad-demo__demo_dot_json": '{"target": "demo", "scale": "fast"}'})  # an earlier one may be replaced
        result = rcad("demo --fast")
        assert result.code == 0, result.err
        assert sorted(path.name for path in PAGE.parent.iterdir()) == ["demo.json", "index.html"]
        return Made(folder / PAGE, result.out.splitlines(), saved(RECORD))


def test_what_is_printed(made: Made) -> None:
    lines = made.lines
    assert lines[0].startswith("loading torch")  # before anything is loaded
    assert lines[lines.index("") + 1] == acts.TRIAL
    assert not re.search("wins|better than|worse than", "\n".join(lines))
    rows = lines[next(k for k, line in enumerate(lines) if line.startswith("──")) + 1 :]
    end = next(k for k, row in enumerate(rows) if row.startswith("RCAD better by: points of accuracy on linear theory"))
    assert all(row.endswith("a trial") for row in rows[:end])  # no row is empty, none is cut in two
    assert lines[-1] == f"  {PAGE}"
    assert max(map(len, rows)) <= 80


def test_the_record_and_the_page(made: Made) -> None:
    record, text = made.record, made.page.read_text()
    assert (record["target"], record["scale"]) == ("demo", "fast")
    assert {"results", "settings", "versions", "verdicts", "seconds"} <= record.keys()
    assert list(record["verdicts"]) == ["linear", "moons", "few_labels"]
    assert list(record["results"]) == list(acts.ACTS) == list(acts.SHARES)
    rows = acts.table(record).cells
    assert {row[0].text for row in rows} == set(acts.ACTS.values())
    assert all(html._prose(act["sentences"][0]) in text for act in record["results"].values())
    for tag, link in Tree(text).links:
        assert link.startswith(("#", "data:")), (tag, link)
    figures = 2 + sum(2 * min(len(act["metrics"]), 2) for act in record["results"].values())
    assert len(re.findall(r"<svg .*?</svg>", text, re.DOTALL)) == figures
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names))
    if BROWSER is not None:
        assert seen(made.page, made.page.parent).count("<svg ") == figures


def test_the_linear_theory_is_that_of_the_paper() -> None:
    act = acts.linear(acts.FAST, SILENT)
    assert [act["question"][key] for key in ("method", "outcome", "n")] == ["rcad(alpha=0.7)", "better", 20]
    assert act["results"]["erm"]["accuracy"]["summary"]["mean"] == pytest.approx(70, abs=6)


def test_numbers_become_a_question_and_a_lost_run_decides_nothing(made: Made) -> None:
    rows = {"erm": [1.0, 2.0, 3.0], "rcad": [2.1, 3.0, 4.2], "me_ada": [3.0, 4.0, 5.0], "mixup": [0.0, 1.0, 2.0]}
    results, seconds = {name: {"accuracy": row} for name, row in rows.items()}, dict.fromkeys(rows, 1.0)
    act = acts._judged(results, seconds)
    assert act["question"]["mean"] == pytest.approx(1.1)
    assert act["sentences"][0].startswith("Accuracy: rcad is better than ERM")
    # A rival above RCAD is shown where there is little room.
    assert acts.answers(act)[-1] == "Not tested: me_ada has 4.0 ± 1.0% and rcad has 3.1 ± 1.1%."
    record = {**made.record, "scale": "full", "results": {"moons": act}}
    shown = [(row[1].text, row[4].text) for row in acts.table(record, judged=True).cells]
    assert (shown[0][0], shown[1:]) == ("erm", [("me_ada", "-0.900")])
    rows["rcad"][1] = math.nan
    assert "1 of the runs diverged" in acts._judged(results, seconds)["sentences"][0]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("outcome", "word"), [("better", "wins"), ("worse", "loses"), ("undecided", "undecided")])
def test_the_sentences_say_what_the_table_says(made: Made, outcome: str, word: str) -> None:
    """Of the trial as if it were whole and every comparison had come out like this."""
    results = {}
    for name, act in made.record["results"].items():
        pairs = [{**one, "outcome": outcome} for one in act["differences"]]
        whole = {**act, "differences": pairs, "question": pairs[0]}
        results[name] = {**whole, "sentences": sentences(whole)}
    record = {**made.record, "scale": "full", "results": results}
    assert {row[-1].text for row in acts.table(record).cells} == {word, ""}
    told = " ".join(acts.verdicts(results).values())
    for one in ("better", "worse"):
        assert told.count(f" is {one} than ERM (") == (len(acts.ACTS) if one == outcome else 0)
    assert (" is not shown to differ from ERM" in told) == (outcome == "undecided")
    lines = terminal.text(acts.document(record), 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert ("better than ERM" in " ".join(lines)) == (outcome == "better")


def test_what_is_not_a_demo_is_not_replaced(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "linear", lambda *arguments: pytest.fail("computed"))
    files(site__index_dot_html="mine", file="", full__demo_dot_json='{"target": "demo", "scale": "full"}')
    for out, says in (("site", "site/index.html is something else"), ("full", "full scale"), ("file", "file")):
        refused("demo", "--fast", "--out", out, says=says)


def test_an_interruption_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rcad.train.progress.Lines.seconds", 0.0)
    process = Forked("demo", "--out", "out")
    until(lambda: any(f"\n{act}" in process.said() for act in acts.ACTS.values()))  # one of them is under way
    os.kill(process.pid, signal.SIGINT)
    found = process.end()
    assert (found.code, found.err.splitlines()[-1]) == (130, "rcad: interrupted")
    assert not Path("out").exists()
