"""The pages on the paper's claims, from the records under results/ alone: what `rcad paper report` shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rcad.paper.report import Report, costs, few_labels, gather
from rcad.paper.report.overview import CLAIMS, MISSING
from rcad.paper.targets import TARGETS
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
    return gather(root / "results", root / FOLDER)


@cache
def drawing(root: Path, name: str) -> str:
    """A picture of the report as SVG."""
    return {one.name: one for one in report(root).document.figures}[name].svg


def pages(root: Path) -> Evidence:
    """The first page with every claim, and one page for each chapter of the report."""
    found = report(root)
    chapters = [section for section in found.document.sections[1:] if section.title not in APART]
    homes = {section.anchor: f"{_stem(section)}.md" for section in chapters}
    texts = {f"{FOLDER}/{_stem(one)}.md": _chapter(root, one, homes) for one in chapters}
    first = (root / "docs" / FOLDER / "index.md").is_file()
    assert first, "expected docs/evidence/index.md, which frames what is made here"
    drawn = {one.name: drawing(root, one.name) for one in found.document.figures}
    return Evidence(texts, {f"{FOLDER}/figures/{name}.svg": svg for name, svg in drawn.items()})


def table(root: Path, title: str) -> str:
    """The tables of one of the report's first and last chapters."""
    found = report(root)
    chapters = [section for section in found.document.sections[1:] if section.title not in APART]
    homes = {section.anchor: f"{_stem(section)}.md" for section in chapters}
    section = next((one for one in found.document.sections if one.title == title), None)
    if section is None:
        return ""
    return "\n\n".join(_table(part, homes) for part in section.parts if isinstance(part, Table))


def figure(picture: Figure, svg: str, folder: str) -> str:
    """A picture with its caption; `folder` is that of the pictures, relative to the page."""
    box = _BOX.search(svg)
    across = 1.2 * float(box[1]) if box else 0.0
    width = f' width="{across:.0f}"' if box else ""
    kind = "record" if across <= NARROW else "record wide"  # a wide one scrolls on a phone, and says so
    return (
        f'<figure class="{kind}"><img src="{folder}/{picture.name}.svg" alt="{_attribute(picture.alt)}"{width}>'
        f"<figcaption>{_attribute(picture.caption)}</figcaption></figure>"
    )


def picture(root: Path, name: str, folder: str) -> str:
    """One of the report's pictures by its name."""
    found = {one.name: one for one in report(root).document.figures}
    return figure(found[name], drawing(root, name), folder)


def scaling(root: Path, folder: str) -> str:
    """How the cost of a step grows, under a heading; nothing where it was not measured."""
    names = [path.stem for path, _ in report(root).found.others[costs.GROWTH]]
    drawn = {one.name for one in report(root).document.figures}
    shown = [picture(root, name, folder) for name in names if name in drawn]
    return "\n\n".join(["## How it grows", *shown]) if shown else ""


def _chapter(root: Path, section: Section, homes: Mapping[str, str]) -> str:
    parts = [WIDE, f"# {_title(section)}"]
    parts += [f"**{escaped(section.notice)}**"] if section.notice else []
    parts += [f"**{escaped(line)}**" for line in section.verdict.splitlines()]
    parts += [_paragraph(text) for text in section.paragraphs]
    shown = [part for part in section.parts if not (isinstance(part, Table) and part.folded)]
    verdicts = [part for part in section.tables if "verdict" in part.header]
    parts += [_table(part, homes) for part in verdicts]
    for part in shown:
        if isinstance(part, str):
            parts.append(_paragraph(part))
        elif isinstance(part, Figure):
            parts.append(figure(part, drawing(root, part.name), "figures"))
        elif isinstance(part, Table) and part not in verdicts:
            parts.append(_table(part, homes))
    return "\n\n".join(part for part in parts if part) + "\n"


def _paragraph(text: str) -> str:
    """A paragraph; a long one can be opened."""
    if len(text) < WALL:
        return escaped(text)
    first, _, rest = text.partition(": ")
    return f'<details markdown="1"><summary>{escaped(first)}</summary>\n\n{escaped(rest)}\n\n</details>'


def _title(section: Section) -> str:
    return escaped(section.title.replace("runs: ", "Runs: ").replace("alpha, measured", "alpha, measured and best"))


def _stem(section: Section) -> str:
    target = section.title.partition(":")[0]
    return target if target in TARGETS and section.short == target else section.anchor


def _table(shown: Table, homes: Mapping[str, str]) -> str:
    """The table without columns that say nothing."""
    told = [any(row[k].text not in ("", "-") for row in shown.cells) for k in range(len(shown.header))]
    head = [escaped(name) or " " for name in shown.header]
    align = ["--:" if numeric else "---" for numeric in shown.numeric]
    rows = [[_cell(cell, homes) for cell in row] for row in shown.cells]
    kept = [[cell for cell, tells in zip(row, told, strict=True) if tells] for row in (head, align, *rows)]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in kept]
    caption = escaped(shown.caption)
    return (f"{caption}\n\n" if caption else "") + "\n".join(lines)


def _cell(cell: Cell, homes: Mapping[str, str]) -> str:
    text = escaped(cell.text)
    if len(cell.text) > LONG:
        text = f'<span class="said">{text}</span>'
    if cell.mark in ("good", "bad", "open", "warn"):
        text = f'<span class="{cell.mark}">{text}</span>'
    if cell.href.startswith("#") and cell.href[1:] in homes:
        text = f"[{text}]({homes[cell.href[1:]]})"
    elif cell.href.endswith((".json", ".md")):
        text = f"[{text}]({cell.href})"
    return f"{text} <small>{escaped(cell.note)}</small>" if cell.note else text


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
