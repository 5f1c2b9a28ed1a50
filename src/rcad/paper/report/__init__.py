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
from rcad.paper.report.reading import Records, read
from rcad.paper.report.tables import Links, caption, grid
from rcad.report import drawing, html, latex, markdown
from rcad.report.document import Document, Section, file_stem
from rcad.runs.files import make_folder, write_text
from rcad.train.progress import SILENT, Progress

__all__ = ["Report", "build", "gather"]


@dataclass(frozen=True)
class Report:
    """The records of a folder, and the page on them."""

    records: Records
    document: Document


def build(results: Path, out: Path, progress: Progress = SILENT) -> list[Path]:
    """Write the report on every record under `results`: report.html, report.md, tables/*.tex, figures/*.pdf and *.png.

    Args:
        results: the folder of records; one that cannot be read is named on the first screen.
        out: the folder of the report; made if need be. Links to records are relative to it.
    """
    with fitting(f"the records in {results}", "run the one that was changed again"):
        progress.overall(0, 3, "reading the records")
        return _write(gather(results, out), out, progress)


def _write(report: Report, out: Path, progress: Progress) -> list[Path]:
    progress.overall(1, 3, "drawing the page")
    for folder in (out, out / "tables", out / "figures"):
        make_folder(folder)
    files = [out / "report.html", out / "report.md"]
    write_text(files[0], html.page(report.document))
    for figure in report.document.figures:
        figure.drawing.set_layout_engine(None)  # as the page has it: laying out is a third of the time of a file
    write_text(files[1], markdown.markdown(report.document))
    files += _write_tables(report.records, out / "tables")
    progress.overall(2, 3, "writing the figures")
    return files + drawing.save(report.document.figures, out / "figures", ("png", "pdf"))


def gather(results: Path, out: Path) -> Report:
    """Read the records and draw; nothing is written. Arguments as in `build`."""
    records = read(results)
    links = Links(out, records.run_files)
    parts: list[Section] = []
    damaged = list(records.damaged)

    def add(path: Path | None, make: Callable[[], Section]) -> bool:
        """Add a record's chapter; False, and a line on what is damaged, where it gives none."""
        try:
            with fitting(str(path), "run it again"):
                parts.append(make())
        except InputError as error:
            damaged.append(str(error))
            return False
        return True

    def chapter(study: Study) -> Section:
        few_labels.section([study])  # it must not fail on this one
        return chapters.section(study, links)

    records = replace(records, studies=[study for study in records.studies if add(study.path, partial(chapter, study))])
    for path, record in records.by_kind[chapters.EVALUATION]:
        add(path, partial(chapters.evaluation, path, record, links))
    cost = costs.section(records.by_kind[costs.KIND], records.by_kind[costs.GROWTH])
    parts += [cost] if cost is not None else []
    summary, *claims = overview.first(records, damaged, {section.title: section.anchor for section in parts}, links)
    sections = [summary, few_labels.section(records.studies), *claims, *parts, overview.missing(records)]
    present = [section for section in sections if section is not None]
    return Report(records, Document(caption("title"), caption("lead"), present, _facts(records)))


def _facts(records: Records) -> dict[str, str]:
    versions: dict[str, set[str]] = {}
    for study in records.studies:
        for name, version in study.versions.items():
            versions.setdefault(name, set()).add(str(version))
    facts = {name: ", ".join(sorted(values)) for name, values in sorted(versions.items())}
    facts["made by"] = "rcad paper report, from records alone"
    if records.unused:
        facts["records not shown"] = ", ".join(f"{path.parent.name}/{path.name}" for path in records.unused)
    return facts


def _write_tables(records: Records, folder: Path) -> list[Path]:
    # A foreign record's target may be anything.
    studies = [study for study in reversed(records.studies) if study.places]
    texts = {file_stem(study.stem) or "table": latex.table(grid(study), study.target) for study in studies}
    texts["verdicts"] = latex.table(overview.verdict_table(records.studies), "verdicts")
    files = []
    for stem, text in sorted(texts.items()):
        files.append(folder / f"{stem}.tex")
        write_text(files[-1], text)
    return files
