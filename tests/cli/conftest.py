"""The command in this process, or in a copy of it, in a folder of its own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rcad.cli.main import run

Cli = Callable[..., "Result"]


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RCAD_CACHE", str(tmp_path / "cache"))
    for name in ("RCAD_DATA", "RCAD_TRACEBACK", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Calls `rcad` with these words."""

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return Result(code, *capsys.readouterr())

    return call


class Forked:
    """The command in a copy of this process, which has torch loaded already: something that can be sent signals."""

    def __init__(self, *arguments: object) -> None:
        self._process: Any = multiprocessing.get_context("fork").Process(target=self._run, args=arguments)
        self._process.start()
        self.pid: int = self._process.pid

    def _run(self, *arguments: object) -> None:
        name = os.getpid()
        with contextlib.ExitStack() as stack:
            for stream, kind in ((contextlib.redirect_stdout, "out"), (contextlib.redirect_stderr, "err")):
                stack.enter_context(stream(stack.enter_context(open(f"{name}.{kind}", "w"))))
            code = run([str(argument) for argument in arguments])
        os._exit(code)

    def end(self) -> Result:
        """How it ended, once it has."""
        self._process.join(120)
        out, err = (Path(f"{self.pid}.{name}") for name in ("out", "err"))
        return Result(self._process.exitcode, out.read_text(), err.read_text())


def until(over: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until something has come about."""
    deadline = time.monotonic() + seconds
    while not over():
        assert time.monotonic() < deadline
        time.sleep(0.01)
