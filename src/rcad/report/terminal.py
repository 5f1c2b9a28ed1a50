"""A document as lines of text that fit a terminal: tables lose columns before they lose their shape."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence

from rcad.errors import is_terminal, visible
from rcad.report.document import Cell, Command, Document, Figure, Part, Section, Table

WIDE = 10_000
_GAP = 2
_NARROWEST = 16
_LONGEST_RULE = 120


def screen_width() -> int:
    """The terminal's width; where nobody looks, wide enough for every row: a program reads lines."""
    if is_terminal(sys.stdout) or "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns
    return WIDE


def text(document: Document, width: int | None = None) -> str:
    """The document without its figures, facts and folded tables."""
    blocks = [document.title, *paragraph(document.lead, width)]
    for section in document.sections:
        lines = section_lines(section, width)
        blocks += ["", *lines] if len(lines) > 1 else []  # a title alone: all it has are figures
    return "\n".join(blocks)


def section_lines(section: Section, width: int | None = None) -> list[str]:
    """A chapter: its title, then what it says, blocks set apart by an empty line."""
    blocks = [[bold(visible(section.title))]]
    blocks += [
        part_lines(part, width) for part in (section.notice, section.verdict, *section.paragraphs, *section.parts)
    ]
    return [line for k, block in enumerate(filter(None, blocks)) for line in ([""] * bool(k) + block)]


def part_lines(part: Part, width: int | None = None) -> list[str]:
    """A text, line by line, a table with its caption below, or a command; nothing of figures and folded tables."""
    if isinstance(part, str):
        return [line for told in part.splitlines() for line in paragraph(told, width)]
    if isinstance(part, Command):
        return [*paragraph(part.about, width), f"  {part.text}"]
    if isinstance(part, Figure) or part.folded:
        return []
    return [*table_lines(part, width), *paragraph(part.caption, width)]


def paragraph(told: str, width: int | None = None) -> list[str]:
    """The text in lines that end between words."""
    plain = visible(" ".join(told.replace("`", "").split()))
    return textwrap.wrap(plain, width or screen_width(), break_long_words=False, break_on_hyphens=False)


def table_lines(table: Table, width: int | None = None) -> list[str]:
    """The table; where it is too wide, spare columns go first, then texts wrap, then columns go from the right."""
    room = width or screen_width()
    rows = [[_shown(cell) for cell in row] for row in table.body]
    kept = _columns_that_fit(table, rows, room)
    head = [table.header[k] for k in kept]
    body = [[row[k] for k in kept] for row in rows]
    right = [table.numeric[k] for k in kept]
    widths = _widths(head, body, right, room)
    rule = "─" * min(sum(widths) + _GAP * (len(widths) - 1), _LONGEST_RULE)
    lines = [*(bold(line) for line in _lines(head, widths, right)), rule]
    last = _lines(body.pop(), widths, right) if table.last else []
    for row in body:
        lines += _lines(row, widths, right)
    return [*lines, rule, *last] if last else lines


def _shown(cell: Cell) -> str:
    note = f" ({cell.note})" if cell.note and cell.mark != "aside" else ""
    return visible(cell.text + note)


def _columns_that_fit(table: Table, rows: Sequence[Sequence[str]], room: int) -> list[int]:
    kept = list(range(len(table.header)))
    spare = [list(table.header).index(name) for name in table.spare if name in table.header]
    rest = [k for k in reversed(kept) if k not in spare and k > 0]
    for k in (*spare, *rest):
        if _needed(table, rows, kept, whole=k in spare) <= room or len(kept) == 1:
            break
        kept.remove(k)
    return kept


def _needed(table: Table, rows: Sequence[Sequence[str]], kept: Sequence[int], *, whole: bool) -> int:
    """The room that columns take; `whole` without wrapping any text but that of the last column."""
    total = _GAP * (len(kept) - 1)
    for k in kept:
        words = [row[k] for row in rows] if (whole and k != kept[-1]) or table.numeric[k] else _words(rows, k)
        name = table.header[k] if whole else max(table.header[k].split(), key=len, default="")
        total += max(map(len, [name, *words]), default=0)
    return total


def _words(rows: Sequence[Sequence[str]], k: int) -> list[str]:
    """What a text column must at least hold: its longest word, or some words side by side."""
    found = [word for row in rows for word in row[k].split()]
    return [*found, *(row[k][:_NARROWEST] for row in rows)]


def _widths(head: Sequence[str], body: Sequence[Sequence[str]], right: Sequence[bool], room: int) -> list[int]:
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    least = [
        max(map(len, [*name.split(), *(row[k] for row in body)]), default=1)
        if right[k]
        else max(map(len, [*name.split(), *_words(body, k)]), default=1)
        for k, name in enumerate(head)
    ]
    # The last text column gives way first: tables are written with their longest texts at the end.
    for k in sorted(range(len(head)), key=lambda k: (right[k], -k)):
        over = sum(widths) + _GAP * (len(widths) - 1) - room
        if over <= 0:
            break
        widths[k] = max(least[k], widths[k] - over)
    return widths


def _lines(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    wrapped = [textwrap.wrap(cell, w, break_on_hyphens=False) or [""] for cell, w in zip(row, widths, strict=True)]
    lines = []
    for k in range(max(map(len, wrapped))):
        cells = [parts[k] if k < len(parts) else "" for parts in wrapped]
        aligned = [f"{cell:>{w}}" if r else f"{cell:<{w}}" for cell, w, r in zip(cells, widths, right, strict=True)]
        lines.append((" " * _GAP).join(aligned).rstrip())
    return lines


def bold(line: str) -> str:
    """The line in bold where a person looks and does not mind."""
    return f"\x1b[1m{line}\x1b[0m" if is_terminal(sys.stdout) and "NO_COLOR" not in os.environ else line
