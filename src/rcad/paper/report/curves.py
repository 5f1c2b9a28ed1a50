"""Pictures with something along x: accuracy by alpha or number of examples, methods by corruption; gains by step."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from itertools import product
from typing import Any

from rcad.paper.claims import RANDOM
from rcad.paper.record import LAST, Series, Study
from rcad.paper.report.tables import MEASURES, about, better_by, gain_over, gain_unit, mean_of, printed_gain, reference
from rcad.report import drawing
from rcad.report.document import Figure
from rcad.report.drawing import BLACK, GREY, PAPER
from rcad.report.numbers import capital, fixed
from rcad.study.statistics import Paired, Summary

ALPHA = "alpha, L2 distance in [0, 1] pixels"
ALONG = {"step size": ALPHA, "entropy": ALPHA, "by number of images": "training images"}
"""The names along x of the suites' panels."""
FEW = 5
"""Up to so many curves in one panel, the seeds are drawn too."""
_SIZE = re.compile(r"(?:n ?= ?)?(\d[\d,]*)")


def panels(study: Study) -> list[Figure]:
    """The curves of a record: a picture for each panel that has results."""
    pictures = []
    for index, (panel, curves) in enumerate(study.panels.items()):
        measured = [series for series in curves if any(v is not None for values in series.y for v in values)]
        if measured:
            name = f"curves{index + 1 if len(study.panels) > 1 else ''}"
            along_names = any(isinstance(x, str) for series in measured for x in series.x)
            pictures.append((_categories if along_names else _curves)(study, name, panel, measured))
    return pictures


def _axes(study: Study, panel: str) -> tuple[str, str]:
    """The names of x and y."""
    along = study.along or ALONG.get(panel, panel)
    if panel == "entropy":
        return along, "mean entropy, nats"
    base = reference(study)
    if study.target == "F3" and base is not None:
        return along, better_by(base, gain_unit(study))
    return along, study.label


def _near(curves: Sequence[Series]) -> list[float]:
    results = [value for series in curves for values in (*series.y, series.published) for value in values]
    return [value for value in results if value is not None]


def _printed(curves: Sequence[Series]) -> bool:
    return any(value is not None for series in curves for value in series.published)


def _curves(study: Study, name: str, panel: str, curves: Sequence[Series]) -> Figure:
    """Along numbers: means with intervals as a line, the published curve dotted; seeds as dots where curves are few."""
    figure, ax = drawing.axes(7.2, 4.4)
    colours = drawing.colours_of([series.name for series in curves])
    run = {float(x) for series in curves for x, values in zip(series.x, series.y, strict=True) if values}
    for series in curves:
        _curve(ax, series, colours[series.name], run, seeds=len(curves) <= FEW)
    set_scale(ax, [*run])
    along, up = _axes(study, panel)
    # An interval of two seeds may be wider than all curves together; it must not flatten them.
    ax.set(xlabel=along, ylabel=up, ylim=drawing.limits(_near(curves), reach=8))
    handles, _ = ax.get_legend_handles_labels()
    printed = _printed(curves)
    handles += [drawing.published_key(ax, ls=":", color=GREY)] if printed else []
    fields = {
        "panel": f"{capital(panel)}: " if panel else "",
        "seeds": "dots are seeds, " * (len(curves) <= FEW),
        "printed": " Diamonds: as published." * printed,
    }
    words = about("along", title=study.title, up=up, along=along, names=", ".join(colours), **fields)
    return drawing.finish(figure, handles, *words, name, columns=2)


def _curve(ax: Any, series: Series, colour: str, run: Container[float], *, seeds: bool) -> None:
    """`run` are the places where there is a result of some curve; what is published elsewhere is left out."""
    means: dict[float, Summary] = {}
    for x, values in zip(series.x, series.y, strict=True):
        finite = [value for value in values if value is not None]
        if (mean := mean_of(finite)) is not None:
            means[float(x)] = mean
            if seeds:
                ax.plot([x] * len(finite), finite, "o", color=colour, ms=3.4, alpha=0.45, mec="none")
    _line(ax, means, fmt="-", color=colour, lw=1.8, capsize=2.5, label=drawing.label(series.name, 42))
    published = zip(series.x, series.published, strict=False)
    printed = [(x, value) for x, value in published if value is not None and float(x) in run]
    if printed:
        ax.plot(*zip(*printed, strict=True), "D:", ms=5, lw=1, **{**drawing.PUBLISHED, "color": colour})


def _line(ax: Any, means: Mapping[float, Summary | Paired], **style: Any) -> None:
    """Means along x with their 95% intervals."""
    halves = [mean.half or 0.0 for mean in means.values()]
    ax.errorbar(list(means), [mean.mean for mean in means.values()], yerr=halves, **style)


