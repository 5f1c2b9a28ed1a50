"""The pictures of studies: every seed as a dot, differences with their intervals, the map of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rcad.errors import is_number
from rcad.report import drawing
from rcad.report.document import Figure
from rcad.report.drawing import BLACK, BLUE, GREY, VERMILION
from rcad.report.numbers import named_values
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
    results = {name: record["results"][name][metric] for name in record["methods"]}
    way = "higher" if HIGHER_IS_BETTER[metric] else "lower"
    figure, ax = _rows(list(results), f"test {in_words(metric)}, {way} is better")
    for k, (name, result) in enumerate(results.items()):
        colour = ROLES[record["methods"][name]["role"]]
        values = [value for value in result["values"].values() if value is not None]
        drawing.strip(ax, values, k + 0.22, colour)  # below the interval, whose line would hide some
        if result["summary"] is None:
            ax.text(0.5, k, "every run diverged", transform=ax.get_yaxis_transform(), ha="center", va="center")
        else:
            _interval(ax, k - 0.12, result["summary"], fmt="D", color=colour, zorder=3)
    base = results[record["base"]]["summary"]
    if base is not None:
        ax.axvline(base["mean"], color=BLACK, lw=0.8, ls=":", zorder=1)
    means = {name: f"{result['summary']['mean']:.4g}" for name, result in results.items() if result["summary"]}
    caption = (
        f"Test {WORDS[metric]}: a dot for each seed, a diamond for the mean with its 95% interval over seeds; the "
        "dotted line is ERM's mean. Intervals that overlap may still differ: seeds are paired, see the differences."
    )
    return Figure(figure, caption, f"Test {WORDS[metric]} by method: {named_values(means)}.")


def forests(record: Record, metrics: int | None = None) -> list[Figure]:
    """How much better each method is than ERM by each of the first metrics, as far as there is something to draw."""
    gaps = [gap for gap in record["differences"] if gap["against"] == record["base"] and gap["mean"] is not None]
    by_metric = {metric: [gap for gap in gaps if gap["metric"] == metric] for metric in record["metrics"][:metrics]}
    return [_forest(gaps, metric) for metric, gaps in by_metric.items() if gaps]


def _forest(gaps: Sequence[Record], metric: str) -> Figure:
    figure, ax = _rows([gap["method"] for gap in gaps], f"gain over ERM, in {in_words(metric)}")
    for k, gap in enumerate(gaps):
        _interval(ax, k, gap, fmt="o", color=OUTCOMES[gap["outcome"]])
    ax.axvline(0, color=BLACK, lw=0.8)
    numbers = ", ".join(f"{gap['method']} {gap['mean']:+.3g} ({gap['outcome']})" for gap in gaps)
    caption = (
        f"Gains over ERM in test {WORDS[metric]}, paired by seed, with 95% intervals. Blue is better, orange worse, "
        "grey undecided."
    )
    return Figure(figure, caption, f"Against ERM in {WORDS[metric]}: {numbers}.")


def _rows(names: Sequence[str], words: str) -> tuple[Any, Any]:
    """A figure and its axes, with a line for each name from top to bottom and the words along x."""
    figure, ax = drawing.axes(4.6, 0.9 + 0.42 * len(names))
    ax.set_yticks(range(len(names)), [drawing.label(name, 26, 1) for name in names])
    ax.set(ylim=(len(names) - 0.5, -0.5), xlabel=words)
    # Labels such as 0.000275 are long: more would run into each other.
    ax.locator_params(axis="x", nbins=4)
    ax.xaxis.set_major_formatter("{x:g}")
    return figure, ax


def _interval(ax: Any, y: float, numbers: Record, **style: Any) -> None:
    """A mean with its 95% interval, where it has one."""
    half = None if numbers["high"] is None else numbers["high"] - numbers["mean"]
    ax.errorbar(numbers["mean"], y, xerr=half, ms=6, lw=1.8, capsize=3, **style)


def axes(record: Record) -> list[str]:
    """The first two parameters of a search that are numbers and were varied; weight decay comes last."""
    points = [trial["values"] for trial in record["trials"]]
    keys = sorted(dict.fromkeys(key for point in points for key in point), key=lambda key: key.startswith("optim."))
    return [key for key in keys if len({point.get(key) for point in points if is_number(point.get(key))}) > 1][:2]


def search_map(record: Record) -> Figure | None:
    """A map over two parameters, or dots over one; None where there is nothing to show."""
    keys = axes(record)
    drawn = [t for t in record["trials"] if t["metrics"] and all(is_number(t["values"].get(key)) for key in keys)]
    if not keys or len(drawn) < 2:
        return None
    best = next((trial for trial in drawn if trial["number"] == record["best"]), None)
    figure = drawing.blank(4.8, 3.5)
    ax = figure.subplots()
    metric, scores = record["metric"], [trial["metrics"][record["metric"]] for trial in drawn]
    columns = [[float(trial["values"][key]) for trial in drawn] for key in keys]
    logs = [any(text.startswith(f"{key}=log(") for text in record["settings"]["space"]) for key in keys]
    level = len({*scores}) == 1
    if len(keys) == 1:
        ax.scatter(columns[0], scores, s=34, color=BLUE, zorder=3)
        ax.set(ylabel=f"validation {in_words(metric)}", **({"yticks": scores[:1]} if level else {}))
    elif level:  # one colour, and a scale around it, would mean nothing
        ax.scatter(*columns, s=34, color=BLUE, zorder=3)
    else:
        colours = "viridis" if record["higher_is_better"] else "viridis_r"
        mesh = _nearest(ax, columns, scores, logs, colours)
        ax.scatter(*columns, s=26, facecolor="white", edgecolor="black", lw=0.9, zorder=3)
        figure.colorbar(mesh, ax=ax, label=f"validation {in_words(metric)}")
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
    if level:
        text = f"The trials (dots) over {words}: validation {WORDS[metric]} is {scores[0]:.4g} at each"
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
