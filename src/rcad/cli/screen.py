"""What is printed: text, JSON and tables. Escape codes only where a person looks at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from rcad.report.document import Table
from rcad.report.terminal import is_terminal, table_lines, visible

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "fields", "is_terminal", "say", "say_json", "table", "visible", "warn"]

Rows = Sequence[Sequence[str]]


def console(stream: TextIO | None = None) -> Console:
    """A rich console on stdout, or on `stream`; made anew, since a test may have changed the stream."""
    from rich.console import Console

    return Console(file=stream or sys.stdout, highlight=False, emoji=False, markup=False)


def say(text: str = "") -> None:
    """One line on stdout, seen at once."""
    print(text, flush=True)


def warn(text: str) -> None:
    """One line on stderr that is not an error."""
    print(f"rcad: {' '.join(text.split())}", file=sys.stderr, flush=True)


def say_json(value: Any) -> None:
    """The value as strict JSON on stdout."""
    from rcad.runs.files import dumps, finite_or_none

    say(dumps(finite_or_none(value), indent=1))


def table(headers: Sequence[str], rows: Rows, *, last: Sequence[str] | None = None, spare: Sequence[str] = ()) -> None:
    """A table that fits the terminal.

    Args:
        last: a row that sums up the others, set apart.
        spare: columns that can be left out, one after the other.
    """
    say("\n".join(table_lines(Table(headers, rows, last=last, spare=spare))))


def fields(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, a line each."""
    widest = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        say(f"{name:{widest}}  {visible(value)}".rstrip())
