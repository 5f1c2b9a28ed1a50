"""The report on the paper: every record under a folder as one page, with Markdown, LaTeX and pictures beside it.

Reads records alone; nothing is computed but means, intervals and pictures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rcad.errors import InputError, fitting
from rcad.paper.record import Study
from rcad.paper.report import chapters, costs, few_labels, overview
from rcad.paper.report.reading import Found, read
from rcad.paper.report.tables import Links, grid
from rcad.report import drawing, html, latex, markdown
from rcad.report.document import Document, Section, file_stem
from rcad.runs.files import make_folder, write_text
from rcad.train.progress import SILENT, Progress

__all__ = ["Report", "build", "gather"]

TITLE = "Does RCAD hold up? Every table and figure, made again"
LEAD = (
    "Setlur, Eysenbach, Smith and Levine (NeurIPS 2022) say that reducing confidence along adversarial directions "
    "makes networks generalise better. Here are their claims, our runs, and a verdict on each by a rule written "
    "down before the runs."
)
NAME = "report.html"


@dataclass(frozen=True)
class Report:
    """The records that were found, and what they say."""

    found: Found
    document: Document


def build(results: Path, out: Path, progress: Progress = SILENT) -> list[Path]:
    """Write the report on every record under `results`: report.html, report.md, tables/*.tex, figures/*.pdf and *.png.

    Args:
        results: the folder of records; one that cannot be read is named on the first screen.
        out: the folder of the report; made if need be. Links to records are relative to it.
    """
    with fitting(f"the records in {results}", "run the one that was changed again"):
        progress.overall(0, 3, "reading the records")
        return _written(gather(results, out), out, progress)


def _written(report: Report, out: Path, progress: Progress) -> list[Path]:
    progress.overall(1, 3, "drawing the page")
    for folder in (out, out / "tables", out / "figures"):
        make_folder(folder)
    files = [out / NAME, out / "report.md"]
    write_text(files[0], html.page(report.document))
    for figure in report.document.figures:
        figure.drawing.set_layout_engine(None)  # as the page has it: laying out is a third of the time of a file
    write_text(files[1], markdown.markdown(report.document))
    files += _tables(report.found, out / "tables")
    progress.overall(2, 3, "writing the figures")
    return files + drawing.save(report.document.figures, out / "figures", ("png", "pdf"))


def gather(results: Path, out: Path) -> Report:
    """Read the records and draw; nothing is written. Arguments as in `build`."""
    found = read(results)
    links = Links(out, found.run_files)
    some: list[Section] = []
    damaged = list(found.damaged)

    def shown(path: Path | None, make: Callable[[], Section]) -> bool:
        """Whether a record gives a chapter; one that does not is damaged."""
        try:
            with fitting(str(path), "run it again"):
                some.append(make())
        except InputError as error:
            damaged.append(str(error))
            return False
        return True

    def chapter(study: Study) -> Section:
        few_labels.section([study])  # it must not fail on this one
        return chapters.section(study, links)

    found = replace(found, studies=[one for one in found.studies if shown(one.path, partial(chapter, one))])
    for path, record in found.others[chapters.EVALUATION]:
        shown(path, partial(chapters.evaluation, path, record, links))
    cost = costs.section(found.others[costs.KIND], found.others[costs.GROWTH])
    some += [cost] if cost is not None else []
    summary, *claims = overview.first(found, damaged, {section.title: section.anchor for section in some}, links)
    sections = [summary, few_labels.section(found.studies), *claims, *some, overview.missing(found)]
    document = Document(TITLE, LEAD, [one for one in sections if one is not None], _facts(found))
    return Report(found, document)


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
    # A foreign record's target may be anything.
    studies = [study for study in reversed(found.studies) if study.places]
    texts = {file_stem(study.stem) or "table": latex.table(grid(study), study.target) for study in studies}
    texts["verdicts"] = latex.table(overview.verdict_table(found.studies), "verdicts")
    files = []
    for stem, text in sorted(texts.items()):
        files.append(folder / f"{stem}.tex")
        write_text(files[-1], text)
    return files
