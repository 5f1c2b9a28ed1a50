"""A method of the user's own, `module:function`: imported where it is named in a command, and nowhere else."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.conftest import Cli, Refused
from made import files, saved, table
from rcad.errors import InputError
from rcad.loss.method_rows import OWN, SOURCE, label, named_method
from rcad.runs.configure import configure
from rcad.runs.plain import from_toml
from rcad.runs.store import Store
from rcad.train.place import Place
from rcad.train.processes import Processes
from rcad.train.scheduler import schedule

pytestmark = pytest.mark.usefixtures("undrawn")

CODE = """
import rcad

def logit_norm(likelihood, output, target):
    return output.square().sum(1)

def penalty(lam=0.01):
    return rcad.Method(extra=(rcad.Term("logit_norm", logit_norm, weight=lam),))

def number(lam=0.01):
    return lam

def breaks():
    raise KeyError("no")

def left_open():
    return rcad.method("rcad")

def demanding(lam):
    return penalty(lam)

def two_arguments(output, target):
    return output.square().sum(1)

def short():
    return rcad.Method(extra=(rcad.Term("two", two_arguments),))
"""
SMALL = ("train", "--data", "digits[:60]", "--epochs", 1)


@pytest.fixture(autouse=True)
def _module(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The module in the current folder, and this process as if it had never seen it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    files(own_code_dot_py=CODE)
    yield
    _forget()


def _forget() -> None:
    OWN.clear()
    sys.modules.pop("own_code", None)


def test_a_run_names_it_and_the_hash_of_its_code(cli: Cli) -> None:
    words = (*SMALL, "--method", "own_code:penalty(lam=0.1)")
    result = cli(*words)
    assert (result.code, result.err) == (0, "")
    (record,) = Store.open("runs").records()
    assert label(record.config.method) == "own_code:penalty(lam=0.1)"
    assert len(dict(record.config.method[0][1])[SOURCE]) == 16
    assert "done already" in cli(*words).out
    files(own_code_dot_py=CODE.replace("square()", "abs()"))
    assert "done already" not in cli(*words).out
    assert len({run.metrics["test_nll"] for run in Store.open("runs").records()}) == 2


def test_records_and_runs_are_read_without_it(done: Cli, cli: Cli) -> None:
    done(*SMALL, "--method", "own_code:penalty")
    (record,) = Store.open("runs").records()
    _forget()
    files(own_code_dot_py="raise SystemExit('imported')\n")
    assert "own_code:penalty" in cli("runs", "list").out
    assert "own_code:penalty" in cli("runs", "show", record.id).out
    done("evaluate", record.id, "--suite", "calibration", "--limit", 10)
    assert "own_code" not in sys.modules


def test_a_file_alone_imports_nothing(done: Cli, cli: Cli, refused: Refused) -> None:
    Path("run.toml").write_text(cli(*SMALL, "--method", "own_code:penalty(lam=0.1)", "--dry-run").out)
    _forget()
    for more in ((), ("--dry-run",), ("--devices", 2, "--device", "cpu"), ("--set", "train.epochs=2")):
        refused("train", "--config", "run.toml", *more, says="pass it too: --method 'own_code:penalty(lam=0.1)'")
    assert "own_code" not in sys.modules
    with pytest.raises(InputError, match="pass it too"):
        schedule([from_toml(Path("run.toml").read_text())], Place.of(Path("runs")), backend=Processes(1))
    named = ("train", "--config", "run.toml", "--method", "own_code:penalty(lam=0.1)")
    done(*named)
    files(own_code_dot_py=CODE + "\n# changed\n")
    refused(*named, says="but own_code.py has changed")


def test_workers_import_it_too() -> None:
    config = configure("digits[:60]", named_method("own_code:penalty"), epochs=1)
    (record,) = schedule([config], Place.of(Path("runs")), backend=Processes(1)).records
    assert record.status == "done"


def test_an_error_in_its_code_says_where(cli: Cli) -> None:
    files(own_code_dot_py=CODE.replace("output.square()", "output.sqare()"))
    result = cli(*SMALL, "--method", "own_code:penalty")
    assert result.code == 1
    assert "rcad: unexpected AttributeError in own_code.py, line 5: 'Tensor' object has no attribute" in result.err
    (record,) = Store.open("runs").records()
    assert (record.status, record.state) == ("interrupted", "failed")
    assert record.message.startswith("an error ended it: AttributeError: 'Tensor' object has no attribute 'sqare'")
    for words in ("runs list --status failed", "runs list --status interrupted", "runs prune"):
        shown = cli(*words.split()).out
        assert (record.id in shown, " failed " in shown) == (True, True)
    assert f"failed: {record.message[:40]}" in cli("runs", "show", record.id).out


def test_compared_with_rcad_and_tuned_by_its_own_ranges(done: Cli, refused: Refused) -> None:
    code = CODE + "\npenalty.space = 'lam=log(0.001, 1)'\n"
    files(own_code_dot_py=code)
    ours, methods = "rcad(alpha=1, lam=0.1)", "rcad(alpha=1, lam=0.1),own_code:penalty"
    words = ("compare", "--data", "digits[:60]", "--epochs", 1, "--seeds", 3, "--budget", 2, "--no-controls")
    result = done(*words, "--methods", methods)
    record = saved("rcad-compare/compare.json")
    assert record["question"]["method"] == ours
    assert methods in shlex.split(record["command"])
    spaces = {name: cell["space"] for name, cell in record["methods"].items()}
    assert spaces["own_code:penalty"] == [*spaces[ours], "lam=log(0.001, 1)"]  # the weight decay of all, and its own
    assert [one["metric"] for one in record["differences"] if one["against"] == ours] == ["nll", "accuracy", "brier"]
    assert "Against RCAD." in result.out
    files(own_code_dot_py=code + "\n# changed\n")
    refused(*words, "--methods", methods, says="but the code of own_code:penalty changed since; pass another")


def test_tables_take_it_run_by_run(done: Cli) -> None:
    """Side by side in one tensor a measure would see the rows of several networks at once."""
    files(my_dot_csv=table())
    words = ("--data", "my.csv", "--target", "price", "--epochs", 1)
    done("compare", *words, "--seeds", 3, "--budget", 1, "--methods", "own_code:penalty")
    assert Path("rcad-compare/runs").is_dir()
    result = done("tune", *words, "--budget", 2, "--method", "own_code:penalty", "--space", "lam=log(0.01, 1)")
    assert "own_code:penalty(lam=" in result.out
    assert Path("rcad-tune/own_code-penalty.json").is_file()


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("own_code(lam=1)", "'own_code', which is a module in this folder; name a function of it, own_code:my_method"),
        ("some.where:penalty", "put its folder on PYTHONPATH"),
        ("own_code:penalti", "did you mean 'penalty'?"),
        ("own_code:number", "to return a method (rcad.Method), but got 0.01"),
        ("own_code:breaks", "but it raised KeyError: 'no'"),
        ("own_code:demanding", "with no arguments, but got own_code.py:demanding(lam); give each parameter a default"),
        ("own_code:short", "to take (likelihood, output, target), but got own_code.py:two_arguments(output, target)"),
        ("own_code:left_open", "expected own_code:left_open to give alpha a number"),
        ("own_code:penalty(lamb=1)", "expected a parameter of own_code:penalty to be one of lam, but got 'lamb'"),
        ("erm + own_code:penalty(source_sha256=abc)", "but own_code.py has changed"),
        ("broken:penalty", "expected broken to import, but got ZeroDivisionError"),
        ("__main__:penalty", "expected a module in a file"),
    ],
)
def test_what_is_wrong_with_it_is_said_in_one_line(refused: Refused, method: str, says: str) -> None:
    files(broken_dot_py="1 / 0\n")
    refused(*SMALL, "--method", method, says=says)


@pytest.mark.parametrize("command", ["compare --dry-run --methods X", "tune --method X"])
@pytest.mark.parametrize(
    ("space", "says"),
    [
        ("'lamb=log(0.1, 1)'", "optim.weight_decay in its space, but got 'lamb'; did you mean 'lam'?"),
        ("'seed=int(1, 4)'", "expected a space whose trials share method, seed"),
        ("('lam', 0.1, 1)", "expected own_code:penalty.space to be text such as 'lam=log(0.1, 1)', but got a tuple"),
    ],
)
def test_ranges_that_it_cannot_have_are_said_before_any_run(
    refused: Refused, command: str, space: str, says: str
) -> None:
    files(own_code_dot_py=f"{CODE}\npenalty.space = {space}\n")
    words = command.replace("X", "own_code:penalty").split()
    refused(*words, "--data", "digits[:60]", "--epochs", 1, "--budget", 2, says=says)


def test_a_row_of_the_papers_tables(done: Cli, refused: Refused) -> None:
    """Trained by the paper's protocol, in front of the controls, and no claim is about it."""
    own = "own_code:penalty(lam=0.2)"
    words = ("paper", "run", "T4", "--scale", "smoke", "--only", "n=500", "--seeds", 2)
    done(*words, "--rows", "ERM", "--rows", own, "--out", "trial")
    study = saved("trial/T4/T4.json")
    assert study["rows"][-3:] == [own, "random direction", "entropy at x"]
    assert not any(own in claim["statement"] for claim in study["claims"])
    runs = [run for run in Store.open(Path("trial/T4/runs")).records() if "own_code" in label(run.config.method)]
    assert {(run.status, run.config.seed) for run in runs} == {("done", 0), ("done", 1)}
    assert {run.config.method[0][0] for run in runs} == {"data_augmentation"}
    refused(*words, "--protocol", "tuned", "--rows", own, says="expected rows of the paper's with --protocol tuned")
