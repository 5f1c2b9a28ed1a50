"""The pictures of a comparison: every seed as a dot, and the differences with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rcad.report.document import Figure
from rcad.report.drawing import blank, inline

Record = Mapping[str, Any]
# Okabe and Ito's colours, which stay apart for colour-blind readers.
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"
ROLES = {"base": "#000000", "asked": BLUE, "control": GREY}
OUTCOMES = {"better": BLUE, "worse": ORANGE, "undecided": GREY}
LONGEST = 26


def short(name: str) -> str:
    """A method's name that fits beside a picture."""
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def dots(record: Record, metric: str, words: str, better: str) -> Figure:
    """Each method's test results by seed, with the mean and its interval."""
    rows = [(name, record["results"][name][metric]) for name in record["methods"]]
    figure = blank(4.6, 0.9 + 0.42 * len(rows))
    ax = figure.subplots()
    for k, (name, found) in enumerate(rows):
        colour = ROLES[record["methods"][name]["role"]]
        values = [value for value in found["values"].values() if value is not None]
        # Dots of one method beside each other, so that equal results can be counted.
        spread = [k + 0.16 * ((i % 3) - 1) for i in range(len(values))]
        ax.scatter(values, spread, s=13, color=colour, alpha=0.5, lw=0, zorder=2)
        summary = found["summary"]
        if summary is None:
            ax.text(0.5, k, "every run diverged", transform=ax.get_yaxis_transform(), ha="center", va="center")
        elif summary["low"] is None:
            ax.plot(summary["mean"], k, "D", color=colour, ms=6, zorder=3)
        else:
            half = summary["high"] - summary["mean"]
            ax.errorbar(summary["mean"], k, xerr=half, fmt="D", color=colour, ms=6, lw=1.8, capsize=3, zorder=3)
    base = record["results"][record["base"]][metric]["summary"]
    if base is not None:
        ax.axvline(base["mean"], color="black", lw=0.8, ls=":", zorder=1)
    ax.set_yticks(range(len(rows)), [short(name) for name, _ in rows])
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel=f"test {words}, {better} is better")
    ax.spines[["top", "right"]].set_visible(False)
    told = ", ".join(f"{name} {found['summary']['mean']:.4g}" for name, found in rows if found["summary"] is not None)
    caption = (
        f"Test {words}: a dot for each seed, a diamond for the mean with its 95% interval over seeds; the dotted line "
        "is ERM's mean. Intervals that overlap may still differ: seeds are paired, see the differences."
    )
    return Figure(inline(figure), caption, f"Test {words} by method: {told}.")


def forest(record: Record, metric: str, words: str) -> Figure | None:
    """How much better each method is than ERM, with 95% intervals; None where there is nothing to draw."""
    rows = [
        one
        for one in record["differences"]
        if one["metric"] == metric and one["against"] == record["base"] and one["mean"] is not None
    ]
    if not rows:
        return None
    figure = blank(4.6, 0.9 + 0.42 * len(rows))
    ax = figure.subplots()
    for k, one in enumerate(rows):
        colour = OUTCOMES[one["outcome"]]
        half = 0.0 if one["high"] is None else one["high"] - one["mean"]
        ax.errorbar(one["mean"], k, xerr=half or None, fmt="o", color=colour, ms=6, lw=1.8, capsize=3)
    ax.axvline(0, color="black", lw=0.8)
    ax.set_yticks(range(len(rows)), [short(one["method"]) for one in rows])
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel=f"better than ERM by, in {words}")
    ax.spines[["top", "right"]].set_visible(False)
    told = ", ".join(f"{one['method']} {one['mean']:+.3g} ({one['outcome']})" for one in rows)
    caption = (
        f"Differences to ERM in test {words}, paired by seed, with 95% intervals; right of 0 the method is better. "
        "Blue is better, orange worse, grey undecided after Holm's correction."
    )
    return Figure(inline(figure), caption, f"Against ERM in {words}: {told}.")


def figures(record: Record, words: Mapping[str, str], better: Mapping[str, str]) -> Sequence[Figure]:
    """The dots of every metric."""
    return [dots(record, metric, words[metric], better[metric]) for metric in record["metrics"]]
