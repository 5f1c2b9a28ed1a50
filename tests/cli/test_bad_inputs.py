"""Whatever the user gets wrong: exit code 2, one line that names it, and nothing written."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cli.conftest import Cli, Refused
from made import files, table

ON_DIGITS = ("train", "--data", "digits", "--epochs", "1")
RCAD = (*ON_DIGITS, "--method", "rcad")
OWN = ("train", "--method", "erm", "--epochs", "1", "--data")

# The words, and what the line must say.
ARGUMENTS: list[tuple[tuple[str, ...], str]] = [
    (("trian",), "trian"),
    (("train", "--dta", "digits"), "--dta"),
    (("train",), "--data"),
    (("train", "--method", "rcad"), "--data"),
    (("train", "--data", "digits"), "--method"),
    (("train", "digits"), "digits"),
    ((*RCAD, "--epochs", "abc"), "--epochs"),
    ((*RCAD, "--epochs", "0"), "train.epochs"),
    ((*RCAD, "--batch-size", "1.5"), "--batch-size"),
    ((*RCAD, "--lr", "nan"), "optim.lr"),
    ((*RCAD, "--seed", str(2**63)), "seed"),
    ((*RCAD, "--seeds", "0"), "--seeds"),
    ((*RCAD, "--seeds", "many"), "'many'"),
    ((*RCAD, "--seeds", "1,,2"), "'1,,2'"),
    ((*RCAD, "--seeds", "1,1"), "once"),
    ((*RCAD, "--seeds", "9" * 5000), "--seeds"),
    ((*RCAD, "--seeds", "99999999"), "--seeds"),
    ((*RCAD, "--seed", "1", "--seeds", "2"), "both"),
    ((*RCAD, "--seeds", "2", "--set", "seed=7"), "--set seed=7"),
    (("tune", "--data", "digits", "--method", "rcad", "--set", "seed=7"), "--set seed=7"),
    (("compare", "--data", "digits", "--set", "seed = 7"), "--set seed = 7"),
    ((*RCAD, "--device", "gpu"), "'gpu'"),
    ((*RCAD, "--task", "cluster"), "'cluster'"),
    ((*RCAD, "--recipe", "papr"), "did you mean 'paper'"),
    ((*RCAD, "--model", "resnet19"), "resnet19"),
    ((*RCAD, "--data", "digits[:5]"), "at least one example for each of 10 classes"),
    ((*RCAD, "--target", "price"), "target"),
    ((*RCAD, "--epochs"), "--epochs"),
    (("runs", "lst"), "lst"),
    (("runs", "list"), "'runs'"),
    (("runs", "show"), "ID"),
    (("methods", "show", "rcadd"), "did you mean 'rcad'"),
    (("data", "fetch", "mnist", "--data-dir", "d"), "'mnist'"),
    (("data", "fetch", "cifar10"), "--data-dir"),
    (("data", "import", "nowhere.csv"), "nowhere.csv"),
    (("doctor", "now"), "now"),
    ((*RCAD, "--set", f"model.width={10**30}"), "parameters take 1.44e+53 GB"),
    ((*RCAD, "--set", "model.width=60000"), "GB in training; make it smaller"),
    ((*RCAD, "--model", "mlp", "--set", f"model.hidden={10**30}"), "GB in training; make it smaller"),
    ((*RCAD, "--set", f"model.width={'9' * 5000}"), "model.width"),
    ((*RCAD, "--runs", "~nobody-at-all/runs"), "'~nobody-at-all/runs'"),
    (("compare", "--data", "digits", "--out", "~nobody-at-all/x"), "'~nobody-at-all/x'"),
    (("evaluate", "all", "--runs", "~nobody-at-all"), "'~nobody-at-all'"),
    (("demo", "--out", "~nobody-at-all"), "'~nobody-at-all'"),
    (("train", "--config", "/dev/zero"), "at most 256 MiB"),
    (("train", "--config", "/dev/full"), "at most 256 MiB"),
    (("runs", "list", "--runs", "a\x1b[31m\nb"), r"'a\x1b[31m\nb'"),
    (("x" * 400,), "...xxx"),
]
METHODS: list[tuple[str, str]] = [
    ("rcda", "did you mean 'rcad'"),
    ("", "a method like"),
    ("rcad(", "'rcad('"),
    ("rcad(0.5)", "'rcad(0.5)'"),
    ("rcad(alpha=)", "a method like"),
    ("rcad(alfa=1)", "alfa"),
    ("rcad(alpha=-1)", "alpha"),
    ("rcad(alpha=far)", "alpha"),
    ("rcad(alpha=1, alpha=2)", "once"),
    ("rcad(**x)", "a method like"),
    ("rcad(alpha=1j)", "a method like"),
    ("rcad - mixup", "'rcad - mixup'"),
    ("__import__('os').getcwd()", "a method like"),
    ("rcad + rcad_text", "rcad"),
    ("mixup + cutmix", "mix augmentation"),
    ("gaussian", "gaussian"),
    ("(" * 500 + "rcad", "a method like"),
    ("rcad\0", "a method like"),
]
SETTINGS: list[tuple[str, str]] = [
    ("train.epoch=5", "did you mean 'train.epochs'"),
    ("data.split=25", "25"),
    ("train.precision=bf16", "bf16"),
    ("model.weights=nowhere.safetensors", "nowhere.safetensors"),
]


Make = Callable[[], tuple[object, ...]]


def _made(*words: object, **contents: bytes | str) -> Make:
    """Writes these files (see `files`) and gives the words."""

    def make() -> tuple[object, ...]:
        files(**contents)
        return words

    return make


def _weights() -> bytes:
    buffer = io.BytesIO()
    torch.save({"head.weight": torch.zeros(3)}, buffer)
    return buffer.getvalue()


FILES: dict[str, tuple[Make, str]] = {
    "no such file": (lambda: (*OWN, "nowhere.csv", "--target", "y"), "nowhere.csv"),
    "no such name": (lambda: (*OWN, "cifra10"), "did you mean 'cifar10'"),
    "no data folder": (lambda: (*OWN, "cifar100[:2000]"), "--data-dir"),
    "nothing in the data folder": (_made(*OWN, "cifar100", "--data-dir", "d", d__x="x"), "rcad data fetch cifar100"),
    "labels for a regression": (lambda: ("train", "--data", "diabetes", "--method", "label_smoothing"), "label"),
    "cutout on a table": (lambda: ("train", "--data", "breast_cancer", "--method", "cutout"), "cutout"),
    "unknown kind of file": (_made(*OWN, "x.xyz", x_dot_xyz="1"), "x.xyz"),
    "table without target": (_made(*OWN, "my.csv", "--target", "prise", my_dot_csv=table()), "'prise'"),
    "no npz": (_made(*OWN, "own.npz", own_dot_npz=b"PK no"), "own.npz"),
    "no weights": (_made(*RCAD, "--set", "model.weights=w.safetensors", w_dot_safetensors=b"no"), "w.safetensors"),
    "weights of another model": (_made(*RCAD, "--set", "model.weights=o.pt", o_dot_pt=_weights()), "o.pt"),
    "a folder as config": (_made("train", "--config", "c", c__x="x"), "c"),
    "no config": (lambda: ("train", "--config", "nowhere.toml"), "nowhere.toml"),
    "a config without data": (_made("train", "--config", "run.toml", run_dot_toml=""), "data"),
    "a config of too many digits": (
        _made("train", "--config", "run.toml", run_dot_toml="seed = " + "9" * 5000),
        "Exceeds the limit (4300 digits)",
    ),
    "runs is a file": (_made(*RCAD, "--runs", "r", r="x"), "'r', but it is a file; name a folder"),
    "list of a file": (_made("runs", "list", "--runs", "r", r="x"), "'r', but it is a file; name a folder"),
    "unknown status": (_made("runs", "list", "--status", "finished", runs__x="x"), "'finished'"),
    "no such run": (_made("runs", "show", "zz", runs__x="x"), "'zz'"),
    "no id": (_made("runs", "show", "", runs__x="x"), "id of a run"),
    "broken record": (_made("runs", "show", "0123", runs__0123456789abcdef__record_dot_json="{"), "record.json"),
    "export to a spreadsheet": (_made("runs", "export", "t.xlsx", runs__x="x"), "t.xlsx"),
    "export to nowhere": (_made("runs", "export", "no/where/t.csv", runs__x="x"), "t.csv"),
    "prune of running runs": (_made("runs", "prune", "--status", "running", runs__x="x"), "'running'"),
    "prune of the future": (_made("runs", "prune", "--older-than", "-1", runs__x="x"), "--older-than"),
    "prune of an unknown run": (_made("runs", "prune", "zz", "--yes", runs__x="x"), "'zz'"),
    "fetch into a file": (_made("data", "fetch", "cifar10", "--data-dir", "d", d="x"), "d"),
    "import under a path": (
        _made("data", "import", "t.csv", "--name", "a/b", "--data-dir", "d", t_dot_csv="a"),
        "'a/b'",
    ),
    "import as known": (
        _made("data", "import", "t.csv", "--name", "digits", "--data-dir", "d", t_dot_csv="a"),
        "digits",
    ),
    "import without folder": (_made("data", "import", "t.csv", "--name", "mine", t_dot_csv="a"), "--data-dir"),
    "import over another": (
        _made("data", "import", "t.csv", "--name", "mine", "--data-dir", "d", t_dot_csv="a", d__mine_dot_csv="b"),
        "mine.csv",
    ),
    "import of a bad table": (
        _made("data", "import", "t.csv", "--name", "mine", "--data-dir", "d", "--target", "y", t_dot_csv="a\n1\n"),
        "t.csv",
    ),
    "verify of a broken archive": (
        _made("data", "verify", "--data-dir", "d", **{"d__cifar10__cifar-10-binary_dot_tar_dot_gz": b"junk"}),
        "cifar-10-binary.tar.gz",
    ),
}

TUNE = ("tune", "--data", "my.csv", "--target", "colour", "--method", "rcad")
COMPARE = ("compare", "--data", "my.csv", "--target", "price")
STUDIES: list[tuple[tuple[object, ...], str]] = [
    ((*TUNE, "--budget", 0), "expected budget to be a whole number >= 1"),
    ((*TUNE, "--search", "psychic"), "expected search to be one of random, grid, optuna"),
    ((*TUNE, "--by", "rmse"), "--by"),
    ((*TUNE, "--space", "eps=log(0.1, 1)"), "expected a parameter of rcad"),
    ((*TUNE, "--space", "alpha=log(2, 1)"), "a larger one"),
    ((*TUNE, "--set", "data.validation=0", "--set", "train.selection=last"), "validation split"),
    ((*TUNE, "--method", "mixup"), "expected images"),
    ((*TUNE, "--seeds", "1,1"), "--seeds"),
    ((*TUNE, "--data", "nowhere.csv"), "nowhere.csv"),
    ((*COMPARE, "--methods", "erm,label_smoothing"), "expected methods for regression (erm, "),
    ((*COMPARE, "--methods", "erm,mixup"), "'mixup'"),
    ((*COMPARE, "--methods", " , "), "--methods"),
    ((*COMPARE, "--methods", "me_ada(levels=8)"), "say so, e.g. me_ada(levels=none)"),
    ((*COMPARE, "--methods", "erm,rcda"), "did you mean 'rcad'?"),
    ((*COMPARE, "--methods", "rcad(alpha=-1)"), "expected alpha to be"),
    ((*COMPARE, "--methods", "erm", "--no-controls"), "expected a method to compare ERM with, but got erm; "),
    ((*COMPARE, "--budget", 0), "expected budget to be a whole number >= 1"),
    ((*COMPARE, "--seeds", "x"), "--seeds"),
    ((*COMPARE, "--target", "nothing"), "nothing"),
    ((*COMPARE, "--set", "data.validation=0", "--set", "train.selection=last"), "validation split"),
    ((*COMPARE, "--set", "data.seed=0"), "expected a split for each seed, but got data.seed=0; leave it out"),
    ((*COMPARE, "--set", "data.split=3"), "but got data.split=3"),
    ((*COMPARE, "--metric", "accuracy"), "--metric"),
    ((*COMPARE, "--device", "toaster"), "--device"),
    (("suggest-alpha",), "--data"),
    (("suggest-alpha", "--data", "diabetes"), "diabetes has regression targets; choose alpha by rcad tune"),
    (("suggest-alpha", "--data", "no-such-data"), "no-such-data"),
    (("suggest-alpha", "--data", "digits", "--figure", "a.gif"), "to end in .png or .svg, but got 'a.gif'"),
    (("suggest-alpha", "--data", "digits", "--figure", "no/a.png"), "expected a folder to write no/a.png to"),
    (("suggest-alpha", "--data", "digits", "--figure", "a.png", "--no-check"), "expected --check with --figure"),
    (
        ("train", "--data", "diabetes", "--method", "gaussian(cap=none) + rcad(alpha=0.3, lam=0.95)"),
        "expected a cap on the Gaussian's entropy, or lam < 0.9, but got cap=None and lam=0.95",
    ),
]

CASES = [pytest.param(lambda words=words: words, says, id=" ".join(words)[:50]) for words, says in ARGUMENTS]
CASES += [pytest.param(lambda m=m: (*ON_DIGITS, "--method", m), says, id=f"method {m[:20]!r}") for m, says in METHODS]
CASES += [pytest.param(lambda s=s: (*RCAD, "--set", s), says, id=f"set {s}") for s, says in SETTINGS]
CASES += [pytest.param(make, says, id=name) for name, (make, says) in FILES.items()]
CASES += [
    pytest.param(_made(*words, my_dot_csv=table()), says, id=" ".join(map(str, words))[:80]) for words, says in STUDIES
]


@pytest.mark.parametrize(("make", "says"), CASES)
def test_one_line_and_nothing_written(make: Make, says: str, refused: Refused) -> None:
    refused(*make(), says=says)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has the GPU that is asked for")
def test_no_gpu(cli: Cli) -> None:
    assert "cuda" in cli(*RCAD, "--device", "cuda").err
    assert not Path("runs").exists()
