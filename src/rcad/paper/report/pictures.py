"""Pictures of a table, seeds as dots, the published number beside them; those of F1, F2, F5, F7 and of alpha."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from rcad.paper.claims import Side
from rcad.paper.record import JSON, Study
from rcad.paper.report import tables
from rcad.paper.report.details import alpha_settings
from rcad.paper.report.tables import about
from rcad.paper.targets import TARGETS
from rcad.report import drawing
from rcad.report.document import Figure
from rcad.report.drawing import BLACK, BLUE, GREEN, GREY, PAPER, VERMILION
from rcad.study.statistics import Paired, Summary

LIMITS = (-1.75, 2.75, -1.25, 1.75)
"""Left, right, bottom, top of F7's pictures."""
SMALL: dict[str, Any] = {"fontsize": 7, "color": GREY, "va": "center"}


class Line(NamedTuple):
    """A method in a panel: dots, their mean, the published value and half its interval."""

    values: Sequence[float]
    mean: Summary | Paired | None
    printed: float | None = None
    half: float | None = None


def dots(study: Study) -> Figure | None:
    """The results themselves: a panel for each column."""
    lines = {}
    for side, place in study.places.items():
        values, mean = place.values(study.metric_of(place.column)), tables.place_mean(study, place)
        lines[side] = Line(values, mean, *(place.published or ())[:2])
    fields = {"label": study.label, "columns": ", ".join(study.columns_run)}
    fields["better"] = "right" if study.higher_is_better else "left"
    return _panels(study, lines, study.label, None, "dots", **fields)


def gains(study: Study) -> Figure | None:
    """Differences from ERM on the same seeds."""
    base = tables.reference(study)
    if base is None:
        return None
    sign = 1 if study.higher_is_better else -1
    lines: dict[Side, Line] = {}
    for row, column in product(study.rows, study.columns):
        gain, pairs = tables.gain_over(study, row, base, column), []
        printed = tables.printed_gain(study, row, base, column)
        if gain is not None:
            ours, theirs = (study.places[name, column].by_seed(study.metric_of(column)) for name in (row, base))
            pairs = [sign * (ours[seed] - theirs[seed]) for seed in ours if seed in theirs]  # type: ignore[operator]
        if row != base and (gain is not None or printed is not None):
            lines[row, column] = Line(pairs, gain, printed)
    if not any(line.values for line in lines.values()):
        return None
    return _panels(study, lines, tables.better_by(base, tables.gain_unit(study)), 0.0, "gains", base=base)


def _panels(
    study: Study, lines: Mapping[Side, Line], axis: str, origin: float | None, name: str, **fields: str
) -> Figure | None:
    """Methods from top to bottom in every panel; None where nothing is there."""
    unit = "splits" if study.overlap else "seeds"
    rows = [row for row in study.rows if row in {side[0] for side in lines}]
    columns = [column for column in study.columns_run if column in {side[1] for side in lines}]
    if not rows or not columns:
        return None
    figure, axes = drawing.panels(len(columns), 3.0, 0.30 * len(rows) + 0.75, left=2.0, below=0.75, sharey=True)
    across = min(3, len(columns))
    for ax, column in zip(axes, columns, strict=False):
        _panel(ax, study, column, {row: lines.get((row, column)) for row in rows}, origin)
    axes[0].set_yticks(range(len(rows)), [drawing.label(row) for row in rows])
    for ax in axes[::across]:
        for tick, row in zip(ax.get_yticklabels(), rows, strict=False):
            tick.set_fontstyle("italic" if row in study.controls else "normal")
    for ax in axes[max(0, len(columns) - across) : len(columns)]:
        ax.set_xlabel(axis, fontsize=9)
    keys = [drawing.key(axes[0], unit, marker="o", ls="", color=GREY, ms=4)]
    keys.append(drawing.key(axes[0], "mean, 95% interval", marker="|", ls="-", color=GREY, ms=9))
    if any(line.printed is not None for (_, column), line in lines.items() if column in columns):
        keys.append(drawing.published_key(axes[0]))
    if origin is None and study.ceiling:
        keys.append(drawing.key(axes[0], "Bayes: the best possible", color=GREEN, ls="--", lw=1.2))
    words = about(name, title=study.title, unit=unit, **fields)
    return drawing.finish(figure, keys, *words, name, wide=len(study.columns_run) > 1)


