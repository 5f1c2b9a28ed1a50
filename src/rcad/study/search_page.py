"""A search as a page: the map of two parameters, the table of trials, the best of them. From its record alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from rcad.report import html
from rcad.report.document import Cell, Document, Figure, Section, Table
from rcad.report.drawing import blank, inline

Record = Mapping[str, Any]
WORDS = {"accuracy": "accuracy, %", "nll": "NLL", "brier": "Brier score", "rmse": "RMSE"}
NAMES = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier score", "rmse": "RMSE"}
CELLS = 120
"""Side of the map in cells; each has the colour of the trial that is nearest to it."""


def page(record: Record) -> str:
    """The page of a search."""
    settings, done = record["settings"], record["trials"]
    best = leader(record)
    verdict = (
        ("Every trial diverged: lower the learning rate or the ends of the space." if done else "No trial is done yet.")
        if best is None
        else f"Best of {len(done)}: {shown_values(best['values'])}, held-out {told(record, best)}.\n{record['command']}"
    )
    about = [
        f"{settings['method']} on {settings['data']}, {_seeds(settings['seeds'])}. Every trial was judged on the "
        "held-out split; the search was not given the test split's numbers, and this page shows none of them.",
        f"The best is {record['held_out']['told']}.",
        f"Search: {settings['search']}, {len(done)} of {record['planned']} trials, in the space "
        f"{', '.join(settings['space'])}.",
    ]
    notice = "" if len(done) == record["planned"] else "The search is not over: the same command goes on with it."
    parts: list[Table | Figure] = [*picture(record), trials_table(record)]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return html.page(
        Document(
            f"Tuning {settings['method']} on {settings['data']}",
            "Which numbers suit this method on this data, by held-out examples.",
            [Section("Trials", about, parts, verdict, notice)],
            {"Versions": versions},
        )
    )


def leader(record: Record) -> Mapping[str, Any] | None:
    """The best trial."""
    return next((one for one in record["trials"] if one["number"] == record["best"]), None)


def told(record: Record, trial: Mapping[str, Any]) -> str:
    """A trial's metric in words: "accuracy 97.2%"."""
    value, name = trial["metrics"][record["metric"]], record["metric"]
    return f"accuracy {value:.2f}%" if name == "accuracy" else f"{WORDS[name]} {value:.4g}"


def trials_table(record: Record) -> Table:
    """Every trial, the best one marked."""
    keys = list(dict.fromkeys(key for one in record["trials"] for key in one["values"]))
    names = [name for name in WORDS if any(name in (one["metrics"] or {}) for one in record["trials"])]
    rows = []
    for one in record["trials"]:
        is_best = one["number"] == record["best"]
        scores = [_score(name, one["metrics"]) for name in names]
        values = [_value(one["values"].get(key, "start")) for key in keys]
        number = Cell(str(one["number"]), mark="good") if is_best else str(one["number"])
        rows.append([number, *values, *scores, f"{one['seconds']:.1f}"])
    header = ["trial", *keys, *(WORDS[name] for name in names), "seconds"]
    return Table(header, rows, "Held-out numbers, means over the seeds; a dash where a run diverged.")


def picture(record: Record) -> list[Figure]:
    """The map, where there are numbers to draw."""
    figure = draw(record)
    if figure is None:
        return []
    x = axes(record)
    words = " and ".join(x)
    best = leader(record)
    where = f"; the star is the best, {shown_values(best['values'])}" if best else ""
    name = NAMES[record["metric"]]
    text = f"Held-out {name} over {words}: each point has the colour of the nearest trial (dots){where}."
    return [Figure(inline(figure), text, f"A map of held-out {name} over {words}.")]


def save(figure: Any, file: BinaryIO, form: str) -> None:
    """Write what `draw` gave as "png" or "svg"."""
    figure.savefig(file, format=form, dpi=130, metadata={"Date": None} if form == "svg" else {"Software": None})


def axes(record: Record) -> list[str]:
    """The first two parameters that are numbers and were varied."""
    keys = list(dict.fromkeys(key for one in record["trials"] for key in one["values"]))
    return [key for key in keys if len({p for p, _ in _points(record, key)}) > 1][:2]


def draw(record: Record) -> Any:
    """A matplotlib figure: a map over two parameters, or dots over one; None where there is nothing to show."""
    keys = axes(record)
    good = [one for one in record["trials"] if one["metrics"] and all(_is_number(one["values"].get(k)) for k in keys)]
    if not keys or len(good) < 2:
        return None
    best = leader(record)
    figure = blank(4.8, 3.5)
    ax = figure.subplots()
    name, scores = record["metric"], [one["metrics"][record["metric"]] for one in good]
    columns = [[float(one["values"][key]) for one in good] for key in keys]
    logs = [_is_log(record, key) for key in keys]
    if len(keys) == 1:
        ax.scatter(columns[0], scores, s=34, color="#0072B2", zorder=3)
        ax.set(ylabel=f"held-out {WORDS[name]}")
    else:
        colours = "viridis" if record["higher_is_better"] else "viridis_r"
        shown = _nearest(ax, columns, scores, logs, colours)
        ax.scatter(*columns, s=26, facecolor="white", edgecolor="black", lw=0.9, zorder=3)
        figure.colorbar(shown, ax=ax, label=f"held-out {WORDS[name]}")
    if best is not None and best in good:
        spot = [float(best["values"][key]) for key in keys]
        spot += [best["metrics"][name]] if len(keys) == 1 else []
        ax.scatter(*spot, marker="*", s=230, facecolor="#D55E00", edgecolor="black", lw=0.9, zorder=4)
    for axis, key, values, log in zip("xy", keys, columns, logs, strict=False):
        ax.set(**{f"{axis}label": key})
        if log:
            _log_axis(ax, axis, min(values), max(values))
    return figure


def _log_axis(ax: Any, axis: str, low: float, high: float) -> None:
    """A logarithmic axis with plain numbers: 1, 2 and 5 in each decade, or decades alone where they are many."""
    ax.set(**{f"{axis}scale": "log"})
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 4 else (1,)
    edges = (ax.get_xlim if axis == "x" else ax.get_ylim)()
    ticks = [step * 10.0**k for k in decades for step in steps if edges[0] <= step * 10.0**k <= edges[1]]
    which = ax.xaxis if axis == "x" else ax.yaxis
    which.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    which.set_ticks([], minor=True)


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


def shown_values(values: Mapping[str, Any]) -> str:
    """What a trial sets: "alpha 0.3, lam 0.5"."""
    return ", ".join(f"{key} {_value(value)}" for key, value in values.items()) or "the method as it stands"


def _points(record: Record, key: str) -> list[tuple[float, Any]]:
    pairs = [(one["values"].get(key), one) for one in record["trials"]]
    return [(value, one) for value, one in pairs if _is_number(value)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_log(record: Record, key: str) -> bool:
    return any(text.startswith(f"{key}=log(") for text in record["settings"]["space"])


def _score(name: str, metrics: Mapping[str, float] | None) -> str:
    if not metrics or name not in metrics:
        return "-"
    return f"{metrics[name]:.2f}" if name == "accuracy" else f"{metrics[name]:.4g}"


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"
