"""The first pictures of the report: every claim as a square by its verdict, and RCAD's gain wherever it was tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rcad.paper.report import drawing
from rcad.paper.report.drawing import BLUE, GREY, PAPER, VERDICT_COLOURS, VERDICT_SIGNS, Picture
from rcad.paper.report.numbers import Mean, counts, gain_over, printed_gain, reference
from rcad.paper.report.study import Study

ACROSS = 13


def squares(studies: Sequence[Study]) -> Picture | None:
    """A square for each claim, in lines by target."""
    judged = [study for study in studies if study.claims]
    if not judged:
        return None
    lines: list[tuple[str, list[str]]] = []
    for study in judged:
        found = counts(study.claims)
        order = [verdict for verdict, count in found.items() for _ in range(count)]
        name = study.target if study.scale == "full" else f"{study.target}, {study.scale}"
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
    total = counts([claim for study in judged for claim in study.claims])
    keys = [
        drawing.key(ax, f"{sign} {verdict} ({total[verdict]})", marker="s", ls="", color=VERDICT_COLOURS[verdict], ms=8)
        for verdict, sign in VERDICT_SIGNS.items()
    ]
    drawing.legend(figure, keys, 2)
    return Picture(
        "verdicts",
        figure,
        "A square is a claim. A scale other than the paper's is named.",
        "Claims by target and verdict; the table of verdicts has the numbers.",
        wide=False,
    )


def _square(x: float, y: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.44, y - 0.44), 0.88, 0.88, facecolor=colour, edgecolor="none")


def forest(studies: Sequence[Study]) -> Picture | None:
    """RCAD against ERM in every column of the tables, with the published difference; one panel for each unit."""
    units: dict[str, list[tuple[str, Mean, float | None]]] = {}
    for study in studies:
        base, row = reference(study), next((name for name in study.rows if name.casefold() == "rcad"), None)
        # The figures show the tables' runs again, and single runs have no published number.
        if base is None or row is None or not study.target.startswith("T"):
            continue
        unit = "points" if study.unit == "%" else study.unit
        scale = "" if study.scale == "full" else f" [{study.scale}]"
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
    return Picture(
        "gains",
        figure,
        "RCAD against ERM on the same seeds, right of the line for RCAD, beside the published difference. Whether the "
        "adversarial direction is the reason, the controls of each table tell.",
        "RCAD's gain over ERM by table and data, with intervals and published values.",
        wide=False,
    )
