"""Every way out of the command; whatever the user gets wrong is one line that names it, and nothing is written."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.conftest import Cli, Refused
from forked import Forked
from made import files, saved, table
from trained import run_id

pytestmark = pytest.mark.usefixtures("undrawn")


def fails(monkeypatch: pytest.MonkeyPatch, error: BaseException, *names: str) -> None:
    def raises(*arguments: object, **options: object) -> None:
        raise error

    for name in names or ("rcad.cli.methods.table",):
        monkeypatch.setattr(name, raises)


def test_the_unexpected_is_one_line_with_a_hint_that_works(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    fails(monkeypatch, RuntimeError("no\nsuch thing"))
    hint = "rcad: unexpected RuntimeError: no such thing; run it again with RCAD_TRACEBACK=1 to see where\n"
    assert cli("methods", "list") == (1, "", hint)
    for value, is_shown in (("1", True), ("0", False)):
        monkeypatch.setenv("RCAD_TRACEBACK", value)
        assert ("Traceback" in cli("methods", "list").err) == is_shown
    fails(monkeypatch, KeyboardInterrupt())
    monkeypatch.delenv("RCAD_TRACEBACK")
    assert cli("methods", "list") == (130, "", "rcad: interrupted\n")


@pytest.mark.parametrize("command", ["tune --method rcad --runs runs", "compare --seeds 2", "evaluate all"])
def test_a_report_that_cannot_be_written_costs_no_training(
    command: str, done: Cli, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(my_dot_csv=table())
    data = ("--data", "my.csv", "--target", "colour", "--epochs", "1")
    done("train", *data, "--method", "erm", "--quiet")
    works = ("study.backends.schedule", "study.backends.train_configs", "evaluate.saved_run.run._measure")
    fails(monkeypatch, AssertionError("work before the folder was tried"), *(f"rcad.{work}" for work in works))
    words = (*command.split(), *(() if command.startswith("evaluate") else data), "--out", "my.csv/x")
    says = "rcad: expected my.csv/x to be a folder that can be written, but got: Not a directory; choose another\n"
    refused(*words, says=says)


MISSING = """
optuna, optuna, tune, tune --data my.csv --target colour --method rcad --search optuna
scipy.stats, scipy, data, compare --data my.csv --target colour
matplotlib.figure, matplotlib, report, suggest-alpha --data no-such-data --figure a.png
torch.utils.tensorboard, tensorboard, tensorboard, train --data digits --method erm --tensorboard
wandb, wandb, wandb, compare --data my.csv --target colour --track wandb
mlflow, mlflow-skinny, mlflow, paper run T8 --scale smoke --track mlflow
ray, ray, ray, train --data digits[:100] --method erm --seeds 2 --executor ray
ray, ray, ray, compare --data digits[:100] --epochs 1 --methods erm,rcad --executor ray
ray, ray, ray, tune --data digits[:100] --epochs 1 --budget 1 --method rcad --executor ray
ray, ray, ray, paper run T4 --scale smoke --executor ray --dry-run
jinja2, jinja2, report, demo --fast
matplotlib.figure, matplotlib, report, evaluate RUN
"""


@pytest.mark.parametrize("row", MISSING.strip().splitlines())
def test_a_missing_package_is_named_before_anything_is_computed(
    row: str, refused: Refused, trained_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, package, extra, words = row.split(", ")
    files(my_dot_csv=table())
    if "RUN" in words:
        shutil.copytree(trained_runs, "runs")
    monkeypatch.setitem(sys.modules, module, None)
    hint = f"in the folder of rcad, pip install -c constraints.txt -e '.[{extra}]'"
    says = f"rcad: expected {package} to be installed: {hint}\n"
    refused(*words.replace("RUN", run_id("erm")).split(), says=says)


def test_without_typer_the_extra_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    for name in [name for name in sys.modules if name.startswith("rcad.cli.") and name != "rcad.cli.main"]:
        monkeypatch.delitem(sys.modules, name)
    hint = "in the folder of rcad, pip install -c constraints.txt -e '.[cli]'"
    assert cli("--help") == (2, "", f"rcad: expected typer to be installed: {hint}\n")


def closed_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def as_a_process(*words: str, **options: Any) -> tuple[int, str]:
    """The exit code, and what stderr says."""
    options = {"stdout": subprocess.PIPE, **options}
    done = subprocess.run([sys.executable, "-m", "rcad.cli", *words], stderr=subprocess.PIPE, text=True, **options)
    return done.returncode, done.stderr


def test_what_is_behind_stdout() -> None:
    assert as_a_process("methods", "show", "rcad", "--raw", stdout=closed_pipe()) == (141, "")
    assert as_a_process("methods", "list", env={**os.environ, "PYTHONIOENCODING": "ascii"}) == (0, "")
    if Path("/dev/full").exists():
        says = "expected room for what is written, but got: No space left on device; free some, and run it again"
        with open("/dev/full", "w") as full:
            assert as_a_process("methods", "list", stdout=full) == (2, f"rcad: {says}\n")


def test_training_outlives_a_closed_pipe() -> None:
    files(my_dot_csv=table(), err="")
    words = ("train", "--data", "my.csv", "--target", "colour", "--method", "erm", "--epochs", "2")
    Forked(*words, told=(closed_pipe(), os.open("err", os.O_WRONLY))).wait()
    assert Path("err").read_text() == ""
    (record,) = Path("runs").glob("*/record.json")
    assert saved(record)["status"] == "done"


SHORT = {
    "DIGITS": "train --data digits --epochs 1",
    "TRAIN": "train --data digits --epochs 1 --method rcad",
    "OWN": "train --method erm --epochs 1 --data",
    "TUNE": "tune --data my.csv --target colour --method rcad",
    "COMPARE": "compare --data my.csv --target price",
    "PAPER": "paper run",
    "SMOKE": "--scale smoke",
}
NINES = "9" * 5000
_, *LINES = Path(__file__).with_name("refused.txt").read_text(encoding="utf-8").splitlines()
REFUSED = [tuple(line.split(" -> ")) for line in LINES]


@pytest.fixture
def bad_files() -> None:
    """A good table, and files of every kind that are not what they seem."""
    files(my_dot_csv=table(), nines_dot_toml=f"seed = {NINES}", empty="", junk="no", junk_dot_xyz="1")
    files(junk_dot_npz=b"PK no", site__evaluation_dot_html="mine", flat__1_dot_png="", folder__fog_dot_npy="x")
    files(d__mine_dot_csv="b", torn__0123456789abcdef__record_dot_json="{")
    files(**{"broken__cifar10__cifar-10-binary_dot_tar_dot_gz": b"junk"})
    for name in ("other.pt", "mine.pt2"):
        torch.save({"head.weight": torch.zeros(3)}, name)


@pytest.mark.usefixtures("bad_files", "undrawn")
@pytest.mark.parametrize(("line", "says"), REFUSED, ids=[line[:60] for line, _ in REFUSED])
def test_one_line_and_nothing_written(
    line: str, says: str, cli: Cli, refused: Refused, request: pytest.FixtureRequest
) -> None:
    """A dry run says the same of a run that cannot begin."""
    ids = {"ERM": run_id("erm"), "BARE": run_id("rcad", 0), "BROKEN": run_id("rcad", 1)}
    if ids.keys() & line.split():
        runs = shutil.copytree(request.getfixturevalue("trained_runs"), Path("runs"))
        (runs / ids["BARE"] / "model.safetensors").unlink()
        (runs / ids["BROKEN"] / "model.safetensors").write_bytes(b"junk")
    words: list[str] = []
    for word in shlex.split(line):
        words += SHORT[word].split() if word in SHORT else [ids.get(word, word).replace("NINES", NINES)]
    refused(*words, says=says)
    if words[0] == "train" and "--dry-run" not in words:
        dry, real = cli("train", "--dry-run", *words[1:]), cli(*words)
        assert (dry.code, dry.err) == (2, real.err)


def test_words_that_no_shell_would_give(refused: Refused) -> None:
    train = ("train", "--data", "digits", "--method")
    refused(*train, "(" * 500 + "rcad", says="a method like")
    refused(*train, "rcad\0", says="a method like")
    refused("train", "--data", "a" * 300, "--method", "erm", says="File name too long")
    refused("runs", "list", "--runs", "a\x1b[31m\nb", says=r"'a\x1b[31m\nb'")
    refused("x" * 400, says="...xxx")


@pytest.mark.skipif(torch.cuda.is_available(), reason="has the GPU that is asked for")
def test_no_gpu(cli: Cli) -> None:
    assert "cuda" in cli("train", "--data", "digits", "--method", "rcad", "--device", "cuda").err
    assert not Path("runs").exists()
