"""Pictures with something along x: accuracy by alpha or by the number of examples, methods by corruption."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rcad.paper.record import Series, Study
from rcad.paper.report.figures import PUBLISHED, finish, published_key
from rcad.paper.report.numbers import better_by, gain_over, mean_of, printed_gain, reference
from rcad.report import drawing
from rcad.report.document import Figure
from rcad.report.drawing import BLACK, GREY, PAPER
from rcad.report.numbers import capital

ALONG = {
    "step size": "alpha, L2 distance in [0, 1] pixels",
    "entropy": "alpha, L2 distance in [0, 1] pixels",
    "by number of images": "training images",
}
"""What stands along x of the suites' panels."""
_SIZE = re.compile(r"(?:n ?= ?)?(\d[\d,]*)")


def panels(study: Study) -> list[Figure]:
    """The curves of a record: a picture for each panel that has results."""
    found: dict[str, list[Series]] = {}
    for one in study.series:
        found.setdefault(one.panel, []).append(one)
    pictures = []
    for index, (panel, every) in enumerate(found.items()):
        some = [one for one in every if any(value is not None for values in one.y for value in values)]
        if some:
            name = f"curves{index + 1 if len(found) > 1 else ''}"
            names = any(isinstance(x, str) for one in some for x in one.x)
            pictures.append((_categories if names else _curves)(study, name, panel, some))
    return pictures


def _axes(study: Study, panel: str) -> tuple[str, str]:
    """What stands along x and y."""
    along = study.along or ALONG.get(panel, panel)
    if panel == "entropy":
        return along, "mean entropy, nats"
    base = reference(study)
    if study.target == "F3" and base is not None:
        return along, better_by(study, base)
    return along, study.label


def _near(some: Sequence[Series]) -> list[float]:
    return [v for one in some for v in (*(v for values in one.y for v in values), *one.published) if v is not None]


def _printed(some: Sequence[Series]) -> bool:
    return any(value is not None for one in some for value in one.published)


def _curves(study: Study, name: str, panel: str, some: Sequence[Series]) -> Figure:
    """Along numbers: seeds as dots, means with intervals as a line, the published curve beside it."""
    figure = drawing.blank(7.2, 4.4)
    ax = figure.subplots()
    colours = drawing.colours_of([one.name for one in some])
    for one in some:
        _curve(ax, one, colours[one.name])
    set_scale(ax, [float(x) for one in some for x in one.x])
    along, up = _axes(study, panel)
    # An interval of two seeds may be wider than all curves together; it must not flatten them.
    ax.set(xlabel=along, ylabel=up, ylim=drawing.limits(_near(some)))
    drawing.bare(ax)
    handles, _ = ax.get_legend_handles_labels()
    printed = _printed(some)
    handles += [published_key(ax, ls=":")] if printed else []
    caption = (
        f"{capital(panel)}{': ' if panel else ''}dots are seeds, lines means with 95% intervals, which "
        f"may leave the picture.{' Diamonds: as published.' * printed}"
    )
    alt = f"{study.title}: {up} by {along} for {', '.join(one.name for one in some)}."
    return finish(figure, study, handles, caption, alt, name, columns=2)


def _categories(study: Study, name: str, panel: str, some: Sequence[Series]) -> Figure:
    """Along names that have results: they stand below each other, the series in colours."""
    places = list(dict.fromkeys(str(x) for one in some for x, values in zip(one.x, one.y, strict=True) if values))
    figure = drawing.blank(8.0, (0.13 * len(some) + 0.16) * len(places) + 1.2)
    ax = figure.subplots()
    colours = drawing.colours_of([one.name for one in some])
    for index, one in enumerate(some):
        for k, (x, values) in enumerate(zip(one.x, one.y, strict=True)):
            if str(x) not in places:
                continue
            y = places.index(str(x)) + 0.7 * ((index + 0.5) / len(some) - 0.5)
            printed = one.published[k] if k < len(one.published) else None
            _line(ax, y, [value for value in values if value is not None], printed, colours[one.name])
    _rows(ax, places)
    _, up = _axes(study, panel)
    ax.set(xlim=drawing.limits(_near(some)), xlabel=up)
    if study.target == "F3":
        ax.axvline(0, color=BLACK, lw=0.8)
    drawing.bare(ax)
    caption = f"{capital(panel)}{'. ' if panel else ''}Dots: seeds; tick and bar: their mean and its 95% interval."
    alt = f"{study.title}, {panel}: {up} of {', '.join(one.name for one in some)} for {', '.join(places)}."
    return finish(figure, study, _keys(ax, colours, printed=_printed(some)), caption, alt, name, columns=3)


def _line(ax: Any, y: float, values: Sequence[float], printed: float | None, colour: str) -> None:
    """One method on one line: seeds, mean and interval, the published number."""
    ax.plot(values, [y] * len(values), "o", color=colour, ms=3, alpha=0.45, mec="none")
    mean = mean_of(values)
    if mean is not None:
        ax.errorbar(mean.value, y, xerr=mean.half, fmt="|", color=colour, ms=7, mew=1.8, lw=1.4)
    if printed is not None:
        ax.plot(printed, y, "D", color=PAPER, ms=4, mfc="none", mew=1.1)


