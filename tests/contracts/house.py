"""Where the house is entered: the one place in the contracts that knows how something of the package is reached."""

import contextlib
import gzip
import importlib
import inspect
import io
import json
import os
import pkgutil
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

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


@contextlib.contextmanager
def without_pictures() -> Iterator[None]:
    """Figures are laid out but not drawn: three quarters of a report's time, and no number is in them."""
    figure = pytest.importorskip("matplotlib.figure").Figure

    def save(self: Any, file: Any, **options: Any) -> None:
        file.write(b"<svg></svg>")

    with patch.object(figure, "savefig", save):
        yield


def commands() -> list[tuple[tuple[str, ...], Any]]:
    """Every command and group: its words, and the command as the parser knows it."""
    import typer

    from rcad.cli.main import make

    found: list[tuple[tuple[str, ...], Any]] = [((), typer.main.get_command(make()))]
    for words, one in found:
        found += [((*words, name), child) for name, child in getattr(one, "commands", {}).items()]
    return found


def integrations() -> list[str]:
    """The modules right below `rcad.integrations`."""
    package = importlib.import_module("rcad.integrations")
    return sorted(one.name for one in pkgutil.iter_modules(package.__path__) if not one.name.startswith("_"))


def integration(name: str) -> ModuleType | None:
    """One of them, imported; None where its library is missing."""
    from rcad import MissingExtraError

    try:
        if name == "timm":
            importlib.import_module("timm_folder").load()
        return importlib.import_module(f"rcad.integrations.{name}")
    except (MissingExtraError, pytest.skip.Exception):
        return None


def is_ours(thing: object) -> bool:
    """Whether a class or function was written here."""
    return str(getattr(thing, "__module__", "")).split(".")[0] == "rcad"


def public(module: ModuleType) -> list[str]:
    """The names that a module offers: its `__all__`, else what it defines without an underscore."""
    things = {
        name: value for name, value in vars(module).items() if inspect.isclass(value) or inspect.isfunction(value)
    }
    ours = [name for name, value in things.items() if name[0] != "_" and value.__module__ == module.__name__]
    return sorted(getattr(module, "__all__", ours))


class KeptRun(NamedTuple):
    """A committed run record: the pack to give to `--runs`, its id, and what the file has, read by nobody."""

    store: Path
    id: str
    content: dict[str, Any]


def kept_runs() -> list[KeptRun]:
    """Every run record under results/, packed with others into one file."""
    found = []
    for path in sorted(RESULTS.glob("**/*.jsonl.gz")):
        _, *lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        records = [json.loads(line)["record"] for line in lines]
        found += [KeptRun(path, record["id"], record) for record in records]
    assert not any(RESULTS.glob("**/record.json"))
    return found
