"""`rcad compare`: from a table to a report that claims no more than the test does."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from cli.conftest import Cli, Refused, interrupted
from made import files, saved, table
from rcad.errors import InputError
from rcad.runs.store import Store
from rcad.study.compare import split_methods

pytestmark = pytest.mark.usefixtures("undrawn")

OUT = Path("rcad-compare")
COMPARE = ("compare", "--data", "my.csv", "--target", "price", "--epochs", 3, "--budget", 2, "--seeds", 3)


@pytest.fixture(autouse=True)
def _data() -> None:
    files(my_dot_csv=table())


def test_a_table_with_categories(done: Cli) -> None:
    result = done(*COMPARE)
    record = saved(OUT / "compare.json")
    assert list(record["methods"]) == ["erm", "rcad", "rcad_random", "confidence_penalty"]
    assert record["metrics"] == ["nll", "rmse"]
    assert all(cell["runs"] == 6 for cell in record["methods"].values())
    assert record["test_ratio"] == pytest.approx(12 / 48)
    assert record["sentences"][0] in result.out
    assert "<h1>Does it help on my.csv?</h1>" in (OUT / "index.html").read_text()
    assert record["sentences"][0] in (OUT / "compare.md").read_text()
    assert not Path("runs").exists()  # tables are trained side by side, in memory


def test_the_options_of_training_are_those_of_train(cli: Cli) -> None:
    words = ("--no-controls", "--epochs", 1, "--budget", 1, "--lr", 0.002, "--batch-size", 16)
    record = cli(*COMPARE, *words, "--json").json()
    assert "--set train.batch_size=16 --set optim.lr=0.002" in record["command"]
    assert "nothing.safetensors" in cli(*COMPARE, "--out", "other", "--weights", "nothing.safetensors").err


def test_few_rows_to_choose_by_are_told(cli: Cli) -> None:
    words = (*COMPARE, "--target", "colour", "--no-controls", "--epochs", 1)
    result = cli(*words, "--json")  # 5 of 60 rows are held out; each split chooses for itself
    (line,) = result.err.splitlines()
    assert line.startswith(
        "rcad: on each split hyperparameters are chosen by 5 validation examples, so few that small differences"
    )
    record = result.json()
    assert list(record["methods"]) == ["erm", "label_smoothing", "rcad"]
    assert record["metrics"] == ["nll", "accuracy", "brier"]
    assert "--no-controls" in record["command"]
    told = record["held_out"]["told"]
    assert all(told in (OUT / name).read_text() for name in ("index.html", "compare.md"))
    assert cli(*words, "--budget", 1, "--out", "one", "--json").err == ""
    assert told not in Path("one/compare.md").read_text()


def test_the_first_line_answers_the_question_and_says_what_to_do(done: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = done(*COMPARE, "--metric", "rmse")
    lines = result.out.splitlines()
    assert "elapsed" in result.err
    assert lines[0].startswith("RMSE: rcad ")
    assert lines[lines.index("") + 1].startswith("Next. ")
    (command,) = (line for line in lines if line.startswith("  rcad "))
    assert max(len(line) for line in lines if line != command) <= 80
    done(*shlex.split(command)[1:], "--quiet")


def test_the_same_command_trains_nothing_twice(done: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    done(*COMPARE, "--quiet")
    before = saved(OUT / "compare.json")

    def never(*args: object, **options: object) -> None:
        raise AssertionError

    monkeypatch.setattr("rcad.study.backends.train_configs", never)
    result = done(*COMPARE)
    assert result.err.count("there already") == 4
    assert saved(OUT / "compare.json") == before


def test_images_go_through_the_store(done: Cli) -> None:
    words = ("--methods", "rcad", "--no-controls", "--seeds", 3, "--epochs", 1)
    result = done("compare", "--data", "digits[:60]", *words)
    assert len(Store.open(OUT / "runs").ids()) == 6
    record = saved(OUT / "compare.json")
    assert record["budget"] == 1
    tested = {run.metrics["test_accuracy"] for run in Store.open(OUT / "runs").records()}
    shown = {v for r in record["results"].values() for v in r["accuracy"]["values"].values()}
    assert shown == tested
    # What a run took is in its record, also where it had been trained before.
    took = sum(run.timings["train_seconds"] or 0.0 for run in Store.open(OUT / "runs").records())
    assert sum(cell["seconds"] for cell in record["methods"].values()) == pytest.approx(took)
    assert "test_accuracy" not in result.out  # no run's test number is shown on the way
    passes = {name: cell["passes"] for name, cell in record["methods"].items()}
    assert passes == {"erm": 3.0, "rcad": 6.0}
    assert "s of time" not in result.err + (OUT / "compare.md").read_text()


def test_ctrl_c_keeps_what_is_done(cli: Cli) -> None:
    words = (*COMPARE, "--epochs", 150, "--methods", "rcad,me_ada")
    found = interrupted(*words, when=(OUT / "compare.json").exists)
    assert found.code == 130, found.err
    assert "run the same command to continue" in found.err
    kept = saved(OUT / "compare.json")["methods"]
    assert 1 <= len(kept) < 5
    assert cli(*words).err.count("there already") == len(kept)


def test_nothing_in_the_folder_is_lost(done: Cli, refused: Refused) -> None:
    done(*COMPARE, "--quiet")
    for words, says in (
        (("--seeds", 2), "expected seeds [0, 1, 2] as in rcad-compare/compare.json"),
        (("--budget", 3), "expected budget 2"),
        (("--epochs", 2), "expected epochs 3"),
        (("--metric", "rmse"), "expected metric nll"),
        (("--methods", "erm,adversarial_training", "--no-controls"), "rcad is not among them"),
        (("--target", "colour"), "compares on 'my.csv'; pass another --out"),
    ):
        refused(*COMPARE, *words, says=says)
    files(site__index_dot_html="mine")
    refused(*COMPARE, "--out", "site", says="site/index.html is something else")


def test_methods_are_parted_by_commas_outside_brackets() -> None:
    methods = ["erm", "rcad(alpha=1, lam=0.1)", "mixup + rcad"]
    assert split_methods("erm, rcad(alpha=1, lam=0.1),mixup + rcad") == methods
    with pytest.raises(InputError):
        split_methods("")
