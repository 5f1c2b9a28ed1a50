"""Pictures of a table: every method on every data set, seeds as dots, the published number beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from rcad.paper.claims import Side
from rcad.paper.record import Study
from rcad.paper.report.figures import PUBLISHED, finish, panels, published_key
from rcad.paper.report.numbers import Mean, better_by, gain_over, mean_of, place_mean, printed_gain, reference
from rcad.report import drawing
from rcad.report.document import Figure
from rcad.report.drawing import BLACK, GREEN, GREY, PAPER

SMALL: dict[str, Any] = {"fontsize": 7, "color": GREY, "va": "center"}


class Shown(NamedTuple):
    """Dots, their mean, the published value and half its interval."""

    values: Sequence[float]
    mean: Mean | None
    printed: float | None = None
    half: float | None = None


def dots(study: Study) -> Figure | None:
    """The results themselves: a panel for each column."""
    cells = {
        side: Shown(place.values(study.metric_of(place.column)), place_mean(study, place), *(place.published or ())[:2])
        for side, place in study.places.items()
    }
    better = "right" if study.higher_is_better else "left"
    caption = (
        f"Dots: {_unit(study)}; tick and bar: their mean and its 95% interval; diamond: as published. Further "
        f"{better} is better. Controls are in italics."
    )
    alt = (
        f"{study.title}: {study.label} by method, one panel for each of {', '.join(study.columns_run)}; the numbers "
        "are in the table below."
    )
    return _panels(study, cells, study.label, None, (caption, alt, "dots"))


def gains(study: Study) -> Figure | None:
    """Differences from ERM on the same seeds."""
    base = reference(study)
    if base is None:
        return None
    sign = 1 if study.higher_is_better else -1
    cells: dict[Side, Shown] = {}
    for row, column in product(study.rows, study.columns):
        found, printed = gain_over(study, row, base, column), printed_gain(study, row, base, column)
        if row == base or (found is None and printed is None):
            continue
        cells[row, column] = Shown([], None, printed)
        if found is not None:
            one, other = (study.places[name, column].by_seed(study.metric_of(column)) for name in (row, base))
            pairs = [sign * (one[seed] - other[seed]) for seed in one if seed in other]  # type: ignore[operator]
            cells[row, column] = Shown(pairs, Mean(found.mean, found.high - found.mean, len(pairs)), printed)
    if not any(one.values for one in cells.values()):
        return None
    caption = (
        f"Gain over {base} on the same seeds, oriented so that right of the line is better; dots: "
        f"{_unit(study)}; bar: 95% interval of the mean; diamond: as published."
    )
    alt = f"{study.title}: differences from {base} by method and data; the numbers are in the table of claims."
    return _panels(study, cells, better_by(study, base), 0.0, (caption, alt, "gains"))


def _unit(study: Study) -> str:
    return "splits" if study.overlap else "seeds"


def _panels(
    study: Study, cells: Mapping[Side, Shown], axis: str, origin: float | None, words: tuple[str, str, str]
) -> Figure | None:
    """Methods from top to bottom in every panel; None where nothing is there.

    Args:
        words: caption, what it says to who cannot see it, and name.
    """
    rows = [row for row in study.rows if row in {side[0] for side in cells}]
    columns = [column for column in study.columns_run if column in {side[1] for side in cells}]
    if not rows or not columns:
        return None
    figure, axes = panels(len(columns), 3.0, 0.30 * len(rows) + 0.75, left=2.0, below=0.75, sharey=True)
    across = min(3, len(columns))
    for ax, column in zip(axes, columns, strict=False):
        _panel(ax, study, column, {row: cells.get((row, column)) for row in rows}, origin)
        drawing.bare(ax)
    axes[0].set_yticks(range(len(rows)), [drawing.label(row) for row in rows])
    for ax in axes[::across]:
        for tick, row in zip(ax.get_yticklabels(), rows, strict=False):
            tick.set_fontstyle("italic" if row in study.controls else "normal")
    for ax in axes[max(0, len(columns) - across) : len(columns)]:
        ax.set_xlabel(axis, fontsize=9)
    keys = [drawing.key(axes[0], _unit(study), marker="o", ls="", color=GREY, ms=4)]
    keys.append(drawing.key(axes[0], "mean, 95% interval", marker="|", ls="-", color=GREY, ms=9))
    if any(one.printed is not None for (_, column), one in cells.items() if column in columns):
        keys.append(published_key(axes[0]))
    if origin is None and study.ceiling:
        keys.append(drawing.key(axes[0], "Bayes: the best possible", color=GREEN, ls="--", lw=1.2))
    return finish(figure, study, keys, *words, wide=len(study.columns_run) > 1)


def _panel(ax: Any, study: Study, column: str, rows: Mapping[str, Shown | None], origin: float | None) -> None:
    found = [one for one in rows.values() if one is not None]
    published = [one.printed for one in found if one.printed is not None]
    near = [*(value for one in found for value in one.values), *published]
    low, high = drawing.limits(near, around=study.ceiling.get(column) if origin is None else origin)
    margin = 0.06 * (high - low)
    bounds = min([low, *(one - margin for one in published)]), max([high, *(one + margin for one in published)])
    for place, (row, shown) in enumerate(rows.items()):
        cell = study.place(row, column)
        if cell is None or not cell.runs:
            ax.text(0.5, place, "not run", transform=ax.get_yaxis_transform(), **SMALL, ha="center")
        elif cell.diverged:
            words = f"{cell.diverged} diverged"
            ax.text(0.01, place - 0.3, words, transform=ax.get_yaxis_transform(), **SMALL)
        if shown is None:
            continue
        colour, mean = drawing.colour_of(row), shown.mean
        drawing.strip(ax, shown.values, place, colour)
        if mean is not None:
            ax.errorbar(mean.value, place, xerr=mean.half, color=colour, lw=1.6, capsize=0, zorder=4)
            ax.plot(mean.value, place, "|", color=colour, ms=11, mew=2, zorder=4)
        if shown.printed is not None:
            style = {"fmt": "D", "color": PAPER, "ms": 4.5, "mfc": "none", "mew": 1.3, "lw": 1, "zorder": 2}
            ax.errorbar(shown.printed, place + 0.3, xerr=shown.half, **style)
        drawing.beyond(ax, shown.values, place, bounds)
    if origin is not None:
        ax.axvline(origin, color=BLACK, lw=0.8, zorder=1)
    elif column in study.ceiling:
        ax.axvline(study.ceiling[column], color=GREEN, ls="--", lw=1.2, zorder=1)
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlim=bounds)
    ax.set_title(drawing.label(column, 34), fontsize=10)


def bars(study: Study) -> Figure | None:
    """F2: each augmentation without and with RCAD, a panel for each data set."""
    pairs = [(row, both) for row in study.rows if (both := f"{row} + RCAD") in study.rows]
    columns = [c for c in study.columns_run if any((row, c) in study.places for pair in pairs for row in pair)]
    if not pairs or not columns:
        return None
    figure, axes = panels(len(columns), 3.5, 2.7, left=0.5, below=0.5)
    for ax, column in zip(axes, columns, strict=False):
        _bars(ax, study, column, pairs)
    for ax in axes[:: min(3, len(columns))]:
        ax.set_ylabel(study.label, fontsize=9)
    keys = [
        drawing.key(axes[0], "alone", marker="s", ls="", color=drawing.LIGHT, ms=8),
        drawing.key(axes[0], "with RCAD", marker="s", ls="", color=drawing.BLUE, ms=8, alpha=0.55),
        drawing.key(axes[0], "seeds", marker="o", ls="", color=GREY, ms=4),
    ]
    printed = any(place.published is not None for place in study.places.values())
    keys += [published_key(axes[0])] if printed else []
    caption = (
        f"Bars: means with 95% intervals, without and with RCAD; dots: seeds{'; diamonds: as published' * printed}. "
        "The axes do not start at 0, so compare the tops, not the areas."
    )
    bases = ", ".join(base for base, _ in pairs)
    alt = f"{study.title}: pairs of bars for {bases} on each data set; the numbers are in the table below."
    return finish(figure, study, keys, caption, alt, "bars", wide=True)


def _bars(ax: Any, study: Study, column: str, pairs: Sequence[tuple[str, str]]) -> None:
    seen: list[float] = []
    for group, pair in enumerate(pairs):
        for side, row in enumerate(pair):
            place = study.place(row, column)
            if place is None:
                continue
            values, x = place.values(study.metric_of(column)), group + (-0.2, 0.2)[side]
            mean = mean_of(values)
            colour, ink = ((drawing.LIGHT, BLACK), (drawing.BLUE, drawing.BLUE))[side]
            if mean is not None:
                ax.bar(x, mean.value, 0.36, color=colour, alpha=0.55 if side else 0.8)
                ax.errorbar(x, mean.value, yerr=mean.half, color=ink, lw=1.4, capsize=3, zorder=4)
                drawing.strip(ax, values, x, ink, upright=True)
                seen += [*values, mean.value - (mean.half or 0), mean.value + (mean.half or 0)]
            if place.published is not None:
                ax.plot(x, place.published.mean, "D", ms=5, zorder=5, **PUBLISHED)
                seen.append(place.published.mean)
    low, high = drawing.limits(seen)
    ax.set(ylim=(low - 0.15 * (high - low), high), xlim=(-0.6, len(pairs) - 0.4))
    ax.set_xticks(range(len(pairs)), [drawing.label(base, 11) for base, _ in pairs])
    ax.set_title(drawing.label(column, 34), fontsize=10)
    drawing.bare(ax)
