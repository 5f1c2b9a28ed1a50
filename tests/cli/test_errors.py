"""Every way out of the command; whatever the user gets wrong is one line that names it, and nothing is written."""

from __future__ import annotations

import io
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


@pytest.mark.parametrize("command", ["tune", "compare", "evaluate"])
def test_a_report_that_cannot_be_written_costs_no_training(
    command: str, done: Cli, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(my_dot_csv=table())
    data = ("--data", "my.csv", "--target", "colour", "--epochs", "1")
    done("train", *data, "--method", "erm", "--quiet")
    works = ("study.backends.schedule", "study.backends.train_configs", "evaluate.saved_run.run._measure")
    fails(monkeypatch, AssertionError("work before the folder was tried"), *(f"rcad.{work}" for work in works))
    own = {"tune": ("--method", "rcad", "--runs", "runs"), "compare": ("--seeds", "2"), "evaluate": ("all",)}
    words = (*own[command], *(() if command == "evaluate" else data), "--out", "my.csv/x")
    says = "rcad: expected my.csv/x to be a folder that can be written, but got: Not a directory; choose another\n"
    refused(command, *words, says=says)


MISSING = """
optuna, optuna, tune, tune --data my.csv --target colour --method rcad --search optuna
scipy.stats, scipy, data, compare --data my.csv --target colour
matplotlib.figure, matplotlib, report, compare --data my.csv --target colour
matplotlib.figure, matplotlib, report, suggest-alpha --data no-such-data --figure a.png
torch.utils.tensorboard, tensorboard, tensorboard, train --data digits --method erm --tensorboard
wandb, wandb, wandb, compare --data my.csv --target colour --track wandb
mlflow, mlflow-skinny, mlflow, paper run T8 --scale smoke --track mlflow
jinja2, jinja2, report, demo --fast
matplotlib.figure, matplotlib, report, demo --fast
jinja2, jinja2, report, evaluate RUN
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


def test_a_remedy_of_another_command_is_named_with_it(done: Cli, refused: Refused) -> None:
    files(my_dot_csv="a,b,colour\n" + "".join(f"{i},{i * i % 7},{'rs'[i < 8]}\n" for i in range(60)))
    words = ["--data", "my.csv[:30]", "--target", "colour"]
    says = "; ask for fewer or balanced=False (rcad train --set data.balanced=false)\n"
    refused("suggest-alpha", *words, says=says)  # which has no --set
    done("train", *words, "--method", "erm", "--epochs", "1", "--set", "data.balanced=false", "-q")
    assert 'Together: rcad train --method "mixup + rcad".' in done("methods", "list").out


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
# The words, with what is short for others, and what the line must say.
CASES = r"""
train --dta digits -> --dta
train -> expected --data, but it is missing; e.g. --data digits, my.csv or images/
train --data digits --recipe paper -> expected --method, but it is missing
train --epochs ten -> rcad: expected --epochs to be a whole number, but got 'ten'; see: rcad train --help
train --lr=fast -> rcad: expected --lr to be a number, but got 'fast'; see: rcad train --help
trian -> rcad: expected a command, but got 'trian'; did you mean 'train'? see: rcad --help
TRAIN --epochs 0 -> train.epochs
TRAIN --lr nan -> optim.lr
TRAIN --seed 9223372036854775808 -> seed
TRAIN --seeds 0 -> --seeds
TRAIN --seeds 1,1 -> once
TRAIN --seeds NINES -> --seeds
TRAIN --seed 1 --seeds 2 -> both
TRAIN --seeds 2 --set seed=7 -> --set seed=7
compare --data digits --set "seed = 7" -> --set seed = 7
TRAIN --device gpu -> 'gpu'
TRAIN --task cluster -> 'cluster'
TRAIN --recipe papr -> did you mean 'paper'
TRAIN --model resnet19 -> resnet19
TRAIN --data digits[:5] -> at least one example for each of 10 classes
TRAIN --target price -> target
TRAIN --epochs -> --epochs
TRAIN --images my -> rcad: expected --data or --images, but got both: digits and my; leave one out
TRAIN --set model.width=1000000000000000000000000000000 -> parameters take 1.44e+53 GB
TRAIN --set train.epoch=5 -> did you mean 'train.epochs'
TRAIN --set train.precision=bf16 -> bf16
TRAIN --set model.weights=nowhere.safetensors -> nowhere.safetensors
TRAIN --set model.weights=junk -> junk
TRAIN --set model.weights=other.pt -> other.pt
TRAIN --runs ~nobody-at-all/runs -> '~nobody-at-all/runs'
TRAIN --runs junk -> 'junk', but it is a file; name a folder
train --config /dev/zero -> at most 256 MiB
train --config folder -> folder
train --config nowhere.toml -> nowhere.toml
train --config empty -> data
train --config nines.toml -> Exceeds the limit (4300 digits)
DIGITS --method rcda -> did you mean 'rcad'
DIGITS --method "" -> a method like
DIGITS --method a.b@c -> a method like
DIGITS --method rcad(alfa=1) -> alfa
DIGITS --method rcad(alpha=-1) -> alpha
DIGITS --method "rcad(alpha=1, alpha=2)" -> once
DIGITS --method "rcad - mixup" -> 'rcad - mixup'
DIGITS --method "__import__('os').getcwd()" -> a method like
DIGITS --method "rcad + rcad_text" -> rcad
DIGITS --method "mixup + cutmix" -> mix augmentation
DIGITS --method gaussian -> gaussian
DIGITS --method "rcad(alpha=auto, lam=-1)" --dry-run -> expected lam to be
train --data diabetes --method label_smoothing -> label
train --data diabetes --method "gaussian(cap=none) + rcad(lam=0.95)" -> or lam < 0.9, but got cap=None and lam=0.95
train --data breast_cancer --method cutout -> cutout
OWN cifra10 -> did you mean 'cifar10'
OWN cifar100[:2000] -> --data-dir
OWN cifar100 --data-dir folder -> rcad data fetch cifar100
OWN nowhere.csv --target y -> nowhere.csv
OWN my.csv --target prise -> 'prise'
OWN my.csv --target colour --labels x.csv -> but got 'labels'
OWN junk.xyz -> junk.xyz
OWN junk.npz -> junk.npz
train --images flat --method erm -> give --labels FILE, a table with file names and labels
runs list -> 'runs'
runs list --runs junk -> 'junk', but it is a file; name a folder
runs list --runs folder --status finished -> 'finished'
runs show -> ID
runs show zz --runs folder -> 'zz'
runs show "" --runs folder -> id of a run
runs show 0123 --runs torn -> record.json
runs export t.xlsx --runs folder -> t.xlsx
runs export no/where/t.csv --runs folder -> t.csv
runs prune --status running --runs folder -> 'running'
runs prune --older-than -1 --runs folder -> --older-than
methods show rcadd -> did you mean 'rcad'
doctor now -> now
demo --out ~nobody-at-all -> '~nobody-at-all'
data fetch mnist --data-dir d -> 'mnist'
data fetch cifar10 -> --data-dir
data fetch cifar10 --data-dir junk -> junk
data import nowhere.csv -> nowhere.csv
data import my.csv --name a/b --data-dir d -> 'a/b'
data import my.csv --name mine -> --data-dir
data import my.csv --name mine --data-dir d -> mine.csv
data import my.csv --name other --data-dir d --target y -> my.csv
data verify --data-dir broken -> cifar-10-binary.tar.gz
TUNE --budget 0 -> expected budget to be a whole number >= 1
TUNE --search psychic -> expected search to be one of random, grid, optuna
TUNE --by rmse -> --by
TUNE --space "eps=log(0.1, 1)" -> expected a parameter of rcad
TUNE --space "alpha=log(2, 1)" -> a larger one
TUNE --set data.validation=0 --set train.selection=last -> validation split
TUNE --method mixup -> expected images
COMPARE --methods erm,label_smoothing -> expected methods for regression (erm,
COMPARE --methods " , " -> --methods
COMPARE --methods me_ada(levels=8) -> say so, e.g. me_ada(levels=none)
COMPARE --methods erm --no-controls -> expected a method to compare ERM with, but got erm;
COMPARE --set data.seed=0 -> expected a split for each seed, but got data.seed=0; leave it out
COMPARE --metric accuracy -> --metric
suggest-alpha -> expected --data, but it is missing;
suggest-alpha --data diabetes -> diabetes has regression targets; choose alpha by rcad tune
suggest-alpha --data digits --figure a.gif -> to end in .png or .svg, but got 'a.gif'
suggest-alpha --data digits --figure no/a.png -> expected a folder to write no/a.png to
suggest-alpha --data digits --figure a.png --no-check -> expected --check with --figure
predict ERM --data nowhere -> found none at nowhere
predict ERM --data flat --out p.txt -> a file that ends in .csv, but got p.txt
predict ERM --data flat --out no/p.csv -> expected no/p.csv to be writable
predict ERM --data my.csv --out ./my.csv -> another file than --data
predict ERM --data flat --coverage 2 -> coverage to be a number between 0 and 1
export ERM --out model.txt -> a file that ends in .pt2 or .onnx
evaluate -> RUN
evaluate all --suite atacks -> did you mean 'attacks'
evaluate all --attack-eps 0.1,big -> 'big'
evaluate all --attack-eps 8/0 -> '8/0'
evaluate ERM BROKEN --ood-data cifra10 -> did you mean 'cifar10'
evaluate ERM --corrupted folder -> folder
evaluate ERM --ood-data digits -> another data set
evaluate BARE -> model.safetensors
evaluate BROKEN -> model.safetensors
evaluate ERM --out junk -> junk
evaluate ERM --out site -> site/evaluation.html
paper report --results flat -> expected records of studies in flat, but there are none; e.g. rcad paper run
PAPER T9 -> expected NAME to be
PAPER T7 --scale huge -> expected --scale to be
PAPER F7 SMOKE --out junk -> expected junk
PAPER F7 SMOKE --seeds 3 -> expected no --seeds for F7, but got 3; leave it out
PAPER T8 SMOKE --join 5 -> expected no --join for T8
PAPER T4 SMOKE --again -> expected no --again for T4
PAPER T1 --weights a -> expected no --weights for T1, but got a
PAPER T4 --join 0 -> expected --join to be
PAPER T4 SMOKE --only n=7 -> expected --only to be
PAPER T2 SMOKE --rows rcad -> expected --rows to be one of LS, ME-ADA + LS, RCAD + LS
PAPER T4 SMOKE --workers 0 -> --workers
PAPER T4 --data-dir nowhere -> expected data for T4, but there are none: cifar100 not found
PAPER T5 --data-dir nowhere -> ImageNet: the data folder has no imagenet/ with train/ and val/ of class folders, or
PAPER T1 SMOKE --seeds 1 --only SVHN --out junk -> expected junk
"""
REFUSED = [tuple(line.split(" -> ")) for line in CASES.strip().splitlines()]


@pytest.fixture(scope="session")
def other_weights() -> bytes:
    buffer = io.BytesIO()
    torch.save({"head.weight": torch.zeros(3)}, buffer)
    return buffer.getvalue()


@pytest.fixture
def bad_files(other_weights: bytes) -> None:
    """A good table, and files of every kind that are not what they seem."""
    files(my_dot_csv=table(), other_dot_pt=other_weights, nines_dot_toml=f"seed = {NINES}", empty="")
    files(junk="no", junk_dot_xyz="1", junk_dot_npz=b"PK no", site__evaluation_dot_html="mine", flat__1_dot_png="")
    files(folder__fog_dot_npy="x", d__mine_dot_csv="b", torn__0123456789abcdef__record_dot_json="{")
    files(**{"broken__cifar10__cifar-10-binary_dot_tar_dot_gz": b"junk"})


@pytest.mark.usefixtures("bad_files", "undrawn")
@pytest.mark.parametrize(("line", "says"), REFUSED, ids=[line[:60] for line, _ in REFUSED])
def test_one_line_and_nothing_written(line: str, says: str, refused: Refused, request: pytest.FixtureRequest) -> None:
    ids = {"ERM": run_id("erm"), "BARE": run_id("rcad", 0), "BROKEN": run_id("rcad", 1)}
    if ids.keys() & line.split():
        runs = shutil.copytree(request.getfixturevalue("trained_runs"), Path("runs"))
        (runs / ids["BARE"] / "model.safetensors").unlink()
        (runs / ids["BROKEN"] / "model.safetensors").write_bytes(b"junk")
    words: list[str] = []
    for word in shlex.split(line):
        words += SHORT[word].split() if word in SHORT else [ids.get(word, word).replace("NINES", NINES)]
    refused(*words, says=says)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("train", "--data", "digits", "--method", "(" * 500 + "rcad"), "a method like"),
        (("train", "--data", "digits", "--method", "rcad\0"), "a method like"),
        (("runs", "list", "--runs", "a\x1b[31m\nb"), r"'a\x1b[31m\nb'"),
        (("train", "--data", "a" * 300, "--method", "erm"), "File name too long"),
        (("x" * 400,), "...xxx"),
    ],
)
def test_words_that_no_shell_would_give(words: tuple[str, ...], says: str, refused: Refused) -> None:
    refused(*words, says=says)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has the GPU that is asked for")
def test_no_gpu(cli: Cli) -> None:
    assert "cuda" in cli("train", "--data", "digits", "--method", "rcad", "--device", "cuda").err
    assert not Path("runs").exists()
