"""The first screen: what was run, how many claims hold, the main pictures; at the end what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rcad.paper.claims import NOT_RUN, TRIAL
from rcad.paper.record import Study
from rcad.paper.report.numbers import Mean, counts, gain_over, printed_gain, reference, tally
from rcad.paper.report.reading import Found
from rcad.paper.report.tables import MARKS, Links, claim_table
from rcad.paper.targets import TARGETS
from rcad.report import drawing
from rcad.report.document import Cell, Figure, Section, Table
from rcad.report.drawing import BLUE, GREY, PAPER, VERDICT_COLOURS, VERDICT_SIGNS
from rcad.runs.pack import is_pack
from rcad.runs.words import duration, plural
from rcad.study.judge import VERDICTS

CLAIMS, MISSING = "Every claim", "Not run yet"
ACROSS = 13


def first(found: Found, damaged: Sequence[str], homes: Mapping[str, str], links: Links) -> list[Section]:
    """Two chapters: the summary, and the table of all claims; `homes` has the chapter of each study by its title."""
    studies = found.studies
    claims = [(study, claim) for study in studies for claim in study.tested]
    lines = []
    for scope in sorted({study.scope for study in studies}):
        for added, what in ((False, "claim"), (True, "check")):
            some = [claim for study, claim in claims if study.scope == scope and study.added(claim) == added]
            whose = "of ours, not in the paper" if added else "of the paper"
            lines += [f"{plural(len(some), what)} {whose}, at {scope}: {tally(some)}."] if some else []
    trials = [study for study in studies if study.warning]
    notice = ""
    if trials:
        names = ", ".join(f"{study.target} ({study.scale})" for study in trials)
        notice = f"Not the paper's scale: {names}. Their numbers are not evidence about the paper."
    told = [*(f"Could not be read: {line}" for line in damaged)]
    if found.missing:
        told.append(f"Not run yet: {', '.join(found.missing)}.")
    absent = {study.target: sum(claim.verdict == NOT_RUN for claim in study.claims) for study in studies}
    if any(absent.values()):
        names = ", ".join(f"{target} ({count})" for target, count in absent.items() if count)
        told.append(f"Claims on data that were not run, and so neither judged nor counted: {names}.")
    shown = [one for one in (squares(studies), forest(studies)) if one is not None]
    summary = Section(
        "In short",
        told,
        [*shown, _summary(studies, homes, found, links)],
        "\n".join(lines) or "No claim has been judged yet.",
        notice,
    )
    if not claims:
        return [summary]
    caption = (
        "Differences are oriented so that positive speaks for the claim; points, or nats for likelihoods. p is "
        "one-sided, after Holm over all claims of a table or figure."
    )
    return [summary, Section(CLAIMS, [], [claim_table(claims, caption, homes, choose="verdict")])]


def _summary(studies: Sequence[Study], homes: Mapping[str, str], found: Found, links: Links) -> Table:
    rows: list[list[str | Cell]] = []
    for study in studies:
        judged = counts(study.tested)
        numbers = [
            Cell(str(judged[verdict]), mark=mark if judged[verdict] else "none")
            if study.tested and TRIAL not in judged
            else ""
            for verdict, mark in MARKS.items()
        ]
        dates, devices = _facts(study, found)
        rows.append(
            [
                Cell(study.target, _about(study), f"#{homes[study.title]}"),
                Cell(study.scale + ", tuned" * study.tuned, mark="" if study.scale == "full" else "bad"),
                *numbers,
                str(study.runs or "-"),
                duration(study.seconds),
                dates,
                devices,
                Cell(_kind(study.path), href=links.to(study.path)),
            ]
        )
    header = ["table or figure", "scale", *MARKS, "runs", "time", "date", "device", "record"]
    return Table(header, rows, "What was run, and how many of its claims got each verdict.")


def _kind(path: Path | None) -> str:
    if path is None:
        return "-"
    return "pack" if is_pack(path) else path.suffix[1:] or "folder"


def _about(study: Study) -> str:
    if study.target in TARGETS:
        return study.title.removeprefix(f"{study.target}: ")
    return "single runs" if study.title.startswith("runs: ") else study.title


def _facts(study: Study, found: Found) -> tuple[str, str]:
    """First and last day, and devices, of the runs whose records are there."""
    runs = found.runs_of(study)
    days = sorted({run.started[:10] for run in runs if run.started})
    devices = sorted({run.device for run in runs if run.device})
    if not devices and study.versions.get("torch", "").endswith("+cpu"):
        devices = ["CPU"]
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "", ", ".join(devices)


def missing(found: Found) -> Section | None:
    """What the paper shows and no record holds, with the command that makes it."""
    if not found.missing:
        return None
    rows = [[target, TARGETS[target].about, f"rcad paper run {target}"] for target in found.missing]
    return Section(MISSING, [], [Table(["name", "what", "command"], rows)])


def verdict_table(studies: Sequence[Study]) -> Table:
    """How many claims of each table and figure got each verdict."""
    rows = []
    for study in studies:
        if study.tested:
            judged = counts(study.tested)
            given = ("-" if TRIAL in judged else str(judged[verdict]) for verdict in VERDICTS)
            rows.append([study.title, study.scale, *given])
    return Table(["", "scale", *VERDICTS], rows, "Claims of the paper by verdict.")


def squares(studies: Sequence[Study]) -> Figure | None:
    """A square for each claim, in lines by target."""
    judged = [study for study in studies if study.tested]
    if not judged:
        return None
    lines: list[tuple[str, list[str]]] = []
    for study in judged:
        found = counts(study.tested)
        order = [verdict for verdict, count in found.items() for _ in range(count)]
        name = study.target if study.as_published else f"{study.target}, {'tuned' if study.tuned else study.scale}"
        starts = range(0, len(order), ACROSS)
        lines += [("" if start else name, order[start : start + ACROSS]) for start in starts]
    widest = max(len(order) for _, order in lines)
    figure = drawing.blank(max(4.6, 0.24 * widest + 1.4), 0.30 * len(lines) + 0.9)
    ax = figure.subplots()
    for y, (_, order) in enumerate(lines):
        for x, verdict in enumerate(order):
            colour = VERDICT_COLOURS.get(verdict, GREY)
            ax.add_patch(_square(x, y, colour))
            ax.text(x, y, VERDICT_SIGNS.get(verdict, ""), ha="center", va="center", fontsize=7, color="black")
    ax.set(xlim=(-0.6, widest - 0.4), ylim=(len(lines) - 0.4, -0.6), xticks=[])
    ax.set_yticks(range(len(lines)), [drawing.label(name, 20, 1) for name, _ in lines])
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelsize=9)
    ax.set_aspect("equal")
    total = counts([claim for study in judged for claim in study.tested])
    keys = [
        drawing.key(ax, f"{sign} {verdict} ({total[verdict]})", marker="s", ls="", color=VERDICT_COLOURS[verdict], ms=8)
        for verdict, sign in VERDICT_SIGNS.items()
    ]
    drawing.legend(figure, keys, 2)
    return Figure(
        figure,
        "A square is a claim. What is not at the paper's scale or by its protocol is named.",
        "Claims by target and verdict; the table of verdicts has the numbers.",
        wide=False,
        name="verdicts",
    )


def _square(x: float, y: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.44, y - 0.44), 0.88, 0.88, facecolor=colour, edgecolor="none")


def forest(studies: Sequence[Study]) -> Figure | None:
    """RCAD against ERM in every column of the tables, with the published difference; one panel for each unit."""
    units: dict[str, list[tuple[str, Mean, float | None]]] = {}
    for study in studies:
        base, row = reference(study), next((name for name in study.rows if name.casefold() == "rcad"), None)
        # The figures show the tables' runs again, and single runs have no published number.
        if base is None or row is None or not study.target.startswith("T"):
            continue
        unit = "points" if study.unit == "%" else study.unit
        scale = "" if study.as_published else f" [{'tuned' if study.tuned else study.scale}]"
        for column in study.columns:
            found = gain_over(study, row, base, column)
            if found is not None:
                mean = Mean(found.mean, found.high - found.mean, int(found.df) + 1)
                name = f"{study.target}{scale}: {column}"
                units.setdefault(unit, []).append((name, mean, printed_gain(study, row, base, column)))
    if not units:
        return None
    heights = [len(lines) + 2.2 for lines in units.values()]
    figure = drawing.blank(7.2, 0.235 * sum(heights) + 0.5)
    axes = figure.subplots(len(units), 1, height_ratios=heights, squeeze=False).ravel()
    for ax, (unit, lines) in zip(axes, units.items(), strict=True):
        near = [v for _, mean, printed in lines for v in (mean.value, *([] if printed is None else [printed]))]
        near += [mean.value + side * mean.half for _, mean, _ in lines for side in (-1, 1) if mean.half is not None]
        bounds = drawing.limits(near, around=0.0, reach=12.0)
        for y, (_, mean, printed) in enumerate(lines):
            ax.errorbar(mean.value, y, xerr=mean.half, fmt="o", color=BLUE, ms=4.5, lw=1.6, capsize=2.5)
            if printed is not None:
                ax.plot(printed, y, "D", color=PAPER, ms=5.5, mfc="none", mew=1.5)
            drawing.beyond(ax, [mean.value], y, bounds)
        ax.axvline(0, color="black", lw=0.8)
        ax.set_yticks(range(len(lines)), [drawing.label(name, 52, 1) for name, _, _ in lines])
        ax.set(ylim=(len(lines) - 0.4, -0.6), xlim=bounds)
        ax.set_xlabel(f"RCAD better than ERM by, {unit}" if unit else "RCAD better than ERM by", fontsize=9)
        drawing.bare(ax)
    keys = [
        drawing.key(axes[0], "ours, 95% interval", marker="o", color=BLUE, ms=5),
        drawing.key(axes[0], "as published", marker="D", ls="", color=PAPER, ms=5.5, mfc="none", mew=1.5),
    ]
    drawing.legend(figure, keys, 2)
    return Figure(
        figure,
        "RCAD against ERM on the same seeds, right of the line for RCAD, beside the published difference. Whether the "
        "adversarial direction is the reason, the controls of each table tell.",
        "RCAD's gain over ERM by table and data, with intervals and published values.",
        wide=False,
        name="gains",
    )
