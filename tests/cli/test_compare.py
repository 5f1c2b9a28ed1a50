"""`rcad compare`: from a table to a report that claims no more than the test does."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.conftest import Cli
from made import files, table
from rcad.errors import InputError
from rcad.runs.store import Store
from rcad.study.compare import split_methods

OUT = Path("rcad-compare")
COMPARE = ("compare", "--data", "my.csv", "--target", "price", "--epochs", 3, "--budget", 2, "--seeds", 3)


@pytest.fixture(autouse=True)
def _data() -> None:
    files(my_dot_csv=table())


def test_a_table_with_categories(cli: Cli) -> None:
    result = cli(*COMPARE)
    assert result.code == 0, result.err
    record = json.loads((OUT / "compare.json").read_text())
    assert list(record["methods"]) == ["erm", "rcad", "rcad_random", "confidence_penalty"]
    assert record["metrics"] == ["nll", "rmse"]
    assert all(cell["runs"] == 6 for cell in record["methods"].values())
    assert record["test_ratio"] == pytest.approx(12 / 48)
    assert record["sentences"][0] in result.out
    assert "<h1>Does it help on my.csv?</h1>" in (OUT / "index.html").read_text()
    assert record["sentences"][0] in (OUT / "compare.md").read_text()
    assert not Path("runs").exists()  # tables are trained side by side, in memory


def test_few_rows_to_choose_by_are_told(cli: Cli) -> None:
    words = (*COMPARE, "--target", "colour", "--no-controls", "--epochs", 1)
    result = cli(*words, "--json")  # 5 of 60 rows are held out; each split chooses for itself
    (line,) = result.err.splitlines()
    assert line.startswith("rcad: on each split chosen by 5 held-out examples, so few that small differences")
    told = json.loads(result.out)["held_out"]["told"]
    assert all(told in (OUT / name).read_text() for name in ("index.html", "compare.md"))
    assert cli(*words, "--budget", 1, "--out", "one", "--json").err == ""
    assert told not in Path("one/compare.md").read_text()


def test_the_first_line_answers_the_question_and_says_what_to_do(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = cli(*COMPARE, "--metric", "rmse")
    lines = result.out.partition("\n\n")[2].splitlines()
    assert lines[0].startswith("RMSE: rcad ")
    assert lines[lines.index("") + 1].startswith("Next. ")
    (command,) = (line for line in lines if line.startswith("  rcad "))
    assert max(len(line) for line in lines if line != command) <= 80
    assert cli(*shlex.split(command)[1:], "--quiet").code == 0
    assert cli(*COMPARE, "--metric", "accuracy", "--out", "x").code == 2  # a metric of labels
    assert cli(*COMPARE, "--metric", "nll").code == 2  # the folder holds another question


def test_labels_and_no_controls(cli: Cli) -> None:
    result = cli(
        "compare", "--data", "my.csv", "--target", "colour", "--epochs", 2, "--seeds", 3, "--no-controls", "--json"
    )
    record = json.loads(result.out)
    assert list(record["methods"]) == ["erm", "label_smoothing", "rcad"]
    assert record["metrics"] == ["nll", "accuracy", "brier"]
    assert record["budget"] == 8
    assert all(Path(file).is_file() for file in record["files"])
    assert "--no-controls" in record["command"]


def test_the_same_command_trains_nothing_twice(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli(*COMPARE, "--quiet").code == 0
    before = json.loads((OUT / "compare.json").read_text())

    def never(*args: object, **options: object) -> None:
        raise AssertionError

    monkeypatch.setattr("rcad.study.backends.train_configs", never)
    result = cli(*COMPARE)
    assert result.code == 0
    assert result.out.count("there already") == 4
    assert json.loads((OUT / "compare.json").read_text()) == before


def test_a_method_more_trains_that_one_only(cli: Cli) -> None:
    assert cli(*COMPARE, "--methods", "rcad", "--quiet").code == 0
    result = cli(*COMPARE, "--methods", "rcad, me_ada")
    assert result.out.count("there already") == 4
    assert "me_ada: 6 runs" in result.out


def test_images_go_through_the_store(cli: Cli) -> None:
    words = ("--methods", "rcad", "--no-controls", "--seeds", 3, "--epochs", 1)
    result = cli("compare", "--data", "digits[:60]", *words)
    assert result.code == 0, result.err
    assert len(Store.open(OUT / "runs").ids()) == 6
    record = json.loads((OUT / "compare.json").read_text())
    assert record["budget"] == 1
    tested = {run.metrics["test_accuracy"] for run in Store.open(OUT / "runs").records()}
    shown = {v for r in record["results"].values() for v in r["accuracy"]["values"].values()}
    assert shown == tested
    # What a run took is in its record, also where it had been trained before.
    took = sum(run.timings["train_seconds"] or 0.0 for run in Store.open(OUT / "runs").records())
    assert sum(cell["seconds"] for cell in record["methods"].values()) == pytest.approx(took)
    assert "test_accuracy" not in result.out  # no run's test number is shown on the way


def test_other_data_do_not_replace_a_report(cli: Cli) -> None:
    assert cli(*COMPARE, "--quiet").code == 0
    before = (OUT / "index.html").read_bytes()
    result = cli("compare", "--data", "my.csv", "--target", "colour", "--epochs", 1, "--seeds", 3)
    assert result.code == 2
    assert "pass another --out" in result.err
    assert (OUT / "index.html").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--methods", "erm,label_smoothing"), "expected methods for real targets (erm, "),
        (("--methods", "erm,mixup"), "'mixup'"),
        (("--methods", " , "), "--methods"),
        (("--methods", "erm,rcda"), "did you mean 'rcad'?"),
        (("--methods", "rcad(alpha=-1)"), "expected alpha to be"),
        (("--methods", "rcad(alpha=auto)"), "to measure alpha=auto"),
        (("--methods", "erm", "--no-controls"), "expected a method to compare ERM with, but got erm; "),
        (("--budget", 0), "expected budget to be a whole number >= 1"),
        (("--seeds", "x"), "--seeds"),
        (("--target", "nothing"), "nothing"),
        (("--set", "data.validation=0", "--set", "train.selection=last"), "held-out split"),
        (("--set", "data.seed=0"), "expected a split for each seed, but got data.seed=0; leave it out"),
        (("--set", "data.split=3"), "but got data.split=3"),
        (("--device", "toaster"), "--device"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_trace(cli: Cli, words: tuple[str, ...], said: str) -> None:
    result = cli(*COMPARE, *words)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert result.err.count("\n") == 1
    assert not OUT.exists()


def test_without_scipy_it_says_what_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    result = cli(*COMPARE)
    assert (result.code, result.out) == (2, "")
    assert 'pip install "rcad[data]"' in result.err


def test_ctrl_c_keeps_what_is_done(cli: Cli) -> None:
    words = [str(word) for word in (*COMPARE, "--epochs", 150, "--methods", "rcad,me_ada")]
    command = [sys.executable, "-m", "rcad.cli", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not (OUT / "compare.json").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "the same command goes on from here" in err
    kept = json.loads((OUT / "compare.json").read_text())["methods"]
    assert 1 <= len(kept) < 5
    result = cli(*words)
    assert result.out.count("there already") == len(kept)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--seeds", 2), "seeds"),
        (("--budget", 3), "budget"),
        (("--epochs", 2), "epochs"),
        (("--methods", "erm,adversarial_training", "--no-controls"), "rcad is not among them"),
    ],
)
def test_nothing_in_the_folder_is_lost(words: tuple[object, ...], says: str, cli: Cli) -> None:
    assert cli(*COMPARE, "--quiet").code == 0
    before = (OUT / "compare.json").read_bytes()
    refused = cli(*COMPARE, *words)
    assert refused.code == 2
    assert says in refused.err
    assert "pass another --out" in refused.err
    assert (OUT / "compare.json").read_bytes() == before


def test_methods_are_parted_by_commas_outside_brackets() -> None:
    assert split_methods("erm, rcad(alpha=1, lam=0.1),mixup + rcad") == [
        "erm",
        "rcad(alpha=1, lam=0.1)",
        "mixup + rcad",
    ]
    with pytest.raises(InputError):
        split_methods("")
