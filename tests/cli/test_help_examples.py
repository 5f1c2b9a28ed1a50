"""Every example of every help text works as it stands."""

from __future__ import annotations

import functools
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Cli
from contracts.house import commands
from made import files, images, table
from rcad import demo
from rcad.cli import doctor
from rcad.data.dataset import parse_spec
from rcad.loss.method_rows import parse_method
from rcad.paper.tables import SUITES
from rcad.runs.configure import configure
from rcad.runs.pack import PackedRun, write_pack
from rcad.runs.plain import to_toml
from rcad.runs.record import RunRecord
from rcad.runs.store import Store
from rcad.train.progress import SILENT

# These download from official addresses, or the Hub.
NEED_NETWORK = {
    "rcad push 3f2a me/digits --comparison rcad-compare",
    "rcad push 3f2a me/digits --private",
    "rcad train --data hf:scikit-learn/iris --target Species --method rcad",
    "rcad data fetch cifar100 --data-dir data",
    "rcad data fetch cifar10 --data-dir data",
    "rcad data fetch svhn --extra --data-dir data",
}
# The paper's data are not on every machine, nor is a GPU: of the first the config is looked at.
TRAIN = "rcad train --data cifar100[:2000] --method rcad --data-dir data"
NEED_DATA = {
    TRAIN,
    "rcad train --data cifar100[:2000] --recipe few-labels --data-dir data",
    "rcad paper run T4 --precision bf16 --join 5 --only n=500 --data-dir DATA",
    "rcad paper run T4 --protocol tuned --precision bf16 --only n=500",
    "rcad paper run T4 --protocol tuned --only n=2,000 --candidates 16",
    "rcad paper run T4 --precision bf16 --finished --data-dir DATA",
}


# Computed once for all of their examples: what `rcad doctor` finds, and the acts of the demo.
MACHINE = functools.cache(doctor.machine)
ACTS = {name: getattr(demo, name) for name in demo.ACTS}


@functools.cache
def act(name: str, settings: Any) -> dict[str, Any]:
    found: dict[str, Any] = ACTS[name](settings, SILENT)
    return found


def examples() -> list[str]:
    found = []
    for path, command in commands():
        _, _, listed = (getattr(command, "help", None) or "").partition("Examples:\n")
        lines = [line.strip() for line in listed.splitlines() if line.strip()]
        assert lines, path
        found += lines
    return list(dict.fromkeys(found))


@pytest.fixture
def prepared(undrawn: None, forked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the examples take for granted: own data, a config, a run whose id starts with 3f2a; short demos."""
    images()
    own = "import rcad\n\ndef my_method(lam=0.1):\n    return rcad.method('confidence_penalty', lam=lam)\n"
    files(my_dot_csv=table(), mymodule_dot_py=own)
    config = configure("digits[:100]", parse_method("erm"), recipe="small", epochs=1)
    files(run_dot_toml=to_toml(config))
    monkeypatch.setattr(demo, "FULL", demo.FAST)
    monkeypatch.setattr(doctor, "machine", MACHINE)
    for name in ACTS:
        monkeypatch.setattr(demo, name, lambda settings, progress, name=name: act(name, settings))
    record = RunRecord(config=config, status="interrupted", started="2024-01-31T12:00:00+00:00")
    store = Store.open("runs")
    store.write(record)
    done = replace(record, config=replace(config, seed=1), id="", status="done", finished=record.started)
    write_pack(Path("study.jsonl.gz"), [PackedRun(done)])
    monkeypatch.setattr(Store, "find", lambda self, prefix: record.id if prefix == "3f2a" else prefix)


@pytest.mark.parametrize("example", [e for e in examples() if e not in NEED_NETWORK | NEED_DATA])
def test_example(example: str, cli: Cli, prepared: None) -> None:
    # 200 digits stand for all of them, and one epoch for those of the recipe: the README times the whole.
    words = ["digits[:200]" if word == "digits" else word for word in shlex.split(example)]
    assert words[0] == "rcad"
    if words[1:2] == ["doctor"]:
        Path("data").mkdir()
    search = words[1] in ("compare", "tune")
    if ("--seeds" in words or search) and "--epochs" not in words:
        words += ["--epochs", "1"]
    if search and "--budget" not in words:
        words += ["--budget", "2"]
    if words[1:3] == ["paper", "run"]:
        words += ["--seeds", "1"] if words[3] in SUITES else []
        words += [] if "--scale" in words else ["--scale", "smoke"]  # minutes become seconds
    if words[1:3] == ["paper", "report"]:
        cli("paper", "run", "F7", "--scale", "smoke")
    if words[1] in ("evaluate", "predict", "export", "push"):
        cli("train", "--config", "run.toml", "-q")
    if words[1:2] == ["evaluate"]:
        words += [] if "--limit" in words else ["--limit", "8"]
    if words[1:3] == ["runs", "pack"]:
        words += ["--force"]
        cli("runs", "unpack", "study.jsonl.gz")
    result = cli(*words[1:])
    assert result.code == 0, result.err
    assert result.out
    assert "\x1b" not in result.out + result.err


def test_the_paper_s_example_is_a_command(cli: Cli) -> None:
    result = cli(*shlex.split(TRAIN)[1:], "--dry-run")
    assert result.code == 0
    assert parse_spec("cifar100[:2000]") == ("cifar100", 2000)
    assert 'name = "cifar100[:2000]"' in result.out
    shutil.rmtree("data", ignore_errors=True)


def test_the_exceptions_are_examples() -> None:
    assert set(examples()) >= NEED_NETWORK | NEED_DATA
