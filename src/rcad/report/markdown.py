"""A document as Markdown: the same sections and tables, with links to the files of its figures."""

from __future__ import annotations

import re
from collections.abc import Callable

from rcad.report.document import Cell, Command, Document, Figure, Part, Table, code_spans

_SPECIAL = re.compile(r"([\\*#]|\](?=[(\[:]))")  # without an address behind them, brackets are brackets
_EDGE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")  # inside a word it marks nothing


def escaped(text: str) -> str:
    """Text in which Markdown and HTML see nothing but text and, in backticks, code."""
    pieces = code_spans(" ".join(text.split()))
    return "".join(f"`{piece}`" if code else _plain(piece) for piece, code in pieces)


def _plain(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _EDGE.sub(r"\\_", _SPECIAL.sub(r"\\\1", text).replace("`", "\\`"))


def markdown(document: Document, *, figures: str = "figures") -> str:
    """The document, whose figures' PNG files lie in the folder `figures`, relative to it; see `drawing.save`.

    Folded tables and figures without a name are left to the page.
    """
    parts = [f"# {escaped(document.title)}", escaped(document.lead)]
    for section in document.sections:
        blocks = [f"> **{escaped(section.notice)}**"] if section.notice else []
        blocks += [f"**{escaped(line)}**" for line in section.verdict.splitlines()]
        blocks += [escaped(text) for text in section.paragraphs]
        blocks += [block for part in section.parts for block in _blocks(part, figures)]
        # One that has pictures of the page alone is left out.
        parts += [f"## {escaped(section.title)}", *blocks] if blocks else []
    parts.append("\n".join(f"- {escaped(name)}: {escaped(value)}" for name, value in document.facts.items()))
    return "\n\n".join(part for part in parts if part) + "\n"


def _blocks(part: Part, figures: str) -> list[str]:
    if isinstance(part, str):
        return [escaped(part)]
    if isinstance(part, Command):
        return [*([escaped(part.about)] if part.about else []), f"```\n{part.text}\n```"]
    if isinstance(part, Figure):
        place = f"{figures}/" if figures else ""
        return [f"![{escaped(part.alt)}]({place}{part.name}.png)", escaped(part.caption)] if part.name else []
    if part.folded:
        return []
    return [*([escaped(part.caption)] if part.caption else []), table(part)]


def table(content: Table, cell: Callable[[Cell], str] | None = None) -> str:
    """The table alone; numbers flush right. `cell` writes a cell; None for `cell_text`."""
    ruler = ["--:" if numeric else "---" for numeric in content.numeric]
    body = [list(map(cell or cell_text, row)) for row in content.cells]
    lines = [[escaped(name) for name in content.header], ruler, *body]
    # A bar inside a cell would end it.
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)


def cell_text(cell: Cell) -> str:
    """A cell: marked ones bold, with its link to another file and its note."""
    text = escaped(cell.text)
    if text and cell.mark in ("good", "bad", "open"):
        text = f"**{text}**"
    if cell.href and not cell.href.startswith("#"):
        text = f"[{text}]({cell.href})"
    return f"{text} ({escaped(cell.note)})" if cell.note else text
