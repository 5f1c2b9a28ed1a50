"""Help is quick, light and complete."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cli.conftest import Cli
from contracts.house import commands

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


def test_a_list_of_runs_needs_no_torch() -> None:
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
    assert "\x1b" not in result.out
    assert "<bool>" not in result.out  # a switch takes no value
    assert "...]..." not in result.out
    _, found, listed = command.help.partition("Examples:\n")
    assert found
    lines = [line.strip() for line in result.out.splitlines()]
    assert [one.strip() for one in listed.splitlines() if one.strip() not in lines] == []  # none is wrapped
    assert f"rcad {' '.join(path)}".strip() in result.out
    # One table of all options leaves a column of two words for their sentences.
    table = [line for line in result.out.splitlines() if line.startswith("│")]
    assert len(table) <= 3 * (len(command.params) + len(getattr(command, "commands", ())) + 1)
    monkeypatch.setenv("COLUMNS", "40")
    narrow = cli(*path, "--help")
    assert narrow.code == 0
    assert max(map(len, narrow.out.split("\n"))) <= 40


def test_options_of_one_name_say_one_thing() -> None:
    """What --target or --set is does not depend on the command; what --out or --seeds is does."""
    told: dict[str, set[str]] = {}
    for _, command in commands():
        for option in command.params:
            told.setdefault(option.opts[0], set()).add(option.help)
    own = {"--again", "--budget", "--data", "--dry-run", "--method", "--model", "--out", "--runs", "--seeds"}
    several = {name for name, texts in told.items() if len(texts) > 1 and name.startswith("--")}
    assert several <= own | {"--weights"}, several - own


@pytest.mark.parametrize("path", [(), ("runs",), ("data",), ("methods",)], ids=str)
def test_a_group_alone_shows_its_help(path: tuple[str, ...], cli: Cli) -> None:
    alone = cli(*path)
    assert alone.code == 0
    assert alone.out.rstrip() == cli(*path, "--help").out.rstrip()


def test_version(cli: Cli) -> None:
    import rcad

    assert cli("--version").out == f"rcad {rcad.__version__}\n"
