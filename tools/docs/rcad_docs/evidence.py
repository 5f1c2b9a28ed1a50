"""The pages on the paper's claims, from the records under results/ alone: what `rcad paper report` shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from rcad.paper.report import CLAIMS, MISSING, Report, costs, few_labels, gather
from rcad.paper.targets import TARGETS
from rcad.report import markdown
from rcad.report.document import Cell, Figure, Section, Table
from rcad.report.markdown import escaped

FOLDER = "evidence"
APART = (CLAIMS, MISSING, few_labels.TITLE)
"""Chapters that stand on pages written by hand."""
WIDE = "---\nhide:\n  - toc\n---"
LONG, WALL = 20, 600
"""Letters from which a cell gets room for some words side by side, and from which a paragraph is folded."""
NARROW = 430
"""Pixels up to which a picture can be read on a phone."""
_BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


@dataclass(frozen=True)
class Evidence:
    """Pages and pictures by their address in the site."""

    pages: Mapping[str, str]
    pictures: Mapping[str, str]


@cache
def report(root: Path) -> Report:
    """The report on the committed records."""
    return gather(root / "results", root / FOLDER)


@cache
def figures(root: Path) -> dict[str, Figure]:
    """The pictures of the report by name."""
    return {figure.name: figure for figure in report(root).document.figures}


@cache
def drawing(root: Path, name: str) -> str:
    """A picture of the report as SVG."""
    return figures(root)[name].svg


def pages(root: Path) -> Evidence:
    """A page for each chapter of the report, and their pictures."""
    assert (root / "docs" / FOLDER / "index.md").is_file(), "expected docs/evidence/index.md, the first of these pages"
    texts = {f"{FOLDER}/{_stem(section)}.md": _chapter(root, section) for section in _chapters(root)}
    return Evidence(texts, {f"{FOLDER}/figures/{name}.svg": drawing(root, name) for name in figures(root)})


def _chapters(root: Path) -> list[Section]:
    return [section for section in report(root).document.sections[1:] if section.title not in APART]


def table(root: Path, title: str) -> str:
    """The tables of one of the report's first and last chapters."""
    sections = [section for section in report(root).document.sections if section.title == title]
    return "\n\n".join(_table(root, part) for section in sections for part in section.tables)


def picture(root: Path, name: str, folder: str) -> str:
    """One of the report's pictures with its caption; `folder` is that of the pictures, relative to the page."""
    figure, box = figures(root)[name], _BOX.search(drawing(root, name))
    across = 1.2 * float(box[1]) if box else 0.0
    width = f' width="{across:.0f}"' if box else ""
    kind = "record" if across <= NARROW else "record wide"  # a wide one scrolls on a phone, and says so
    return (
        f'<figure class="{kind}"><img src="{folder}/{figure.name}.svg" alt="{_attribute(figure.alt)}"{width}>'
        f"<figcaption>{_attribute(figure.caption)}</figcaption></figure>"
    )


def scaling(root: Path, folder: str) -> str:
    """How the cost of a step grows, under a heading; nothing where it was not measured."""
    names = [path.stem for path, _ in report(root).records.by_kind[costs.GROWTH]]
    pictures = [picture(root, name, folder) for name in names if name in figures(root)]
    return "\n\n".join(["## How it grows", *pictures]) if pictures else ""


def _chapter(root: Path, section: Section) -> str:
    """The chapter, its claims before the rest; folded tables are left out."""
    parts = [WIDE, f"# {_title(section)}"]
    parts += [f"**{escaped(line)}**" for line in (section.notice, *section.verdict.splitlines()) if line]
    parts += [_paragraph(text) for text in section.paragraphs]
    verdicts = [table for table in section.tables if "verdict" in table.header]
    for part in (*verdicts, *(part for part in section.parts if part not in verdicts)):
        if isinstance(part, str):
            parts.append(_paragraph(part))
        elif isinstance(part, Figure):
            parts.append(picture(root, part.name, "figures"))
        elif isinstance(part, Table) and not part.folded:
            parts.append(_table(root, part))
    return "\n\n".join(part for part in parts if part) + "\n"


def _paragraph(text: str) -> str:
    """A paragraph; a long one can be opened."""
    if len(text) < WALL:
        return escaped(text)
    first, _, more = text.partition(": ")
    return f'<details markdown="1"><summary>{escaped(first)}</summary>\n\n{escaped(more)}\n\n</details>'


def _title(section: Section) -> str:
    return escaped(section.title.replace("runs: ", "Runs: ").replace("alpha, measured", "alpha, measured and best"))


def _stem(section: Section) -> str:
    target = section.title.partition(":")[0]
    return target if target in TARGETS and section.short == target else section.anchor


def _table(root: Path, content: Table) -> str:
    """The table with its caption, without columns that say nothing."""
    homes = {section.anchor: f"{_stem(section)}.md" for section in _chapters(root)}
    caption = f"{escaped(content.caption)}\n\n" if content.caption else ""
    return caption + markdown.table(content.filled(), partial(_cell, homes))


def _cell(homes: Mapping[str, str], cell: Cell) -> str:
    text = escaped(cell.text)
    if len(cell.text) > LONG:
        text = f'<span class="said">{text}</span>'
    if cell.mark in ("good", "bad", "open"):
        text = f'<span class="{cell.mark}">{text}</span>'
    if cell.href.startswith("#") and cell.href[1:] in homes:
        text = f"[{text}]({homes[cell.href[1:]]})"
    elif cell.href.endswith((".json", ".md")):
        text = f"[{text}]({cell.href})"
    return f"{text} <small>{escaped(cell.note)}</small>" if cell.note else text


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
