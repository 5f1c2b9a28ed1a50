"""`rcad tune`: trials by the held-out split, gone on with, told as a command and a page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Cli, Refused, interrupted
from made import files, saved, table
from rcad.runs.store import Store
from rcad.train import run as execution

pytestmark = pytest.mark.usefixtures("undrawn")

TUNE = ("tune", "--data", "my.csv", "--target", "colour", "--method", "rcad", "--epochs", 2)


@pytest.fixture(autouse=True)
def _data() -> None:
    files(my_dot_csv=table())


def record(name: str = "rcad") -> dict[str, Any]:
    found: dict[str, Any] = saved(f"rcad-tune/{name}.json")
    return found


def test_a_search_from_end_to_end(done: Cli) -> None:
    result = done(*TUNE, "--budget", 4, "--seeds", 2)
    found = record()
    assert [one["number"] for one in found["trials"]] == [1, 2, 3, 4]
    assert all(len(one["runs"]) == 2 for one in found["trials"])
    scores = [(one["metrics"]["accuracy"], -one["metrics"]["nll"]) for one in found["trials"]]
    assert found["best"] == scores.index(max(scores)) + 1
    assert {one.suffix or one.name for one in Path("rcad-tune").iterdir()} == {".json", ".html", ".png", ".svg", "runs"}
    assert found["command"] in result.out
    assert "test_" not in result.out
    assert {name for one in found["trials"] for name in one["metrics"]} == {"accuracy", "nll", "brier"}
    assert not any(name in Path("rcad-tune/rcad.json").read_text() for name in ("test_accuracy", "test_nll"))


def test_few_examples_to_choose_by_are_told(cli: Cli) -> None:
    words = (*TUNE, "--epochs", 1, "--budget", 2)
    result = cli(*words, "--seeds", 2, "--json")  # 5 of 60 rows are held out
    (line,) = result.err.splitlines()
    assert line.startswith(
        "rcad: the best is chosen by 5 validation examples on each of 2 seeds: an accuracy over them is"
    )
    assert "uncertain by 31 points" in line
    held = result.json()["held_out"]
    assert (held["examples"], held["seeds"]) == (5, 2)
    assert held["told"] in Path("rcad-tune/rcad.html").read_text()
    assert "chosen by 5 validation examples, so few" in cli(*words, "--by", "nll", "--out", "other").err
    # Nothing is chosen by a single trial, and enough examples need no word.
    assert cli(*words, "--budget", 1, "--out", "one", "--quiet").err == ""
    many = ("tune", "--data", "digits", "--method", "erm", "--epochs", 1, "--set", "data.validation=0.08")
    assert cli(*many, "--budget", 2, "--out", "many", "--quiet").err == ""


def test_the_line_it_prints_trains_the_best(done: Cli, cli: Cli) -> None:
    done(*TUNE, "--budget", 3, "--seeds", 2, "--set", "train.batch_size=16", "--quiet")
    found = record()
    runs = found["trials"][found["best"] - 1]["runs"]
    again = cli(*shlex.split(found["command"])[1:], "--json")
    assert [one["id"] for one in again.json()] == runs
    assert len(Store.open("rcad-tune/runs").ids()) == 6
    assert len(Store.open("runs").ids()) == 2  # trials are kept apart from what the user trains


def test_a_field_can_be_tuned_too(cli: Cli) -> None:
    words = ("--method", "erm", "--space", "optim.lr=log(0.001, 0.1), train.batch_size=int(8, 32)", "--budget", 3)
    result = cli("tune", "--data", "my.csv", "--target", "price", "--epochs", 1, *words, "--json")
    found = result.json()
    assert found["trials"][0]["values"] == {"optim.lr": 0.001, "train.batch_size": 32}
    assert found["metric"] == "nll"
    again = cli(*shlex.split(found["command"])[1:], "--json")
    assert again.json()[0]["id"] == found["trials"][found["best"] - 1]["runs"][0]


def test_a_parameter_that_was_set_does_not_undo_the_choice(done: Cli, cli: Cli) -> None:
    """--set method.lam=0.3 is where the search over lam begins, and must not come back in the line."""
    words = ("--set", "method.lam=0.3", "--set", "method.norm=linf", "--space", "lam=choice(0.1, 0.2)")
    done(*TUNE, *words, "--search", "grid", "--budget", 2, "--quiet")
    found = record()
    again = cli(*shlex.split(found["command"])[1:], "--json")
    assert again.json()[0]["id"] == found["trials"][found["best"] - 1]["runs"][0]
    assert "linf" in found["command"]


def test_ctrl_c_keeps_what_is_done(done: Cli, cli: Cli) -> None:
    words = (*TUNE, "--epochs", 10, "--budget", 200)
    found = interrupted(*words, when=lambda: len(list(Path("rcad-tune/runs").glob("*/record.json"))) >= 3)
    assert found.code == 130, found.err
    assert "of 200 trials; run the same command to continue" in found.err
    done = len(record()["trials"])
    assert 1 <= done < 200
    assert "not finished" in Path("rcad-tune/rcad.html").read_text()
    assert cli(*words, "--budget", done).err.count("done already") == done


def test_the_choice_does_not_depend_on_the_test_split(done: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """With test numbers that favour the last trial the best stays what it was."""
    done(*TUNE, "--budget", 4, "--quiet")
    before = record()
    measure, count = execution.measure, iter(range(1, 100))

    def lying(model: Any, problem: Any, x: Any, y: Any, **options: Any) -> dict[str, float]:
        if x is problem.test[0]:  # of the last epoch, then of the selected one
            return {"accuracy": float(next(count)), "nll": 0.0, "brier": 0.0}
        return measure(model, problem, x, y, **options)

    monkeypatch.setattr(execution, "measure", lying)
    done(*TUNE, "--budget", 4, "--quiet", "--runs", "other", "--out", "other-tune")
    after = saved("other-tune/rcad.json")
    assert {one.metrics["test_accuracy"] for one in Store.open("other").records()} == {2.0, 4.0, 6.0, 8.0}
    assert after["best"] == before["best"]
    assert [one["metrics"] for one in after["trials"]] == [one["metrics"] for one in before["trials"]]


def test_a_larger_budget_keeps_what_is_there(done: Cli, cli: Cli) -> None:
    done(*TUNE, "--budget", 2, "--quiet")
    runs = set(Store.open("rcad-tune/runs").ids())
    result = cli(*TUNE, "--budget", 3)
    assert result.err.count("done already") == 2
    assert set(Store.open("rcad-tune/runs").ids()) > runs
    assert len(record()["trials"]) == 3


def test_grid_and_optuna(done: Cli) -> None:
    done(*TUNE, "--search", "grid", "--budget", 5, "--out", "g", "--quiet")
    assert len(saved("g/rcad.json")["trials"]) == 4
    pytest.importorskip("optuna")
    done(*TUNE, "--search", "optuna", "--budget", 3, "--out", "o", "--quiet")
    first = saved("o/rcad.json")
    done(*TUNE, "--search", "optuna", "--budget", 3, "--out", "o", "--quiet")
    assert saved("o/rcad.json") == first


def test_every_trial_diverged(cli: Cli) -> None:
    result = cli(*TUNE, "--budget", 2, "--set", "optim.lr=1e30", "--quiet")
    assert result.code == 1
    assert "Every trial diverged" in result.out
    assert record()["best"] is None


def test_another_search_is_not_overwritten(done: Cli, refused: Refused) -> None:
    done(*TUNE, "--budget", 1, "--quiet")
    refused(*TUNE, "--budget", 1, "--seeds", 2, says="other settings")
