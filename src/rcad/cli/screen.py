"""What is printed: text, JSON and tables. Escape codes only where a person looks at a terminal."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

Rows = Sequence[Sequence[str]]
_NUMBER = re.compile(r"[-+]?[\d.,]+(e-?\d+)?( ± [\d.]+)?%?|-|[\d.]+ [a-zA-Z]+|\d+[mh] \d+[sm]")
_GAP = 2
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NARROWEST = 30
_LONGEST_RULE = 120


def is_terminal(stream: TextIO) -> bool:
    """Whether a person looks at the stream and it can move its cursor."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False


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
    from rcad.runs.strict_json import dumps, finite_or_none

    say(dumps(finite_or_none(value), indent=1))


def table(headers: Sequence[str], rows: Rows, *, last: Sequence[str] | None = None, spare: Sequence[str] = ()) -> None:
    """Columns where they fit, with the last one wrapped if it must be; else one block of lines per row.

    Args:
        last: a row that sums up the others, set apart.
        spare: columns that can be left out, one after the other, before blocks are the only way.
    """
    every = [[visible(cell) for cell in row] for row in (*rows, *([last] if last is not None else []))]
    for count in range(len(spare) + 1):
        kept = [index for index, name in enumerate(headers) if name not in spare[:count]]
        head, *body = ([row[index] for index in kept] for row in (headers, *every))
        widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
        room = _width() - sum(widths[:-1]) - _GAP * (len(widths) - 1)
        if room >= min(widths[-1], _NARROWEST):
            end = None if last is None else body.pop()
            say("\n".join(_columns(head, body, end, [*widths[:-1], min(widths[-1], room)])))
            return
    for row in every:
        say("\n".join(_block(headers, row)) + "\n")


def fields(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, a line each."""
    widest = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        say(f"{name:{widest}}  {visible(value)}".rstrip())


def visible(text: str) -> str:
    """Names come from files: line breaks and a terminal's codes are written out, as Python writes them."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def _width() -> int:
    """The terminal's width; where nobody looks, wide enough for every row: a program reads lines."""
    if is_terminal(sys.stdout) or "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns
    return 10_000


def _columns(headers: Sequence[str], rows: Rows, last: Sequence[str] | None, widths: list[int]) -> list[str]:
    right = [all(_NUMBER.fullmatch(row[i]) or not row[i] for row in rows) for i in range(len(headers))]
    rule = "─" * min(sum(widths) + _GAP * (len(widths) - 1), _LONGEST_RULE)
    lines = [_bold(_line(headers, widths, right)), rule]
    for row in rows:
        lines += _wrapped(row, widths, right)
    return lines if last is None else [*lines, rule, *_wrapped(last, widths, right)]


def _wrapped(row: Sequence[str], widths: list[int], right: list[bool]) -> list[str]:
    parts = textwrap.wrap(row[-1], widths[-1], break_on_hyphens=False) or [""]
    rest = [["" for _ in row[:-1]] + [part] for part in parts[1:]]
    return [_line(cells, widths, right) for cells in ([*row[:-1], parts[0]], *rest)]


def _line(cells: Sequence[str], widths: list[int], right: list[bool]) -> str:
    aligned = [f"{cell:>{w}}" if r else f"{cell:<{w}}" for cell, w, r in zip(cells, widths, right, strict=True)]
    return (" " * _GAP).join(aligned).rstrip()


def _block(headers: Sequence[str], row: Sequence[str]) -> list[str]:
    widest = max(map(len, headers))
    return [f"{name:{widest}}  {cell}" for name, cell in zip(headers, row, strict=True) if cell]


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if is_terminal(sys.stdout) and "NO_COLOR" not in os.environ else text
