"""log.jsonl: a line per event, only ever appended to. A line cut short by a crash is dropped."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rcad.errors import InputError
from rcad.runs.atomic import read_text
from rcad.runs.strict_json import dumps, finite_or_none, loads


class LogWriter:
    """Appends events to a file, each whole. A torn last line, which no reader could use, is cut off first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._handle: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            os.ftruncate(self._handle, _whole_length(path.read_bytes()))
        except OSError as error:
            raise InputError(f"expected {path} to be writable, but got: {error.strerror or error}") from None

    def append(self, event: Mapping[str, Any]) -> None:
        """One event; numbers that are not finite become null."""
        if self._handle is None:
            raise InputError(f"expected {self.path} to be open, but it was closed")
        line = memoryview((dumps(finite_or_none(event)) + "\n").encode())
        while line:  # a write may take only a part
            line = line[os.write(self._handle, line) :]

    def close(self) -> None:
        """Put the file on disk; a second call does nothing."""
        if self._handle is not None:
            os.fsync(self._handle)
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """The events of a log, without a torn last line; a file that is not there has none."""
    if not path.exists():
        return []
    lines = read_text(path).split("\n")[:-1]
    events = [loads(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
    for number, event in enumerate(events, 1):
        if not isinstance(event, dict):
            raise InputError(f"expected an object in {path}, line {number}, but got {event!r}")
    return events


def _whole_length(content: bytes) -> int:
    return content.rfind(b"\n") + 1
