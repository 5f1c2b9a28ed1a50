"""The shell of every page: one HTML file that needs nothing else, light and dark, on paper and on a phone."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from rcad.errors import InputError, MissingExtraError

EXTRA = "report"
_NUMBER = re.compile(r"[-+\u2212]?\d[\d,]*\.?\d*(e[-+]?\d+)?%?( ± [\d.]+%?)?( \[.*\])?|-")
_SCRIPT_END = re.compile("</script", re.IGNORECASE)


@dataclass(frozen=True)
class Table:
    """Rows of text under a header; a click on a header sorts by its column.

    Args:
        header: one name per column.
        rows: as many cells as names each.
        caption: what the numbers are, and in which unit.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise InputError(f"expected {len(self.header)} cells in a row, but got {len(row)}: {list(row)}")

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers alone, and so are set flush right."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.header)
        return [any(column) and all(not cell or _NUMBER.fullmatch(cell) for cell in column) for column in columns]


@dataclass(frozen=True)
class Figure:
    """A picture.

    Args:
        svg: from `svg.inline`: it goes into the page as it is, so it must never come from outside.
        caption: stands below it.
        alt: says the same to who cannot see it.
    """

    svg: str
    caption: str
    alt: str


@dataclass(frozen=True)
class Section:
    """A chapter: its verdict first (line breaks are kept), then paragraphs, tables and figures in their order."""

    title: str
    paragraphs: Sequence[str] = ()
    parts: Sequence[Table | Figure] = ()
    verdict: str = ""

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