def _panel(ax: Any, study: Study, column: str, rows: Mapping[str, Line | None], origin: float | None) -> None:
    lines = [line for line in rows.values() if line is not None]
    published = [line.printed for line in lines if line.printed is not None]
    ends = [end for line in lines if line.mean for end in (line.mean.low, line.mean.high) if end is not None]
    near = [*(value for line in lines for value in line.values), *ends, *published]
    low, high = drawing.limits(near, around=study.ceiling.get(column) if origin is None else origin)
    margin = 0.06 * (high - low)
    bounds = min([low, *(value - margin for value in published)]), max([high, *(value + margin for value in published)])
    for place, (row, line) in enumerate(rows.items()):
        cell = study.place(row, column)
        if cell is None or not cell.runs:
            ax.text(0.5, place, "not run", transform=ax.get_yaxis_transform(), **SMALL, ha="center")
        elif cell.diverged:
            words = f"{cell.diverged} diverged"
            ax.text(0.01, place - 0.3, words, transform=ax.get_yaxis_transform(), **SMALL)
        if line is None:
            continue
        colour, mean = drawing.colour_of(row), line.mean
        drawing.strip(ax, line.values, place, colour)
        if mean is not None:
            ax.errorbar(mean.mean, place, xerr=mean.half, color=colour, lw=1.6, capsize=0, zorder=4)
            ax.plot(mean.mean, place, "|", color=colour, ms=11, mew=2, zorder=4)
        if line.printed is not None:
            style = {"fmt": "D", "color": PAPER, "ms": 4.5, "mfc": "none", "mew": 1.3, "lw": 1, "zorder": 2}
            ax.errorbar(line.printed, place + 0.3, xerr=line.half, **style)
        drawing.beyond(ax, line.values, place + 0.3, bounds)
    if origin is not None:
        ax.axvline(origin, color=BLACK, lw=0.8, zorder=1)
    elif column in study.ceiling:
        ax.axvline(study.ceiling[column], color=GREEN, ls="--", lw=1.2, zorder=1)
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlim=bounds)
    ax.set_title(drawing.label(column, 34), fontsize=10)


def bars(study: Study) -> Figure | None:
    """F2: each augmentation without and with RCAD, a panel for each data set; the paper prints no numbers for them."""
    pairs = [(row, with_rcad) for row in study.rows if (with_rcad := f"{row} + RCAD") in study.rows]
    columns = [c for c in study.columns_run if any((row, c) in study.places for pair in pairs for row in pair)]
    if not pairs or not columns:
        return None
    figure, axes = drawing.panels(len(columns), 3.5, 2.7, left=0.5, below=0.5)
    for ax, column in zip(axes, columns, strict=False):
        _bars(ax, study, column, pairs)
    for ax in axes[:: min(3, len(columns))]:
        ax.set_ylabel(study.label, fontsize=9)
    keys = [
        drawing.key(axes[0], "alone", marker="s", ls="", color=drawing.LIGHT, ms=8),
        drawing.key(axes[0], "with RCAD", marker="s", ls="", color=drawing.BLUE, ms=8, alpha=0.55),
        drawing.key(axes[0], "seeds", marker="o", ls="", color=GREY, ms=4),
    ]
    words = about("bars", title=study.title, bases=", ".join(base for base, _ in pairs))
    return drawing.finish(figure, keys, *words, "bars", wide=True)


def _bars(ax: Any, study: Study, column: str, pairs: Sequence[tuple[str, str]]) -> None:
    near: list[float | None] = []
    for group, pair in enumerate(pairs):
        for side, row in enumerate(pair):
            place = study.place(row, column)
            if place is None:
                continue
            values, x = place.values(study.metric_of(column)), group + (-0.2, 0.2)[side]
            mean = tables.mean_of(values)
            colour, ink = ((drawing.LIGHT, BLACK), (drawing.BLUE, drawing.BLUE))[side]
            if mean is not None:
                ax.bar(x, mean.mean, 0.36, color=colour, alpha=0.55 if side else 0.8)
                ax.errorbar(x, mean.mean, yerr=mean.half, color=ink, lw=1.4, capsize=3, zorder=4)
                drawing.strip(ax, values, x, ink, upright=True)
                near += [*values, mean.mean, mean.low, mean.high]
    low, high = drawing.limits(value for value in near if value is not None)
    ax.set(ylim=(low - 0.15 * (high - low), high), xlim=(-0.6, len(pairs) - 0.4))
    ax.set_xticks(range(len(pairs)), [drawing.label(base, 11) for base, _ in pairs])
    ax.set_title(drawing.label(column, 34), fontsize=10)


