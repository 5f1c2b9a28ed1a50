"""The measured alpha against the best of a grid, from its record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rcad.paper.report import drawing
from rcad.paper.report.drawing import BLACK, BLUE, GREEN, Picture
from rcad.paper.report.numbers import fixed, mean_of
from rcad.paper.report.sections import figure
from rcad.paper.report.study import SCALES, Record
from rcad.paper.report.tables import Links
from rcad.report.document import Cell, Section, Table

TITLE = "alpha, measured"


def picture(record: Record) -> Picture:
    """Held-out accuracy by alpha for each setting, with ERM's level and the suggestion."""
    settings = _settings(record)
    across = min(3, len(settings))
    down = -(-len(settings) // across)
    sketch = drawing.blank(3.6 * across, 2.6 * down + 0.5)
    axes = sketch.subplots(down, across, squeeze=False).ravel()
    for ax, (name, one) in zip(axes, settings.items(), strict=False):
        _panel(ax, name, one)
    for ax in axes[len(settings) :]:
        ax.set_visible(False)
    for ax in axes[len(settings) - across : len(settings)]:
        ax.set_xlabel("alpha", fontsize=9)
    axes[0].set_ylabel("held-out accuracy, %", fontsize=9)
    keys = [
        drawing.key(axes[0], "RCAD: draws and mean", marker="o", color=BLUE, ms=4),
        drawing.key(axes[0], "ERM", color=BLACK, lw=1.2),
        drawing.key(axes[0], "suggested alpha", color=GREEN, ls="--", lw=1.4),
    ]
    drawing.legend(sketch, keys)
    drawing.stamp(sketch, SCALES.get(record["scale"], ""))
    return Picture(
        "alpha-grid",
        sketch,
        "Accuracy on held-out examples by alpha; no test set was read.",
        f"A curve of accuracy by alpha for {', '.join(settings)}.",
    )


def _settings(record: Record) -> dict[str, Record]:
    results = record["results"]
    found = {f"moons, d = {one['d']}": one for one in results["moons"]}
    return {**found, "digits": results["digits"]} if results.get("digits") else found


def _panel(ax: Any, name: str, one: Record) -> None:
    for alpha, values in zip(one["alphas"], one["grid"], strict=True):
        ax.plot([alpha] * len(values), values, "o", color=BLUE, ms=3.2, alpha=0.5, mec="none")
    means = [mean_of(values) for values in one["grid"]]
    ax.plot(one["alphas"], [mean.value if mean else None for mean in means], "-", color=BLUE, lw=1.6)
    ax.axhline(one["erm"], color=BLACK, lw=1.2)
    ax.axvline(one["suggested"]["alpha"], color=GREEN, ls="--", lw=1.4)
    ax.set_xscale("log")
    ax.minorticks_off()
    ticks = [a for k, a in enumerate(one["alphas"]) if k % 3 == 0]
    ax.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
    ax.set_title(name, fontsize=10)
    drawing.bare(ax)


def section(path: Path, record: Record, shown: Picture, links: Links) -> Section:
    """The chapter, with its record's file in the last column."""
    rows: list[list[str | Cell]] = []
    for name, one in _settings(record).items():
        suggested = one["suggested"]
        rows.append(
            [
                name,
                fixed(one["erm"], 1),
                fixed(one["best_alpha"], 2),
                fixed(one["best"], 1),
                fixed(suggested["alpha"], 2),
                fixed(suggested["accuracy"], 1),
                Cell(path.name, href=links.to(path)),
            ]
        )
    header = [
        "setting",
        "ERM, %",
        "best alpha of the grid",
        "RCAD there, %",
        "suggested alpha",
        "RCAD there, % ",
        "record",
    ]
    return Section(
        TITLE if path.parent.name == "alpha" else f"{TITLE} ({path.parent.name}/{path.stem})",
        ["Half the median distance from a training example to its nearest one of another class, against a grid."],
        [figure(shown), Table(header, rows, "Means over draws, held-out examples.")],
        notice=SCALES.get(record["scale"], ""),
    )
