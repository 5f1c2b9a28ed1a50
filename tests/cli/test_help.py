"""Help is quick, light and complete, and every example in it works as it stands."""

import functools
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Cli
from contracts.house import commands
from made import files, images, table
from rcad import demo
from rcad.cli import doctor
from rcad.loss.method_rows import parse_method
from rcad.paper.tables import SUITES
from rcad.runs.configure import configure
from rcad.runs.pack import PackedRun, write_pack
from rcad.runs.plain import to_toml
from rcad.runs.record import RunRecord
from rcad.runs.store import Store
from rcad.train.progress import SILENT

HEAVY = {"torch", "numpy", "pyarrow", "scipy", "sklearn", "PIL", "pandas", "safetensors", "tensorboard", "wandb"}
HEAVY |= {"mlflow", "huggingface_hub", "datasets", "torchvision", "transformers", "matplotlib", "jinja2", "ray"}
PATHS = [path for path, _ in commands()]


def loaded_by(*calls: str) -> set[str]:
    """The modules that commands leave behind, one after the other in a process."""
    code = f"import sys; from rcad.cli.main import run; [run(call.split()) for call in {calls}]"
    command = [sys.executable, "-c", f"{code}; print(*sys.modules, file=sys.stderr)"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return set(done.stderr.split())


def test_nothing_heavy_is_imported() -> None:
    plain = loaded_by("--version", "methods list", "methods show rcad", "paper list")
    assert not plain & {*HEAVY, "rich"}
    helped = loaded_by("--help", "train --help", "push --help", "paper --help")
    assert not helped & {*HEAVY, "rich.progress"}
    assert not loaded_by("runs list") & {"torch", "pyarrow"}


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_help_has_examples_and_explains_every_option(
    path: tuple[str, ...], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = dict(commands())[path]
    assert all(option.help for option in command.params)
    monkeypatch.setenv("COLUMNS", "80")
    result = cli(*path, "--help")
    assert (result.code, result.err) == (0, "")
    assert cli(*path, "-h") == result
    assert not re.search(r"\x1b|<bool>|\.\.\.\]\.\.\.", result.out)  # a switch takes no value
    if hasattr(command, "commands"):  # a group alone shows its help
        assert cli(*path).out.rstrip() == result.out.rstrip()
    listed = command.help.partition("Examples:\n")[2].splitlines()
    assert listed
    lines = [line.strip() for line in result.out.splitlines()]
    assert [one.strip() for one in listed if one.strip() not in lines] == []  # none is wrapped
    # One table of all options leaves a column of two words for their sentences.
    table = [line for line in lines if line.startswith("│")]
    assert len(table) <= 3 * (len(command.params) + len(getattr(command, "commands", ())) + 1)
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, cli(*path, "--help").out.split("\n"))) <= 40


# These download from official addresses or the Hub, or want the paper's data or a GPU.
NEED_MORE = re.compile(
    r"rcad data fetch|hf:|rcad push .* --(comparison|private)|cifar100\[|--data-dir DATA|--protocol tuned"
)
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
        listed = (getattr(command, "help", None) or "").partition("Examples:\n")[2]
        found += [line.strip() for line in listed.splitlines() if line.strip()]
        assert listed, path
    return list(dict.fromkeys(found))


@pytest.fixture
def prepared(undrawn: None, forked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the examples take for granted: own data, a config, a run whose id starts with 3f2a; short demos."""
    images()
    Path("data").mkdir()
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


# 200 digits stand for all of them, one epoch for those of the recipe, seconds for minutes: the README times the whole.
SHORTER = {
    "train": "--epochs 1",
    "compare": "--epochs 1 --budget 2",
    "tune": "--epochs 1 --budget 2",
    "evaluate": "--limit 8",
    "paper run": "--scale smoke",
}
RUN = "train --config run.toml -q"
BEFORE = {**dict.fromkeys(("evaluate", "predict", "export", "push"), RUN), "runs pack": "runs unpack study.jsonl.gz"}
BEFORE["paper report"] = "paper run F7 --scale smoke"


@pytest.mark.parametrize("example", [one for one in examples() if not NEED_MORE.search(one)])
def test_example(example: str, cli: Cli, prepared: None) -> None:
    name, *words = ["digits[:200]" if word == "digits" else word for word in shlex.split(example)]
    assert name == "rcad"
    for start, more in SHORTER.items():
        if example.startswith(f"rcad {start} ") and "--config" not in words:
            option = more.split()
            pairs = zip(option[::2], option[1::2], strict=True)
            words += [part for pair in pairs if pair[0] not in words for part in pair]
    words += ["--seeds", "1"] if words[:2] == ["paper", "run"] and words[2] in SUITES else []
    words += ["--force"] if words[:2] == ["runs", "pack"] else []
    for start, before in BEFORE.items():
        if example.startswith(f"rcad {start}"):
            cli(*before.split())
    result = cli(*words)
    assert result.code == 0, result.err
    assert result.out
    assert "\x1b" not in result.out + result.err


def test_the_exceptions_are_examples() -> None:
    assert sum(bool(NEED_MORE.search(one)) for one in examples()) == 10