def images(study: Study) -> Figure | None:
    """F1: one example in each row, alpha growing to the right, the model's entropy below each."""
    record = study.details.get("images")
    if not record:
        return None
    pixels = np.asarray(record["pixels"], dtype=float) / 255  # (images, alphas, C, H, W)
    alphas, entropy = list(record["alphas"]), record.get("entropy")
    figure = drawing.blank(1.2 * len(alphas) + 0.9, 1.42 * len(pixels) + 0.6)
    axes = figure.subplots(len(pixels), len(alphas), squeeze=False)
    for k, line in enumerate(axes):
        for i, ax in enumerate(line):
            image = np.clip(pixels[k, i].transpose(1, 2, 0), 0, 1)
            image = image[..., 0] if image.shape[-1] == 1 else image
            ax.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
            if k == 0:
                ax.set_title(f"alpha {alphas[i]:g}" if alphas[i] else "x", fontsize=9)
            if entropy is not None:
                ax.set_xlabel(f"{entropy[k][i]:.2f} nats", fontsize=8, labelpad=2)
        line[0].set_ylabel(drawing.label(str(record["labels"][k]), 14), fontsize=9)
    words = about("images", alphas=", ".join(f"{alpha:g}" for alpha in alphas))
    return drawing.finish(figure, [], *words, "images", wide=True)


def theory(study: Study) -> Figure | None:
    """F5: weights and accuracies by iteration, and the window of alpha."""
    record = study.details
    bands = record["figure"]["by_iteration"]
    figure, ((weights, accuracies, window),) = drawing.grid(12.0, 4.4, 1, 3)
    names = list(bands)
    colours = dict(zip(names, (BLACK, VERMILION, BLUE), strict=False))
    for name in names:
        start = 0 if name == "erm" else len(bands["erm"]["w1"]["median"]) - 1
        text, colour = name.replace("erm", "ERM").replace("rcad alpha=", "RCAD, alpha "), colours.get(name, GREY)
        for ax, solid, dashed in ((weights, "w1", "w2"), (accuracies, "test", "train")):
            percent = 100 if ax is accuracies else 1
            middle = [percent * value for value in bands[name][dashed]["mean"]]
            steps = range(start, start + len(middle))
            _band(ax, steps, bands[name][solid], colour, text, percent)
            ax.plot(steps, middle, color=colour, lw=1.4, ls=(0, (4, 2)))
    for ax, title, unit in (
        (weights, "Solid: weight on the true feature, |w₁|\ndashed: on the noise, ‖w₂‖ (mean)", "weight"),
        (accuracies, "Solid: test accuracy\ndashed: training accuracy (mean)", "accuracy, %"),
    ):
        ax.set_title(title, fontsize=9.5)
        ax.set(xlabel="iteration; RCAD starts where ERM ends", ylabel=unit)
    sweep = next(sweep for sweep in record["sweeps"] if sweep["over"] == "alpha")
    for name, colour in (("erm_accuracy", BLACK), ("rcad_accuracy", BLUE)):
        _band(window, sweep["values"], sweep[name], colour, None, 100)
    beta = sweep["base"]["problem"]["beta"]
    window.axvline(beta, color=GREEN, ls=":", lw=1.6, label=f"alpha = beta = {beta:g}")
    window.set_title("Test accuracy by alpha:\nERM (black) and RCAD (blue)", fontsize=9.5)
    window.set(xlabel="alpha", ylabel="test accuracy, %", xlim=(0, max(sweep["values"])))
    keys = [*weights.get_legend_handles_labels()[0], *window.get_legend_handles_labels()[0]]
    words = about("theory", draws=study.settings["draws"])
    return drawing.finish(figure, keys, *words, "theory", wide=True, columns=6)


