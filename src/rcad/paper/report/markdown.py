"""The report as Markdown: the same tables, with links to the pictures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rcad.paper import pages
from rcad.paper.report.drawing import Picture
from rcad.report.document import Cell, Section, Table

_SPECIAL = re.compile(r"([\\`*_\[\]<>&#])")


def escaped(text: str) -> str:
    """Text in which Markdown and HTML see nothing but text."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split())).replace("\\<", "&lt;").replace("\\&", "&amp;")


def report(
    title: str,
    lead: str,
    sections: Sequence[Section],
    drawn: Mapping[str, Sequence[Picture]],
    facts: Mapping[str, str],
) -> str:
    """All chapters; folded tables stay in the page alone.

    Args:
        title, lead, sections, facts: as in `Document`.
        drawn: the pictures of a chapter by its title; their files lie in figures/.
    """
    parts = [f"# {escaped(title)}", escaped(lead)]
    for section in sections:
        parts.append(f"## {escaped(section.title)}")
        if section.notice:
            parts.append(f"> **{escaped(section.notice)}**")
        parts += [f"**{escaped(line)}**" for line in section.verdict.splitlines()]
        parts += [escaped(text) for text in section.paragraphs]
        parts += [f"![{escaped(one.alt)}](figures/{one.name}.png)" for one in drawn.get(section.title, ())]
        for part in section.parts:
            if isinstance(part, Table) and not part.folded:
                parts += [escaped(part.caption), _table(part)] if part.caption else [_table(part)]
    parts.append("\n".join(f"- {escaped(name)}: {escaped(value)}" for name, value in facts.items()))
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(table: Table) -> str:
    return pages.table([escaped(name) for name in table.header], [[_cell(cell) for cell in row] for row in table.cells])


def _cell(cell: Cell) -> str:
    text = escaped(cell.text)
    if cell.mark in ("good", "bad", "open"):
        text = f"**{text}**"
    if cell.href and not cell.href.startswith("#"):
        text = f"[{text}]({cell.href})"
    return f"{text} ({escaped(cell.note)})" if cell.note else text
