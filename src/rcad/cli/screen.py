"""What is printed: text, JSON and tables. Escape codes only where a person looks at a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rcad.errors import one_line, visible

if TYPE_CHECKING:
    from rcad.report.document import Part

_OURS = re.compile("(\n|\x1b\\[[01]m)")
"""What may reach a terminal besides text: line breaks and bold."""


def say(text: str = "") -> None:
    """Print lines on stdout, flushed."""
    parts = _OURS.split(text)
    print("".join(part if k % 2 else visible(part) for k, part in enumerate(parts)), flush=True)


def warn(text: str) -> None:
    """Print one line on stderr that is not an error."""
    print(one_line(f"rcad: {text}"), file=sys.stderr, flush=True)


def say_json(value: Any) -> None:
    """Print the value as strict JSON on stdout."""
    from rcad.runs.files import dumps, finite_or_none

    say(dumps(finite_or_none(value), indent=1))


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    last: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print a table that fits the terminal: a `last` row sums up, and `spare` columns go where there is no room."""
    from rcad.report.document import Table
    from rcad.report.terminal import table_lines

    say("\n".join(table_lines(Table(headers, rows, spare=spare), last=last)))


def show_parts(parts: Iterable[Part]) -> None:
    """Print parts of a document, an empty line before each."""
    from rcad.report.terminal import part_lines

    for part in parts:
        say("\n".join(["", *part_lines(part)]))


def fields(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values, a line each."""
    widest = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        say(f"{name:{widest}}  {visible(value)}".rstrip())
