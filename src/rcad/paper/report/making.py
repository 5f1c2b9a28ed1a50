"""From a folder of records to the report's files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rcad.paper.report import alphas, costs, evaluations, latex, markdown, overview, overview_pictures, sections
from rcad.paper.report.drawing import Picture
from rcad.paper.report.reading import Found, read
from rcad.paper.report.sections import figure
from rcad.paper.report.tables import Links
from rcad.report import html
from rcad.report.document import Document, Section, Table
from rcad.runs.files import make_folder, replacing, write_text

TITLE = "Does RCAD hold up? Every table and figure, made again"
LEAD = (
    "Setlur, Eysenbach, Smith and Levine (NeurIPS 2022) say that reducing confidence along adversarial directions "
    "makes networks generalise better. Here are their claims, our runs, and a verdict on each by a rule written "
    "down before the runs."
)
NAME = "report.html"
BROKEN = (KeyError, TypeError, ValueError, AttributeError, IndexError, StopIteration)
"""What reading a record with missing parts raises."""


@dataclass(frozen=True)
class Report:
    """What the report shows: its chapters from top to bottom, their pictures by title, and how it was made."""

    found: Found
    sections: Sequence[Section]
    drawn: Mapping[str, Sequence[Picture]]
    facts: Mapping[str, str]


def build(results: Path, out: Path) -> list[Path]:
    """Write the report on every record under `results`: report.html, report.md, tables/*.tex, figures/*.pdf and *.png.

    Args:
        results: the folder of records; one that cannot be read is named on the first screen.
        out: the folder of the report; made if need be. Links to records are relative to it.
    """
    report = gather(results, out)
    make_folder(out)
    files = [out / NAME, out / "report.md"]
    write_text(files[0], html.page(Document(TITLE, LEAD, report.sections, report.facts)))
    write_text(files[1], markdown.report(TITLE, LEAD, report.sections, report.drawn, report.facts))
    files += _tables(report.found, out / "tables")
    return files + _pictures([one for some in report.drawn.values() for one in some], out / "figures")


def gather(results: Path, out: Path) -> Report:
    """Read the records and draw; nothing is written. Arguments as in `build`."""
    found = read(results)
    links = Links(out, found.run_files)
    drawn, chapters = _chapters(found, links)
    more, others, damaged = _others(found, links)
    found = replace(found, damaged=[*found.damaged, *damaged])
    drawn, chapters = {**drawn, **more}, [*chapters, *others]
    homes = {section.title: section.anchor for section in chapters}
    main = [one for one in (overview_pictures.squares(found.studies), overview_pictures.forest(found.studies)) if one]
    front = overview.first(found, [figure(one) for one in main], homes, links)
    drawn[front[0].title] = main
    last = overview.missing(found)
    return Report(found, [*front, *chapters, *([last] if last else [])], drawn, _facts(found))


def _chapters(found: Found, links: Links) -> tuple[dict[str, list[Picture]], list[Section]]:
    drawn: dict[str, list[Picture]] = {}
    chapters: list[Section] = []
    for study in found.studies:
        try:
            shown, lost = sections.draw(study), ""
        except BROKEN as error:
            shown, lost = [], f"No pictures: {study.path.name} lacks what they need ({' '.join(str(error).split())})."
        drawn[study.title] = shown
        chapter = sections.section(study, shown, links)
        chapters.append(replace(chapter, notice=f"{chapter.notice} {lost}".strip()))
    return drawn, chapters


def _others(found: Found, links: Links) -> tuple[dict[str, list[Picture]], list[Section], list[str]]:
    """Chapters of records that are no study, their pictures, and a line for each record that lacks something."""
    drawn: dict[str, list[Picture]] = {}
    chapters: list[Section] = []
    damaged: list[str] = []
    charts: list[Picture] = []
    tables: list[Table] = []
    for path, record in (*found.alphas, *found.evaluations, *found.benchmarks):
        try:
            if (path, record) in found.alphas:
                shown = alphas.picture(record)
                chapters.append(alphas.section(path, record, shown, links))
                drawn[chapters[-1].title] = [shown]
            elif (path, record) in found.evaluations:
                chapters.append(evaluations.section(path, record, links))
            else:
                chart, table = costs.chart(path, record), costs.table(record)
                charts += [chart] if chart is not None else []
                tables.append(table)
        except BROKEN as error:
            damaged.append(f"expected {path} to be whole, but got no {' '.join(str(error).split())}; make it again")
    if tables:
        chapters.append(Section(costs.TITLE, [costs.ABOUT], [*map(figure, charts), *tables]))
        drawn[costs.TITLE] = charts
    return drawn, chapters, damaged


def _facts(found: Found) -> dict[str, str]:
    versions: dict[str, set[str]] = {}
    for study in found.studies:
        for name, version in study.versions.items():
            versions.setdefault(name, set()).add(str(version))
    facts = {name: ", ".join(sorted(values)) for name, values in sorted(versions.items())}
    facts["made by"] = "rcad paper report, from records alone"
    if found.unused:
        facts["records not shown"] = ", ".join(f"{path.parent.name}/{path.name}" for path in found.unused)
    return facts


def _tables(found: Found, folder: Path) -> list[Path]:
    make_folder(folder)
    texts = {_stem(study.target): latex.table(study) for study in reversed(found.studies) if study.places}
    texts["verdicts"] = latex.verdicts(found.studies)
    files = []
    for stem, text in sorted(texts.items()):
        files.append(folder / f"{stem}.tex")
        write_text(files[-1], text)
    return files


def _stem(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.") or "table"


def _pictures(drawn: list[Picture], folder: Path) -> list[Path]:
    make_folder(folder)
    files: list[Path] = []
    # No dates inside: the same records give the same files.
    settings: tuple[tuple[str, dict[str, Any]], ...] = (
        ("png", {"dpi": 150, "metadata": {"Software": None}}),
        ("pdf", {"metadata": {"CreationDate": None, "Producer": None, "Creator": None}}),
    )
    for one in drawn:
        for form, options in settings:
            path = folder / f"{one.name}.{form}"
            with replacing(path) as temporary, temporary.open("wb") as file:
                one.figure.savefig(file, format=form, **options)
            files.append(path)
    return files
