"""A document as lines of text that fit a terminal: tables lose columns before they lose their shape."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

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
        return [line for text in part.splitlines() for line in paragraph(text, width)]
    if isinstance(part, Command):
        return [*paragraph(part.about, width), f"  {part.text}"]
    if isinstance(part, Figure) or part.folded:
        return []
    return [*table_lines(part, width), *paragraph(part.caption, width)]


def paragraph(text: str, width: int | None = None) -> list[str]:
    plain = visible(" ".join(text.replace("`", "").split()))
    return textwrap.wrap(plain, width or screen_width(), break_long_words=False, break_on_hyphens=False)


def table_lines(table: Table, width: int | None = None, last: Sequence[str] = ()) -> list[str]:
    """The table; where it is too wide, spare columns go first, then texts wrap, then columns go from the right.

    `last` is one row more, set apart: it sums up the others.
    """
    room, numeric = width or screen_width(), table.numeric
    rows = [[_text(cell) for cell in row] for row in table.cells] + ([list(map(visible, last))] if last else [])
    full = [max(map(len, column)) for column in zip(table.header, *rows, strict=True)]
    least = [_least(name, [row[k] for row in rows], numeric[k]) for k, name in enumerate(table.header)]
    columns = _columns_that_fit(table, full, least, room)
    widths = {k: full[k] for k in columns}
    # The last text column gives way first: tables are written with their longest texts at the end.
    for k in sorted(columns, key=lambda k: (numeric[k], -k)):
        widths[k] = max(least[k], widths[k] - max(0, _total(widths.values()) - room))
    rule = "─" * min(_total(widths.values()), _LONGEST_RULE)
    head, *body = [_lines(row, widths, numeric) for row in (table.header, *rows)]
    ending = [rule, *body.pop()] if last else []
    return [*map(bold, head), rule, *(line for lines in body for line in lines), *ending]


def _text(cell: Cell) -> str:
    note = f" ({cell.note})" if cell.note and cell.mark != "aside" else ""
    return visible(cell.text + note)


def _least(name: str, cells: Sequence[str], numeric: bool) -> int:
    """The narrowest that a column can be: numbers stay whole, of texts the longest word does, or a few words do."""
    words = cells if numeric else [word for cell in cells for word in (*cell.split(), cell[:_NARROWEST])]
    return max(map(len, [*name.split(), *words]), default=1)


def _total(widths: Iterable[int]) -> int:
    """The width of columns with the gaps between them."""
    return sum(width + _GAP for width in widths) - _GAP


def _columns_that_fit(table: Table, full: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    columns, header = list(range(len(table.header))), list(table.header)
    spare = [header.index(name) for name in table.spare if name in header]
    for k in (*spare, *(k for k in reversed(columns[1:]) if k not in spare)):
        needed = [least[column] for column in columns]
        if k in spare:  # only the last column wraps for one of these
            *before, last = columns
            needed = [*(full[column] for column in before), max(least[last], len(header[last]))]
        if _total(needed) <= room or len(columns) == 1:
            break
        columns.remove(k)
    return columns


def _lines(row: Sequence[str], widths: Mapping[int, int], numeric: Sequence[bool]) -> list[str]:
    wrapped = [textwrap.wrap(row[k], width, break_on_hyphens=False) or [""] for k, width in widths.items()]
    lines = []
    for cells in zip_longest(*wrapped, fillvalue=""):
        aligned = [
            f"{cell:>{width}}" if numeric[k] else f"{cell:<{width}}"
            for cell, (k, width) in zip(cells, widths.items(), strict=True)
        ]
        lines.append((" " * _GAP).join(aligned).rstrip())
    return lines


def bold(line: str) -> str:
    """The line in bold where a person looks and does not mind."""
    return f"\x1b[1m{line}\x1b[0m" if is_terminal(sys.stdout) and "NO_COLOR" not in os.environ else line