def _band(ax: Any, x: Sequence[float], band: JSON, colour: str, text: str | None, scale: float) -> None:
    low, middle, high = (scale * np.asarray(band[name]) for name in ("q05", "median", "q95"))
    ax.plot(x, middle, color=colour, lw=1.8, label=text)
    ax.fill_between(x, low, high, color=colour, alpha=0.13, lw=0)


def boundaries(study: Study) -> Figure | None:
    """F7: the probability of a class in the plane of the true features."""
    results, settings = study.details, study.settings
    epochs, across = list(settings["epochs"]), settings["grid"]
    methods = list(dict.fromkeys(panel["method"] for panel in results["panels"]))
    size = 3.3 * len(epochs) + 0.9, 2.75 * len(methods) + 0.3
    figure, axes = drawing.grid(*size, len(methods), len(epochs), sharex=True, sharey=True)
    image: Any = None
    for panel in results["panels"]:
        ax = axes[methods.index(panel["method"]), epochs.index(panel["epoch"])]
        image = draw_plane(ax, panel["probability"], across, results["points"])
        place = study.places[TARGETS["F7"].rows[panel["method"]], f"epoch {panel['epoch']}"]
        share = place.values(study.metric)[0]
        ax.set_title(f"{panel['method'].upper()}, epoch {panel['epoch']}: {share:.1f}% of the curves", fontsize=9)
    bar = figure.colorbar(image, ax=axes, shrink=0.75)
    bar.set_label("probability of the lower moon, %", fontsize=9)
    figure.supxlabel("first true feature", fontsize=9)
    figure.supylabel("second true feature", fontsize=9)
    return drawing.finish(figure, [], *about("boundaries"), "boundaries", wide=True)


def draw_plane(
    ax: Any, percent: Sequence[float], across: int, points: JSON, *, line: float = 1.6, dot: float = 6
) -> Any:
    """The plane coloured by the probability of class 1, row by row from the bottom, the boundary, training examples."""
    plane = np.asarray(percent, dtype=float).reshape(-1, across)
    image = ax.imshow(plane, origin="lower", extent=LIMITS, cmap="RdBu", vmin=0, vmax=100, alpha=0.55)
    x, y = np.linspace(*LIMITS[:2], plane.shape[1]), np.linspace(*LIMITS[2:], plane.shape[0])
    if plane.min() < 50 < plane.max():
        ax.contour(x, y, plane, levels=[50], colors="black", linewidths=line)
    where, labels = np.asarray(points["x"]), np.asarray(points["y"])
    for kind, marker, colour in ((0, "o", "#6B0000"), (1, "s", "#00205F")):
        chosen = where[labels == kind]
        ax.scatter(chosen[:, 0], chosen[:, 1], marker=marker, s=dot, color=colour, alpha=0.9, lw=0)
    return image


def alphas(study: Study) -> Figure | None:
    """Held-out accuracy by alpha for each setting, with ERM's level and the suggestion."""
    settings = alpha_settings(study)
    figure, axes = drawing.panels(len(settings), 3.6, 2.6, left=0, below=0.5)
    for ax, (name, setting) in zip(axes, settings.items(), strict=False):
        for alpha, values in zip(setting["alphas"], setting["grid"], strict=True):
            ax.plot([alpha] * len(values), values, "o", color=BLUE, ms=3.2, alpha=0.5, mec="none")
        ax.plot(setting["alphas"], [np.mean(values) for values in setting["grid"]], "-", color=BLUE, lw=1.6)
        ax.axhline(setting["erm"], color=BLACK, lw=1.2)
        ax.axvline(setting["suggested"]["alpha"], color=GREEN, ls="--", lw=1.4)
        ax.set_xscale("log")
        ax.minorticks_off()
        ticks = setting["alphas"][::3]
        ax.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
        ax.set_title(name, fontsize=10)
    for ax in axes[len(settings) - min(3, len(settings)) : len(settings)]:
        ax.set_xlabel("alpha", fontsize=9)
    axes[0].set_ylabel("held-out accuracy, %", fontsize=9)
    keys = [
        drawing.key(axes[0], "RCAD: draws and mean", marker="o", color=BLUE, ms=4),
        drawing.key(axes[0], "ERM", color=BLACK, lw=1.2),
        drawing.key(axes[0], "suggested alpha", color=GREEN, ls="--", lw=1.4),
    ]
    return drawing.finish(figure, keys, *about("grid", settings=", ".join(settings)), "grid", wide=True)