def _rows(ax: Any, names: Sequence[str]) -> None:
    """Names from top to bottom, every second one on a tint."""
    for place in range(1, len(names), 2):
        ax.axhspan(place - 0.5, place + 0.5, color="#F0F2F4", lw=0, zorder=0)
    ax.set_yticks(range(len(names)), [drawing.label(name.replace("_", " ")) for name in names])
    ax.set_ylim(len(names) - 0.5, -0.5)


def _keys(ax: Any, colours: dict[str, str], *, printed: bool) -> list[Any]:
    found = [
        drawing.key(ax, drawing.label(name, 30), marker="|", ls="-", color=colour, ms=8, mew=1.8)
        for name, colour in colours.items()
    ]
    found.append(drawing.key(ax, "seeds", marker="o", ls="", color=GREY, ms=4))
    return [*found, published_key(ax)] if printed else found


def _curve(ax: Any, one: Series, colour: str) -> None:
    found = []
    for place, values in zip(one.x, one.y, strict=True):
        good = [value for value in values if value is not None]
        mean = mean_of(good)
        if mean is not None:
            ax.plot([place] * len(good), good, "o", color=colour, ms=3.4, alpha=0.45, mec="none")
            found.append((place, mean.value, mean.half or 0.0))
    x, middle, half = zip(*found, strict=True) if found else ((), (), ())
    ax.errorbar(x, middle, yerr=half, fmt="-", color=colour, lw=1.8, capsize=2.5, label=drawing.label(one.name, 42))
    printed = [(place, value) for place, value in zip(one.x, one.published, strict=False) if value is not None]
    if printed:
        ax.plot(*zip(*printed, strict=True), "D:", ms=5, lw=1, **PUBLISHED)


def set_scale(ax: Any, x: list[float]) -> None:
    """A logarithmic axis where x spans more than a decade; ticks at the values themselves while they are few."""
    places = sorted(set(x))
    if places and places[0] > 0 and places[-1] / places[0] > 10:
        ax.set_xscale("log")
        ax.minorticks_off()
        kept: list[float] = []
        for place in places:
            if not kept or place / kept[-1] > 1.35:
                kept.append(place)
        ax.set_xticks(kept, [f"{place:,g}" if place < 1e4 else f"{place:,.0f}" for place in kept])


def by_size(study: Study) -> Figure | None:
    """F3, right: gain over ERM by the number of examples, where the columns are numbers."""
    base = reference(study)
    sizes = {column: n for column in study.columns_run if (n := _number(column)) is not None}
    if base is None or len(sizes) < 3 or len(sizes) < len(study.columns_run):
        return None
    figure = drawing.blank(7.2, 4.2)
    ax = figure.subplots()
    rows = [row for row in study.rows if row != base]
    colours = drawing.colours_of(rows)
    drawn = False
    for index, row in enumerate(rows):
        shift = 1 + 0.025 * (index - (len(rows) - 1) / 2)
        found = [(n * shift, one) for c, n in sizes.items() if (one := gain_over(study, row, base, c)) is not None]
        if found:
            drawn = True
            ax.errorbar(
                [n for n, _ in found],
                [one.mean for _, one in found],
                yerr=[one.high - one.mean for _, one in found],
                fmt="o--" if row in study.controls else "o-",
                color=colours[row],
                lw=1.5,
                ms=4,
                capsize=2.5,
                label=drawing.label(row, 30),
            )
        if row.casefold() == "rcad":
            printed = [(n, gain) for c, n in sizes.items() if (gain := printed_gain(study, row, base, c)) is not None]
            if printed:
                ax.plot(*zip(*printed, strict=True), "D:", label=f"{row}, as published", **PUBLISHED)
    if not drawn:
        return None
    set_scale(ax, list(sizes.values()))
    ax.axhline(0, color=BLACK, lw=0.8)
    ax.set(xlabel="training examples", ylabel=better_by(study, base))
    drawing.bare(ax)
    words = f"ain over {base} by the number of training examples"
    caption, alt = f"G{words}, with 95% intervals over paired seeds; controls dashed.", f"{study.title}: g{words}."
    return finish(figure, study, ax.get_legend_handles_labels()[0], caption, alt, "by-size", columns=3)


def _number(text: str) -> float | None:
    found = _SIZE.fullmatch(text.strip())
    return float(found[1].replace(",", "")) if found else None


def by_column(study: Study) -> Figure | None:
    """Many columns from top to bottom, the methods in colours."""
    columns = study.columns_run
    rows = [row for row in study.rows if any((row, c) in study.places for c in columns)]
    if not columns or not rows:
        return None

    def shown(row: str, column: str) -> tuple[list[float], float | None]:
        place = study.place(row, column)
        if place is None:
            return [], None
        return place.values(study.metric_of(column)), None if place.published is None else place.published.mean

    cells = {row: [shown(row, column) for column in columns] for row in rows}
    series = [
        Series(row, columns, [values for values, _ in some], [printed for _, printed in some])
        for row, some in cells.items()
    ]
    return _categories(study, "by-column", "", series)
