"""Where the house is entered: the one place in the contracts that knows how something of the package is reached."""

import contextlib
import gzip
import importlib
import io
import json
import os
import pkgutil
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from rcad.errors import MissingExtraError

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
TABLES = Path(__file__).parent / "tables"


class Result(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def rcad(words: str, **values: object) -> Result:
    """Call the command in this process, as its script would; `{name}` in the words stands for a value."""
    from rcad.cli.main import main

    arguments = [word.format(**values) if values else word for word in shlex.split(words)]
    with patch.object(sys, "argv", ["rcad", *arguments]):
        return _captured(main)


def called(*words: object) -> Result:
    """The same without the script around it, which hears signals."""
    from rcad.cli.main import run

    return _captured(lambda: run([str(word) for word in words]))


def _captured(call: Callable[[], int | None]) -> Result:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = call()
        except SystemExit as end:
            code = end.code  # type: ignore[assignment]
    return Result(code or 0, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """Work in this folder, with no settings of the user's."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(folder), patch.dict(os.environ, {"RCAD_CACHE": str(folder / "cache")}):
        for name in ("RCAD_DATA", "RCAD_TRACEBACK", "COLUMNS", "FORCE_COLOR"):
            os.environ.pop(name, None)
        yield folder


def without_pictures() -> Any:
    """A context in which figures are laid out but not drawn: most of a report's time, and no number is in them."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    return patch.object(figure, "savefig", lambda self, file, **options: file.write(b"<svg></svg>"))


def commands() -> list[tuple[tuple[str, ...], Any]]:
    """Every command and group: its words, and the command as the parser knows it."""
    import typer

    from rcad.cli.main import make

    found: list[tuple[tuple[str, ...], Any]] = [((), typer.main.get_command(make()))]
    for words, one in found:
        found += [((*words, name), child) for name, child in getattr(one, "commands", {}).items()]
    return found


def integrations() -> list[str]:
    package = importlib.import_module("rcad.integrations")
    return sorted(one.name for one in pkgutil.iter_modules(package.__path__) if not one.name.startswith("_"))


def integration(name: str) -> ModuleType | None:
    """One of them, imported; None where its library is missing."""
    try:
        if name == "timm":
            importlib.import_module("timm_folder").load()
        return importlib.import_module(f"rcad.integrations.{name}")
    except (MissingExtraError, pytest.skip.Exception):
        return None


def public(module: ModuleType) -> list[str]:
    """The names that a module offers: its `__all__`, else what it defines without an underscore."""
    things = {name: one.__module__ for name, one in vars(module).items() if isinstance(one, type | FunctionType)}
    ours = [name for name, home in things.items() if name[0] != "_" and home == module.__name__]
    return sorted(getattr(module, "__all__", ours))


def kept_runs() -> list[tuple[Path, dict[str, Any]]]:
    """Every run record under results/ as the file has it, read by nobody, with the pack that it is in."""
    assert not any(RESULTS.glob("**/record.json"))
    packs = {path: gzip.decompress(path.read_bytes()).splitlines() for path in sorted(RESULTS.glob("**/*.jsonl.gz"))}
    return [(path, json.loads(line)["record"]) for path, (_, *lines) in packs.items() for line in lines]
