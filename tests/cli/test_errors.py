"""Every way out of the command."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import Cli, Forked, Refused
from made import table
from rcad.cli.main import run
from trained import run_id

pytestmark = pytest.mark.usefixtures("undrawn")


def fails(monkeypatch: pytest.MonkeyPatch, error: BaseException, name: str = "rcad.cli.methods.table") -> None:
    def raises(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(name, raises)


def test_the_unexpected_is_one_line_with_a_hint(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    fails(monkeypatch, RuntimeError("no\nsuch thing"))
    result = cli("methods", "list")
    assert result.code == 1
    assert result.err == (
        "rcad: unexpected RuntimeError: no such thing; run it again with RCAD_TRACEBACK=1 to see where\n"
    )


@pytest.mark.parametrize("command", ["tune", "compare", "evaluate"])
def test_a_report_that_cannot_be_written_costs_no_training(
    command: str, done: Cli, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("jinja2", "matplotlib", "scipy"):
        pytest.importorskip(module)
    Path("my.csv").write_text(table())
    data = ("--data", "my.csv", "--target", "colour", "--epochs", "1")
    done("train", *data, "--method", "erm", "--quiet")
    for work in (
        "rcad.study.backends.schedule",
        "rcad.study.backends.train_configs",
        "rcad.evaluate.saved_run.run._measure",
    ):
        fails(monkeypatch, AssertionError("work before the folder was tried"), work)
    own = {"tune": ("--method", "rcad", "--runs", "runs"), "compare": ("--seeds", "2"), "evaluate": ("all",)}
    words = (*own[command], *(() if command == "evaluate" else data), "--out", "my.csv/x")
    says = "rcad: expected my.csv/x to be a folder that can be written, but got: Not a directory; choose another\n"
    refused(command, *words, says=says)


def test_the_hint_works(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    fails(monkeypatch, ZeroDivisionError("x"))
    monkeypatch.setenv("RCAD_TRACEBACK", "1")
    assert "Traceback" in cli("methods", "list").err
    monkeypatch.setenv("RCAD_TRACEBACK", "0")
    assert "Traceback" not in cli("methods", "list").err


def test_ctrl_c_outside_a_run(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    fails(monkeypatch, KeyboardInterrupt())
    assert cli("methods", "list") == (130, "", "rcad: interrupted\n")


@pytest.mark.parametrize(
    ("module", "package", "extra", "words"),
    [
        ("optuna", "optuna", "tune", "tune --data my.csv --target colour --method rcad --search optuna"),
        ("scipy.stats", "scipy", "data", "compare --data my.csv --target colour"),
        ("matplotlib.figure", "matplotlib", "report", "compare --data my.csv --target colour"),
        ("matplotlib.figure", "matplotlib", "report", "suggest-alpha --data no-such-data --figure a.png"),
        ("torch.utils.tensorboard", "tensorboard", "tensorboard", "train --data digits --method erm --tensorboard"),
        ("wandb", "wandb", "wandb", "compare --data my.csv --target colour --track wandb"),
        ("mlflow", "mlflow-skinny", "mlflow", "paper run T8 --scale smoke --track mlflow"),
        ("jinja2", "jinja2", "report", "demo --fast"),
        ("matplotlib.figure", "matplotlib", "report", "demo --fast"),
        ("jinja2", "jinja2", "report", "evaluate RUN"),
        ("matplotlib.figure", "matplotlib", "report", "evaluate RUN"),
    ],
)
def test_a_missing_package_is_named_before_anything_is_computed(
    module: str,
    package: str,
    extra: str,
    words: str,
    refused: Refused,
    trained_runs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("my.csv").write_text(table())
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
    assert cli("--help").err == f"rcad: expected typer to be installed: {hint}\n"
    assert run(["--help"]) == 2


def test_a_remedy_of_another_command_is_named_with_it(done: Cli, refused: Refused) -> None:
    Path("my.csv").write_text("a,b,colour\n" + "".join(f"{i},{i * i % 7},{'rs'[i < 8]}\n" for i in range(60)))
    words = ["--data", "my.csv[:30]", "--target", "colour"]
    says = "; ask for fewer or balanced=False (rcad train --set data.balanced=false)\n"
    refused("suggest-alpha", *words, says=says)  # which has no --set
    done("train", *words, "--method", "erm", "--epochs", "1", "--set", "data.balanced=false", "-q")
    assert 'Together: rcad train --method "mixup + rcad".' in done("methods", "list").out


def test_a_closed_pipe_is_silent(done: Cli, tmp_path: Path) -> None:
    code = "import sys; from rcad.cli.main import main; sys.argv = ['rcad', 'methods', 'show', 'rcad', '--raw']; main()"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path, text=True)
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 141


def test_training_outlives_a_closed_pipe(tmp_path: Path) -> None:
    (tmp_path / "my.csv").write_text(table())
    words = ["train", "--data", "my.csv", "--target", "colour", "--method", "erm", "--epochs", "2"]
    reader, writer = os.pipe()
    os.close(reader)

    class Closed(Forked):
        def _run(self, *arguments: object) -> None:
            os.dup2(writer, 1)
            with open("err", "w") as err, contextlib.redirect_stderr(err), open(1, "w") as out:
                sys.stdout = out
                os._exit(run([str(word) for word in arguments]))

    Closed(*words).end()
    os.close(writer)
    assert Path("err").read_text() == ""
    (record,) = tmp_path.glob("runs/*/record.json")
    assert '"status": "done"' in record.read_text()


def test_a_terminal_without_the_characters_gets_others(done: Cli, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "rcad.cli", "methods", "list"]
    done = subprocess.run(command, capture_output=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0
    assert b"rcad_random" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no full device")
def test_a_full_disk_behind_stdout_is_the_users_to_mend(done: Cli, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rcad.cli", "methods", "list"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "rcad: expected room for what is written, but got: No space left on device; free some, and run it again\n"
    )
