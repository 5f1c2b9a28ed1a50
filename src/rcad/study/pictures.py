"""The pictures of studies: every seed as a dot, differences with their intervals, the map of a search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rcad.report.document import Figure
from rcad.report.drawing import BLACK, BLUE, GREY, VERMILION, bare, blank, label
from rcad.study.study import HIGHER_IS_BETTER, WORDS

Record = Mapping[str, Any]
ROLES = {"base": BLACK, "asked": BLUE, "control": GREY}
OUTCOMES = {"better": BLUE, "worse": VERMILION, "undecided": GREY}
CELLS = 120
"""Side of the map in cells; each has the colour of the trial that is nearest to it."""


def in_words(metric: str) -> str:
    """A metric as axes and headers name it."""
    return f"{WORDS[metric]}, %" if metric == "accuracy" else WORDS[metric]


def dots(record: Record, metric: str) -> Figure:
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
        ax.axvline(base["mean"], color=BLACK, lw=0.8, ls=":", zorder=1)
    way = "higher" if HIGHER_IS_BETTER[metric] else "lower"
    _rows(ax, [name for name, _ in rows], f"test {in_words(metric)}, {way} is better")
    told = ", ".join(f"{name} {found['summary']['mean']:.4g}" for name, found in rows if found["summary"] is not None)
    caption = (
        f"Test {WORDS[metric]}: a dot for each seed, a diamond for the mean with its 95% interval over seeds; the "
        "dotted line is ERM's mean. Intervals that overlap may still differ: seeds are paired, see the differences."
    )
    return Figure(figure, caption, f"Test {WORDS[metric]} by method: {told}.")


def forests(record: Record, metrics: int | None = None) -> list[Figure]:
    """How much better each method is than ERM by each of the first metrics, as far as there is something to draw."""
    drawn = [_forest(record, metric) for metric in record["metrics"][:metrics]]
    return [one for one in drawn if one is not None]


def _forest(record: Record, metric: str) -> Figure | None:
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
        half = 0.0 if one["high"] is None else one["high"] - one["mean"]
        colour = OUTCOMES[one["outcome"]]
        ax.errorbar(one["mean"], k, xerr=half or None, fmt="o", color=colour, ms=6, lw=1.8, capsize=3)
    ax.axvline(0, color=BLACK, lw=0.8)
    _rows(ax, [one["method"] for one in rows], f"better than ERM by, in {in_words(metric)}")
    told = ", ".join(f"{one['method']} {one['mean']:+.3g} ({one['outcome']})" for one in rows)
    caption = (
        f"Differences to ERM in test {WORDS[metric]}, paired by seed, with 95% intervals; right of 0 the method is "
        "better. Blue is better, orange worse, grey undecided."
    )
    return Figure(figure, caption, f"Against ERM in {WORDS[metric]}: {told}.")


def _rows(ax: Any, names: Sequence[str], words: str) -> None:
    ax.set_yticks(range(len(names)), [label(name, 26, 1) for name in names])
    ax.set(ylim=(len(names) - 0.5, -0.5), xlabel=words)
    bare(ax)


def axes(record: Record) -> list[str]:
    """The first two parameters of a search that are numbers and were varied; weight decay comes last."""
    keys = list(dict.fromkeys(key for one in record["trials"] for key in one["values"]))
    keys.sort(key=lambda key: key.startswith("optim."))
    return [
        key for key in keys if len({v for v in (t["values"].get(key) for t in record["trials"]) if _number(v)}) > 1
    ][:2]


def search_map(record: Record) -> Figure | None:
    """A map over two parameters, or dots over one; None where there is nothing to show."""
    keys = axes(record)
    good = [one for one in record["trials"] if one["metrics"] and all(_number(one["values"].get(k)) for k in keys)]
    if not keys or len(good) < 2:
        return None
    best = next((one for one in good if one["number"] == record["best"]), None)
    figure = blank(4.8, 3.5)
    ax = figure.subplots()
    metric, scores = record["metric"], [one["metrics"][record["metric"]] for one in good]
    columns = [[float(one["values"][key]) for one in good] for key in keys]
    logs = [any(text.startswith(f"{key}=log(") for text in record["settings"]["space"]) for key in keys]
    if len(keys) == 1:
        ax.scatter(columns[0], scores, s=34, color=BLUE, zorder=3)
        ax.set(ylabel=f"validation {in_words(metric)}")
    else:
        colours = "viridis" if record["higher_is_better"] else "viridis_r"
        shown = _nearest(ax, columns, scores, logs, colours)
        ax.scatter(*columns, s=26, facecolor="white", edgecolor="black", lw=0.9, zorder=3)
        figure.colorbar(shown, ax=ax, label=f"validation {in_words(metric)}")
    if best is not None:
        spot = [float(best["values"][key]) for key in keys]
        spot += [best["metrics"][metric]] if len(keys) == 1 else []
        ax.scatter(*spot, marker="*", s=230, facecolor=VERMILION, edgecolor="black", lw=0.9, zorder=4)
    for axis, key, values, log in zip("xy", keys, columns, logs, strict=False):
        ax.set(**{f"{axis}label": key})
        if log:
            _log_axis(ax, axis, min(values), max(values))
    words = " and ".join(keys)
    text = f"Validation {WORDS[metric]} over {words}: each point has the colour of the nearest trial (dots)"
    star = "; the star is the best." if best else "."
    return Figure(figure, text + star, f"A map of validation {WORDS[metric]} over {words}.")


def _log_axis(ax: Any, axis: str, low: float, high: float) -> None:
    """A logarithmic axis with plain numbers: 1, 2 and 5 in each decade, or decades alone where they are many."""
    from matplotlib.ticker import LogLocator, NullLocator

    ax.set(**{f"{axis}scale": "log"})
    which = ax.xaxis if axis == "x" else ax.yaxis
    which.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
    which.set_major_formatter("{x:g}")
    which.set_minor_locator(NullLocator())


def _nearest(
    ax: Any, columns: Sequence[Sequence[float]], scores: Sequence[float], logs: Sequence[bool], colours: str
) -> Any:
    """Fill the plane with the colour of the nearest trial, distances counted in shares of each axis."""
    import numpy as np

    scaled, edges = [], []
    for values, log in zip(columns, logs, strict=True):
        line = np.log(values) if log else np.asarray(values)
        spread = line.max() - line.min()
        low, high = line.min() - 0.06 * spread, line.max() + 0.06 * spread
        scaled.append((line - low) / (high - low))
        ends = np.linspace(low, high, CELLS + 1)
        edges.append(np.exp(ends) if log else ends)
    centres = (np.arange(CELLS) + 0.5) / CELLS
    apart = (centres[None, :, None] - scaled[0]) ** 2 + (centres[:, None, None] - scaled[1]) ** 2
    nearest = np.asarray(scores)[apart.argmin(2)]
    # Cells as paths would make the page some megabytes.
    return ax.pcolormesh(*edges, nearest, cmap=colours, shading="flat", rasterized=True, lw=0)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