def _categories(study: Study, name: str, panel: str, curves: Sequence[Series]) -> Figure:
    """Along names that have results: they stand below each other, the series in colours."""
    points = [(str(x), values) for series in curves for x, values in zip(series.x, series.y, strict=True)]
    names = list(dict.fromkeys(x for x, values in points if values))
    figure, ax = drawing.axes(8.0, (0.13 * len(curves) + 0.16) * len(names) + 1.2)
    colours = drawing.colours_of([series.name for series in curves])
    for index, series in enumerate(curves):
        for k, (x, values) in enumerate(zip(series.x, series.y, strict=True)):
            if str(x) in names:
                y = names.index(str(x)) + 0.7 * ((index + 0.5) / len(curves) - 0.5)
                printed = series.published[k] if k < len(series.published) else None
                _result(ax, y, [value for value in values if value is not None], printed, colours[series.name])
    for place in range(1, len(names), 2):  # every second line on a tint
        ax.axhspan(place - 0.5, place + 0.5, color="#F0F2F4", lw=0, zorder=0)
    ax.set_yticks(range(len(names)), [drawing.label(text.replace("_", " ")) for text in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    _, up = _axes(study, panel)
    ax.set(xlim=drawing.limits(_near(curves)), xlabel=up)
    if study.target == "F3":
        ax.axvline(0, color=BLACK, lw=0.8)
    keys = [
        drawing.key(ax, drawing.label(text, 30), marker="|", ls="-", color=colour, ms=8, mew=1.8)
        for text, colour in colours.items()
    ]
    keys.append(drawing.key(ax, "seeds", marker="o", ls="", color=GREY, ms=4))
    keys += [drawing.published_key(ax)] if _printed(curves) else []
    fields = {"title": f"{study.title}, {panel}", "panel": f"{capital(panel)}. " if panel else ""}
    words = about("categories", up=up, names=", ".join(colours), along=", ".join(names), **fields)
    return drawing.finish(figure, keys, *words, name, columns=3)


def _result(ax: Any, y: float, values: Sequence[float], printed: float | None, colour: str) -> None:
    """One method on one line: seeds, mean and interval, the published number."""
    ax.plot(values, [y] * len(values), "o", color=colour, ms=3, alpha=0.45, mec="none")
    mean = mean_of(values)
    if mean is not None:
        ax.errorbar(mean.mean, y, xerr=mean.half, fmt="|", color=colour, ms=7, mew=1.8, lw=1.4)
    if printed is not None:
        ax.plot(printed, y, "D", color=PAPER, ms=4, mfc="none", mew=1.1)


def set_scale(ax: Any, x: Sequence[float]) -> None:
    """A logarithmic axis where x spans a decade or more; ticks at the values themselves while they are few."""
    places = sorted(set(x))
    if places and places[0] > 0 and places[-1] / places[0] >= 10:
        ax.set_xscale("log")
        ax.minorticks_off()
        ticks: list[float] = []
        for place in places:
            if not ticks or place / ticks[-1] > 1.35:
                ticks.append(place)
        ax.set_xticks(ticks, [f"{tick:,g}" if tick < 1e4 else f"{tick:,.0f}" for tick in ticks])


def by_size(study: Study) -> Figure | None:
    """F3, right: gain over ERM by the number of examples, where the columns are numbers."""
    base = reference(study)
    numbers = {column: _SIZE.fullmatch(column.strip()) for column in study.columns_run}
    sizes = {column: float(number[1].replace(",", "")) for column, number in numbers.items() if number}
    if base is None or len(sizes) < 3 or len(sizes) < len(numbers):
        return None
    rows = [row for row in study.rows if row != base]
    shifts = {row: 1 + 0.025 * (index - (len(rows) - 1) / 2) for index, row in enumerate(rows)}
    gains = {
        row: {n * shifts[row]: gain for c, n in sizes.items() if (gain := gain_over(study, row, base, c)) is not None}
        for row in rows
    }
    if not any(gains.values()):
        return None
    figure, ax = drawing.axes(7.2, 4.2)
    colours = drawing.colours_of(rows)
    for row in rows:
        fmt = "o--" if row in study.controls else "o-"
        if gains[row]:
            style = {"color": colours[row], "lw": 1.5, "ms": 4, "capsize": 2.5, "label": drawing.label(row, 30)}
            _line(ax, gains[row], fmt=fmt, **style)
        if row.casefold() == "rcad":
            printed = {n: printed_gain(study, row, base, column) for column, n in sizes.items()}
            points = [(n, value) for n, value in printed.items() if value is not None]
            if points:
                ax.plot(*zip(*points, strict=True), "D:", label=f"{row}, as published", **drawing.PUBLISHED)
    set_scale(ax, list(sizes.values()))
    ax.axhline(0, color=BLACK, lw=0.8)
    ax.set(xlabel="training examples", ylabel=better_by(base, gain_unit(study)))
    words, handles = about("by-size", title=study.title, base=base), ax.get_legend_handles_labels()[0]
    return drawing.finish(figure, handles, *words, "by-size", columns=3)


def by_column(study: Study) -> Figure | None:
    """Many columns from top to bottom, the methods in colours."""
    columns = study.columns_run
    rows = [row for row in study.rows if any((row, column) in study.places for column in columns)]
    if not columns or not rows:
        return None
    curves = []
    for row in rows:
        places = [study.place(row, column) for column in columns]
        values = [place.values(study.metric_of(place.column)) if place else [] for place in places]
        printed = [place.published.mean if place and place.published else None for place in places]
        curves.append(Series(row, columns, values, printed))
    return _categories(study, "by-column", "", curves)


BASE, METHOD = "ERM", "RCAD"
EPOCHS = {"": "at the chosen epoch", LAST: "at the last epoch"}


def step_sizes(study: Study) -> dict[str, float]:
    """F4: the step size of each column."""
    x = study.series[0].x if study.series else ()
    return {column: float(alpha) for column, alpha in zip(study.columns, x, strict=False)}


def step_gains(study: Study, row: str, base: str, metric: str, epoch: str) -> dict[float, Paired]:
    """By step size, where both were run: how much better a row is than another; positive is better."""
    higher, gains = MEASURES[metric].higher, {}
    for column, alpha in step_sizes(study).items():
        if (gain := gain_over(study, row, base, column, epoch + metric, higher=higher)) is not None:
            gains[alpha] = gain
    return gains


def by_step(study: Study) -> Figure | None:
    """F4: gains over ERM by step size; accuracy above, NLL below; the chosen epoch left, the last right."""
    if not step_gains(study, METHOD, BASE, "accuracy", ""):
        return None
    figure, axes = drawing.grid(8.4, 5.6, len(MEASURES), len(EPOCHS), sharex=True, sharey="row")
    rows = [row for row in study.rows if row != BASE]
    colours = drawing.colours_of(rows)
    for ax, (metric, epoch) in zip(axes.flat, product(MEASURES, EPOCHS), strict=True):
        for index, row in enumerate(rows):
            gains = step_gains(study, row, BASE, metric, epoch)
            runs = {tuple(run.id for run in place.runs) for side, place in study.places.items() if side[0] == row}
            style: dict[str, Any] = {"color": colours[row], "label": drawing.label(row, 30)}
            if gains and len(runs) == 1:  # the same in every column
                ax.axhline(next(iter(gains.values())).mean, lw=1.4, ls="--", **style)
            elif gains:
                shifted = {alpha * (1 + 0.05 * index): gain for alpha, gain in gains.items()}
                _line(ax, shifted, fmt="o-", lw=1.5, ms=3.5, capsize=2, **style)
        ax.axhline(0, color=BLACK, lw=0.8)
        ax.set_title(f"{MEASURES[metric].name} {EPOCHS[epoch]}", fontsize=9, loc="left")
        if not epoch:
            ax.set_ylabel(better_by(BASE, MEASURES[metric].unit), fontsize=9)
    for ax in axes[-1]:
        set_scale(ax, list(step_sizes(study).values()))
        ax.set_xlabel(ALPHA, fontsize=9)
    words = about("curves", title=study.title, base=BASE, rows=", ".join(rows))
    handles = axes[0][0].get_legend_handles_labels()[0]
    return drawing.finish(figure, handles, *words, "curves", columns=3, wide=True)


def step_words(study: Study) -> list[str]:
    """F4 in sentences: for each pair, epoch and measure, at which step sizes the interval leaves out zero."""
    lines = []
    pairs = ((METHOD, BASE), (METHOD, RANDOM), (RANDOM, BASE))
    for (row, base), (epoch, when) in product(pairs, EPOCHS.items()):
        parts = [_step_line(metric, step_gains(study, row, base, metric, epoch)) for metric in MEASURES]
        if all(parts):
            lines.append(f"{capital(row)} against {base}, {when}: {'; '.join(parts)}.")
    return [*lines, "Intervals of 95% on the same seeds, not corrected for their number."] if lines else []


def _step_line(metric: str, gains: Mapping[float, Paired]) -> str:
    """E.g. "accuracy better at alpha 5, 10, worse at none, of 9 step sizes (mean gain from ... to ...)"."""
    if not gains:
        return ""
    name, unit, _, digits = MEASURES[metric]
    better = [f"{alpha:g}" for alpha, gain in gains.items() if gain.low > 0]
    worse = [f"{alpha:g}" for alpha, gain in gains.items() if gain.high < 0]
    at_better, at_worse = (f"alpha {', '.join(alphas)}" if alphas else "none" for alphas in (better, worse))
    least, most = (end(gains, key=lambda alpha: gains[alpha].mean) for end in (min, max))
    low, high = (fixed(gains[alpha].mean, digits, sign=True) for alpha in (least, most))
    return (
        f"{name} better at {at_better}, worse at {at_worse}, of {len(gains)} step sizes "
        f"(mean gain from {low} {unit} at {least:g} to {high} at {most:g})"
    )
