"""The content of a page, whatever renders it: sections of paragraphs, tables, figures and commands, verdicts first.

Texts are plain; a part in backticks is set as code. Nothing here knows a record or a format: `html.page`,
`markdown.markdown`, `latex.table` and `terminal.text` render it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rcad.errors import InputError

EXTRA = "report"
MARKS = ("", "good", "bad", "open", "none", "aside")
_NUMBER = re.compile(
    r"[-+<\u2212]?[\d.][\d,]*\.?\d*(e[-+]?\d+)?%?( ± [\d.]+%?)?( \[.*\])?|-|[\d.]+ [a-zA-Z]{1,3}|\d+[mh] \d+[sm]"
)


@dataclass(frozen=True)
class Cell:
    """A table's cell that is more than text.

    Args:
        note: a second, smaller line.
        href: a place in the page ("#name") or a file relative to the page; never another address.
        mark: its colour: "good", "bad", "open", "none" (nothing to say) or "aside" (there for comparison).
        anchor: a name that "#name" leads to.
    """

    text: str
    note: str = ""
    href: str = ""
    mark: str = ""
    anchor: str = ""

    def __post_init__(self) -> None:
        if ":" in self.href or self.href.startswith(("/", "\\")):
            raise InputError(f"expected a place in the page or a file relative to it, but got {self.href!r}")
        if self.mark not in MARKS:
            raise InputError(f"expected a mark among {', '.join(MARKS[1:])}, but got {self.mark!r}")


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header; in a page a click on a header sorts by its column.

    Args:
        rows: as many cells as the header has names; a cell may be its text alone.
        caption: what the numbers are, and in which unit.
        choose: the name of a column; buttons above the table then show the rows of one of its values only.
        folded: what to click to see the table; "" shows it at once. Markdown and the terminal leave it out.
        spare: columns that a narrow terminal leaves out, the first one first; after them it drops from the right.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    caption: str = ""
    choose: str = ""
    folded: str = ""
    spare: Sequence[str] = ()

    def __post_init__(self) -> None:
        for row in self.cells:
            if len(row) != len(self.header):
                raise InputError(
                    f"expected {len(self.header)} cells in a row, but got {len(row)}: {[cell.text for cell in row]}"
                )
        if self.choose and self.choose not in self.header:
            raise InputError(f"expected the name of a column to choose by, but got {self.choose!r}")

    @staticmethod
    def of(rows: Sequence[Mapping[str, str | Cell]], caption: str = "", **options: Any) -> Table:
        """The table of rows that have their cells by the column's name, all the same columns; options as in `Table`."""
        header = list(rows[0]) if rows else []
        return Table(header, [[row[name] for name in header] for row in rows], caption, **options)

    @property
    def cells(self) -> list[list[Cell]]:
        return [[Cell(cell) if isinstance(cell, str) else cell for cell in row] for row in self.rows]

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers alone, and so are set flush right."""
        columns = [[cell.text for cell in column] for column in zip(*self.cells, strict=True)]
        return [
            any(column) and all(not text or _NUMBER.fullmatch(text) for text in column)
            for column in columns or [[]] * len(self.header)
        ]

    def filled(self, keep: Sequence[str] = ()) -> Table:
        """The table without columns that say nothing, but for those to keep."""
        columns = [
            k
            for k, name in enumerate(self.header)
            if name in keep or any(row[k].text not in ("", "-") for row in self.cells)
        ]
        header, rows = [self.header[k] for k in columns], [[row[k] for k in columns] for row in self.rows]
        return replace(self, header=header, rows=rows)

    @property
    def choices(self) -> dict[str, int]:
        """How many rows have each value of the column to choose by, in the order of the alphabet."""
        column = list(self.header).index(self.choose)
        return dict(sorted(Counter(row[column].text for row in self.cells).items()))


def file_stem(text: str) -> str:
    """A text as a part of a file's name, which never leads out of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:100]


@dataclass(frozen=True)
class Figure:
    """A picture.

    Args:
        drawing: a matplotlib figure (see `rcad.report.drawing`), or the SVG text that `drawing.inline` made of one. It
            goes into the page as it is, so it must never come from outside.
        alt: says what the caption says to who cannot see the picture.
        wide: it takes the page's whole width.
        name: the stem of its files; Markdown shows figures that have one. It may come from a record of somebody
            else's, so what a file's name should not hold becomes a hyphen.
    """

    drawing: Any
    caption: str
    alt: str
    wide: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", file_stem(self.name))

    @property
    def svg(self) -> str:
        from rcad.report.drawing import inline

        return self.drawing if isinstance(self.drawing, str) else inline(self.drawing)


@dataclass(frozen=True)
class Command:
    """A command to type, and what it does, in a few words before it."""

    text: str
    about: str = ""


Part = str | Table | Figure | Command
"""What a section is made of; a string is a paragraph."""


@dataclass(frozen=True)
class Section:
    """A chapter: notice, verdict (line breaks are kept), paragraphs, then the parts in their order.

    Args:
        title: differs from those of other chapters.
        verdict: the answer; it stands out.
        notice: a warning that nobody should miss; above all else.
        short: what the list of chapters calls it; "" for the title.
    """

    title: str
    paragraphs: Sequence[str] = ()
    parts: Sequence[Part] = ()
    verdict: str = ""
    notice: str = ""
    short: str = ""

    @property
    def groups(self) -> list[list[Part]]:
        """The parts, with neighbouring figures together: they stand side by side where there is room."""
        groups: list[list[Part]] = []
        for part in self.parts:
            if groups and isinstance(part, Figure) and isinstance(groups[-1][0], Figure):
                groups[-1].append(part)
            else:
                groups.append([part])
        return groups

    @property
    def tables(self) -> list[Table]:
        return [part for part in self.parts if isinstance(part, Table)]

    @property
    def anchor(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "section"


@dataclass(frozen=True)
class Document:
    """All that a page says: what it is, in a sentence or two, then the chapters, then how it was made, by name."""

    title: str
    lead: str
    sections: Sequence[Section]
    facts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        anchors = [section.anchor for section in self.sections]
        if len(set(anchors)) < len(anchors):
            titles = [section.title for section in self.sections]
            raise InputError(f"expected sections with different titles, but got {titles}")

    @property
    def figures(self) -> list[Figure]:
        return [part for section in self.sections for part in section.parts if isinstance(part, Figure)]

    @property
    def tables(self) -> list[Table]:
        return [table for section in self.sections for table in section.tables]


def code_spans(text: str) -> list[tuple[str, bool]]:
    """The text in pieces, each with whether it stood in backticks."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # one without a partner is a sign like any other
        return [(text, False)]
    return [(piece, index % 2 == 1) for index, piece in enumerate(pieces) if piece]
