"""The report on the paper: every record under a folder as one page, with Markdown, LaTeX and pictures beside it.

Reads records alone; nothing is computed but means, intervals and pictures. The first screen tells what was run and how
many claims hold, the last what is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

from rcad.errors import InputError, fitting
from rcad.paper.claims import NOT_RUN, TRIAL
from rcad.paper.record import Study
from rcad.paper.report import chapters, costs, few_labels, tables
from rcad.paper.report.reading import Records, read
from rcad.paper.report.tables import Links, about, caption
from rcad.paper.targets import TARGETS
from rcad.report import drawing, html, latex, markdown
from rcad.report.document import Cell, Document, Figure, Section, Table, file_stem
from rcad.report.drawing import BLUE, GREEN, GREY, LIGHT, ORANGE, PAPER, VERMILION
from rcad.runs.files import make_folder, write_text
from rcad.runs.pack import is_pack
from rcad.runs.words import duration, plural
from rcad.study.judge import VERDICTS
from rcad.study.statistics import Paired
from rcad.train.progress import SILENT, Progress

__all__ = ["Report", "build", "gather"]

CLAIMS, MISSING = "Every claim", "Not run yet"
ACROSS = 13
VERDICTS_DRAWN = {
    "reproduced": (GREEN, "+"),
    "not reproduced": (ORANGE, "\N{MINUS SIGN}"),
    "opposite": (VERMILION, "x"),
    "undecided": (LIGHT, "?"),
}
"""The colour and the sign of a verdict."""


@dataclass(frozen=True)
class Report:
    """The records of a folder, and the page on them."""

    records: Records
    document: Document


def build(results: Path, out: Path, progress: Progress = SILENT) -> list[Path]:
    """Write the report on every record under `results`: report.html, report.md, tables/*.tex, figures/*.pdf and *.png.

    A record that cannot be read is named on the first screen. Links to records are relative to `out`.
    """
    with fitting(f"the records in {results}", "run the one that was changed again"):
        progress.overall(0, 3, "reading the records")
        report = gather(results, out)
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
    summary, *claims = first_screen(records, damaged, {section.title: section.anchor for section in parts}, links)
    sections = [summary, few_labels.section(records.studies), *claims, *parts, not_run_yet(records)]
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
    texts = {file_stem(study.stem) or "table": latex.table(tables.grid(study), study.target) for study in studies}
    texts["verdicts"] = latex.table(verdict_table(records.studies), "verdicts")
    files = []
    for stem, text in sorted(texts.items()):
        files.append(folder / f"{stem}.tex")
        write_text(files[-1], text)
    return files


def first_screen(records: Records, damaged: Sequence[str], homes: Mapping[str, str], links: Links) -> list[Section]:
    """Two chapters: the summary, and the table of all claims; `homes` has the chapter of each study by its title."""
    studies = records.studies
    claims = [(study, claim) for study in studies for claim in study.tested]
    lines = []
    for scope, added in product(sorted({study.scope for study in studies}), (False, True)):
        judged = [claim for study, claim in claims if study.scope == scope and study.added(claim) == added]
        noun, whose = ("check", "of ours, not in the paper") if added else ("claim", "of the paper")
        lines += [f"{plural(len(judged), noun)} {whose}, at {scope}: {tables.tally(judged)}."] if judged else []
    notice = ""
    if trials := ", ".join(f"{study.target} ({study.scale})" for study in studies if study.warning):
        notice = f"Not the paper's scale: {trials}. Their numbers are not evidence about the paper."
    paragraphs = [f"Could not be read: {line}" for line in damaged]
    if records.missing:
        paragraphs.append(f"Not run yet: {', '.join(records.missing)}.")
    absent = {study.target: sum(claim.verdict == NOT_RUN for claim in study.claims) for study in studies}
    if targets := ", ".join(f"{target} ({count})" for target, count in absent.items() if count):
        paragraphs.append(f"Claims on data that were not run, and so neither judged nor counted: {targets}.")
    drawn = [few_labels.in_short(studies), squares(studies), forest(studies)]
    summary = Section(
        "In short",
        paragraphs,
        [*(part for part in drawn if part is not None), *([_summary(records, homes, links)] if studies else [])],
        "\n".join(lines) or "No claim has been judged yet.",
        notice,
    )
    if not claims:
        return [summary]
    return [summary, Section(CLAIMS, [], [tables.claim_table(claims, caption("claims"), homes, choose="verdict")])]


def _summary(records: Records, homes: Mapping[str, str], links: Links) -> Table:
    rows: list[dict[str, str | Cell]] = []
    for study in records.studies:
        judged, path = _counts(study), study.path
        title = "single runs" if study.title.startswith("runs: ") else study.title.removeprefix(f"{study.target}: ")
        kind = "-" if path is None else "pack" if is_pack(path) else path.suffix[1:] or "folder"
        verdicts: dict[str, str | Cell] = dict.fromkeys(tables.MARKS, "")
        if study.tested and TRIAL not in judged:
            verdicts = {v: Cell(str(judged[v]), mark=mark if judged[v] else "none") for v, mark in tables.MARKS.items()}
        rows.append(
            {
                "table or figure": Cell(study.short_title, title, f"#{homes[study.title]}"),
                "scale": Cell(study.scale, mark="" if study.scale == "full" else "bad"),
                **verdicts,
                "runs": str(study.runs or "-"),
                "time": duration(study.seconds),
                **_dates_and_devices(study, records),
                "record": Cell(kind, href=links.to(path)),
            }
        )
    return Table.of(rows, "What was run, and how many of its claims got each verdict.")


def _counts(study: Study) -> Counter[str]:
    return Counter(claim.verdict for claim in study.tested)


def _dates_and_devices(study: Study, records: Records) -> dict[str, str]:
    """The last day, and devices, of the runs whose records are there."""
    runs = records.runs_of(study)
    devices = sorted({run.device for run in runs if run.device})
    if not devices and study.versions.get("torch", "").endswith("+cpu"):
        devices = ["CPU"]
    last = max((run.started[:10] for run in runs if run.started), default="")
    return {"last run": last, "device": ", ".join(devices)}


def not_run_yet(records: Records) -> Section | None:
    """The tables and figures of the paper without a record, with the commands that make them."""
    if not records.missing:
        return None
    rows = [[target, TARGETS[target].about, f"rcad paper run {target}"] for target in records.missing]
    return Section(MISSING, [], [Table(["name", "what", "command"], rows)])


def verdict_table(studies: Sequence[Study]) -> Table:
    """How many claims of each table and figure got each verdict."""
    rows = []
    for study in studies:
        if study.tested:
            judged = _counts(study)
            numbers = ("-" if TRIAL in judged else str(judged[verdict]) for verdict in VERDICTS)
            rows.append([study.title, study.scale, *numbers])
    return Table(["", "scale", *VERDICTS], rows, "Claims of the paper by verdict.")


def squares(studies: Sequence[Study]) -> Figure | None:
    """A square for each claim, in lines by target."""
    judged = [study for study in studies if study.tested]
    if not judged:
        return None
    lines: list[tuple[str, list[str]]] = []
    for study in judged:
        order = sorted(_counts(study).elements(), key=lambda verdict: (*VERDICTS, verdict).index(verdict))
        name = study.short_title
        starts = range(0, len(order), ACROSS)
        lines += [("" if start else name, order[start : start + ACROSS]) for start in starts]
    widest = max(len(order) for _, order in lines)
    labels = max(len(name) for name, _ in lines)
    figure, ax = drawing.axes(max(4.6, 0.24 * widest + 0.1 * labels), 0.26 * len(lines) + 0.9)
    from matplotlib.patches import Rectangle

    for y, (_, order) in enumerate(lines):
        for x, verdict in enumerate(order):
            colour, sign = VERDICTS_DRAWN.get(verdict, (GREY, ""))
            ax.add_patch(Rectangle((x - 0.44, y - 0.44), 0.88, 0.88, facecolor=colour, edgecolor="none"))
            ax.text(x, y, sign, ha="center", va="center", fontsize=7, color="black")
    ax.set(xlim=(-0.6, widest - 0.4), ylim=(len(lines) - 0.4, -0.6), xticks=[])
    ax.set_yticks(range(len(lines)), [name for name, _ in lines])
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelsize=9)
    ax.set_aspect("equal", anchor="E")
    total = sum(map(_counts, judged), Counter[str]())
    keys = [
        drawing.key(ax, f"{sign} {verdict} ({total[verdict]})", marker="s", ls="", color=colour, ms=8)
        for verdict, (colour, sign) in VERDICTS_DRAWN.items()
    ]
    return drawing.finish(figure, keys, *about("verdicts"), "verdicts", columns=2)


def forest(studies: Sequence[Study]) -> Figure | None:
    """RCAD against ERM in every column of the tables, with the published difference; one panel for each unit."""
    units: dict[str, list[tuple[str, Paired, float | None]]] = {}
    for study in studies:
        base, row = tables.reference(study), next((name for name in study.rows if name.casefold() == "rcad"), None)
        # The figures show the tables' runs again, and single runs have no published number.
        if base is None or row is None or not study.target.startswith("T"):
            continue
        target = study.short_title
        lines = units.setdefault(tables.gain_unit(study), [])
        for column in study.columns:
            gain = tables.gain_over(study, row, base, column)
            if gain is not None:
                lines.append((f"{target}: {column}", gain, tables.printed_gain(study, row, base, column)))
    units = {unit: lines for unit, lines in units.items() if lines}
    if not units:
        return None
    heights = [len(lines) + 2.2 for lines in units.values()]
    figure, axes = drawing.grid(7.2, 0.235 * sum(heights) + 0.5, len(units), 1, height_ratios=heights)
    for ax, (unit, lines) in zip(axes.flat, units.items(), strict=True):
        near = [value for _, gain, printed in lines for value in (gain.mean, gain.low, gain.high, printed)]
        bounds = drawing.limits([value for value in near if value is not None], around=0.0, reach=12.0)
        for y, (_, gain, printed) in enumerate(lines):
            ax.errorbar(gain.mean, y, xerr=gain.half, fmt="o", color=BLUE, ms=4.5, lw=1.6, capsize=2.5)
            if printed is not None:
                ax.plot(printed, y, "D", color=PAPER, ms=5.5, mfc="none", mew=1.5)
            drawing.beyond(ax, [gain.mean], y, bounds)
        ax.axvline(0, color="black", lw=0.8)
        ax.set_yticks(range(len(lines)), [drawing.label(name, 52, 1) for name, _, _ in lines])
        ax.set(ylim=(len(lines) - 0.4, -0.6), xlim=bounds)
        ax.set_xlabel(f"RCAD {tables.better_by('ERM', unit)}", fontsize=9)
    keys = [
        drawing.key(axes[0, 0], "ours, 95% interval", marker="o", color=BLUE, ms=5),
        drawing.key(axes[0, 0], "as published", marker="D", ls="", color=PAPER, ms=5.5, mfc="none", mew=1.5),
    ]
    return drawing.finish(figure, keys, *about("forest"), "gains", columns=2)
