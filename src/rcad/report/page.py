"""The shell of every page: one HTML file that needs nothing else, light and dark, on paper and on a phone."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from rcad.errors import InputError, MissingExtraError

EXTRA = "report"
_NUMBER = re.compile(r"[-+<\u2212]?\d[\d,]*\.?\d*(e[-+]?\d+)?%?( ± [\d.]+%?)?( \[.*\])?|-")
_SCRIPT_END = re.compile("</script", re.IGNORECASE)
MARKS = ("", "good", "bad", "open", "none", "aside")


@dataclass(frozen=True)
class Cell:
    """A table's cell that is more than text.

    Args:
        text: what it says; tables sort by it.
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
    """Rows of cells under a header; a click on a header sorts by its column.

    Args:
        header: one name per column.
        rows: as many cells as names each; a cell may be its text alone.
        caption: what the numbers are, and in which unit.
        choose: the name of a column; buttons above the table then show the rows of one of its values only.
        folded: what to click to see the table; "" shows it at once.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    caption: str = ""
    choose: str = ""
    folded: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise InputError(f"expected {len(self.header)} cells in a row, but got {len(row)}: {list(row)}")
        if self.choose and self.choose not in self.header:
            raise InputError(f"expected the name of a column to choose by, but got {self.choose!r}")

    @property
    def cells(self) -> list[list[Cell]]:
        """Every cell as a `Cell`."""
        return [[Cell(cell) if isinstance(cell, str) else cell for cell in row] for row in self.rows]

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers alone, and so are set flush right."""
        columns = [[cell.text for cell in column] for column in zip(*self.cells, strict=True)]
        return [
            any(column) and all(not text or _NUMBER.fullmatch(text) for text in column)
            for column in columns or [[]] * len(self.header)
        ]

    @property
    def choices(self) -> dict[str, int]:
        """How many rows have each value of the column to choose by, in the order of the alphabet."""
        column = list(self.header).index(self.choose)
        return dict(sorted(Counter(row[column].text for row in self.cells).items()))


@dataclass(frozen=True)
class Figure:
    """A picture.

    Args:
        svg: from `svg.inline`: it goes into the page as it is, so it must never come from outside.
        caption: stands below it.
        alt: says the same to who cannot see it.
        wide: it takes the page's whole width.
    """

    svg: str
    caption: str
    alt: str
    wide: bool = False


@dataclass(frozen=True)
class Section:
    """A chapter: its verdict first (line breaks are kept), then paragraphs, tables and figures in their order.

    A notice is a warning that nobody should miss; it stands above all else. The list of chapters calls it by its
    title, or by a shorter name.
    """

    title: str
    paragraphs: Sequence[str] = ()
    parts: Sequence[Table | Figure] = ()
    verdict: str = ""
    notice: str = ""
    short: str = ""

    @property
    def groups(self) -> list[list[Table | Figure]]:
        """The parts, with neighbouring figures together: they stand side by side where there is room."""
        groups: list[list[Table | Figure]] = []
        for part in self.parts:
            joins = groups and isinstance(part, Figure) and isinstance(groups[-1][0], Figure)
            if joins:
                groups[-1].append(part)
            else:
                groups.append([part])
        return groups

    @property
    def anchor(self) -> str:
        """The name of its place in the page."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "section"


def render(title: str, lead: str, sections: Sequence[Section], facts: Mapping[str, str]) -> str:
    """The page.

    Args:
        title: its name.
        lead: what it is, in a sentence or two.
        sections: from top to bottom, with different titles.
        facts: how it was made, by name; at the end of the page.
    """
    anchors = [section.anchor for section in sections]
    if len(set(anchors)) < len(anchors):
        raise InputError(f"expected sections with different titles, but got {[one.title for one in sections]}")
    script = _text("page.js")
    assert not _SCRIPT_END.search(script)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    # Only our own files and the pictures are taken as they are; everything else is escaped.
    trusted = _markup()
    values = {"title": title, "lead": lead, "sections": sections, "facts": facts, "policy": policy}
    page: str = (
        _environment()
        .from_string(_text("page.html"))
        .render(
            **values, script=trusted(script), style=trusted(_text("page.css")), trusted=trusted, is_figure=_is_figure
        )
    )
    return page


def _is_figure(part: Table | Figure) -> bool:
    return isinstance(part, Figure)


def _environment() -> Any:
    try:
        import jinja2
    except ImportError:
        raise MissingExtraError("jinja2", EXTRA) from None
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _markup() -> Any:
    try:
        from markupsafe import Markup
    except ImportError:
        raise MissingExtraError("jinja2", EXTRA) from None
    return Markup


def _text(name: str) -> str:
    return resources.files("rcad.report").joinpath(name).read_text(encoding="utf-8")
