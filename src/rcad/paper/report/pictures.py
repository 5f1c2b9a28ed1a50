"""Pictures of one study only: F1's images, F5's theory, F7's boundaries, the measured alpha."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rcad.paper.record import JSON, Study
from rcad.paper.report.details import alpha_settings
from rcad.report import drawing
from rcad.report.document import Figure
from rcad.report.drawing import BLACK, BLUE, GREEN, GREY, VERMILION


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
    caption = (
        "Test images moved by alpha (an L2 distance in [0, 1] pixels) up an ERM model's own loss, clipped to be shown; "
        "below each the entropy of the model's prediction there."
    )
    alt = f"Rows of images, each moved further from left to right, at alpha {', '.join(f'{a:g}' for a in alphas)}."
    return drawing.finish(figure, [], caption, alt, "images", wide=True)


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
    _window(window, next(sweep for sweep in record["sweeps"] if sweep["over"] == "alpha"))
    caption = (
        f"{study.settings['draws']:,} draws; lines are medians unless it says mean, bands hold 90% of "
        "the draws. Right: the step helps in a window around the distance between the classes."
    )
    alt = "Three panels: weights by iteration, accuracies by iteration, test accuracy by alpha for ERM and RCAD."
    keys = [*weights.get_legend_handles_labels()[0], *window.get_legend_handles_labels()[0]]
    return drawing.finish(figure, keys, caption, alt, "theory", wide=True, columns=6)


def _band(ax: Any, x: Sequence[float], band: JSON, colour: str, text: str | None, scale: float) -> None:
    low, middle, high = (scale * np.asarray(band[name]) for name in ("q05", "median", "q95"))
    ax.plot(x, middle, color=colour, lw=1.8, label=text)
    ax.fill_between(x, low, high, color=colour, alpha=0.13, lw=0)


def _window(ax: Any, sweep: JSON) -> None:
    beta = sweep["base"]["problem"]["beta"]
    for name, colour in (("erm_accuracy", BLACK), ("rcad_accuracy", BLUE)):
        _band(ax, sweep["values"], sweep[name], colour, None, 100)
    ax.axvline(beta, color=GREEN, ls=":", lw=1.6, label=f"alpha = beta = {beta:g}")
    ax.set_title("Test accuracy by alpha:\nERM (black) and RCAD (blue)", fontsize=9.5)
    ax.set(xlabel="alpha", ylabel="test accuracy, %", xlim=(0, max(sweep["values"])))


def boundaries(study: Study) -> Figure | None:
    """F7: the probability of a class in the plane of the true features."""
    from rcad.paper.boundaries import LIMITS
    from rcad.paper.moons import LABELS

    results, settings = study.details, study.settings
    epochs, across = list(settings["epochs"]), settings["grid"]
    methods = list(dict.fromkeys(panel["method"] for panel in results["panels"]))
    size = 3.3 * len(epochs) + 0.9, 2.75 * len(methods) + 0.3
    figure, axes = drawing.grid(*size, len(methods), len(epochs), sharex=True, sharey=True)
    points, labels = np.asarray(results["points"]["x"]), np.asarray(results["points"]["y"])
    image: Any = None
    for panel in results["panels"]:
        ax = axes[methods.index(panel["method"]), epochs.index(panel["epoch"])]
        plane = np.asarray(panel["probability"], dtype=float).reshape(-1, across)
        image = ax.imshow(plane, origin="lower", extent=LIMITS, cmap="RdBu", vmin=0, vmax=100, alpha=0.55)
        left, right, low, high = LIMITS
        x, y = np.linspace(left, right, plane.shape[1]), np.linspace(low, high, plane.shape[0])
        if plane.min() < 50 < plane.max():
            ax.contour(x, y, plane, levels=[50], colors="black", linewidths=1.6)
        for kind, marker, colour in ((0, "o", "#6B0000"), (1, "s", "#00205F")):
            chosen = points[labels == kind]
            ax.scatter(chosen[:, 0], chosen[:, 1], marker=marker, s=6, color=colour, alpha=0.9, lw=0)
        place = study.places[LABELS[panel["method"]], f"epoch {panel['epoch']}"]
        share = place.values(study.metric)[0]
        ax.set_title(f"{panel['method'].upper()}, epoch {panel['epoch']}: {share:.1f}% of the curves", fontsize=9)
    bar = figure.colorbar(image, ax=axes, shrink=0.75)
    bar.set_label("probability of the lower moon, %", fontsize=9)
    figure.supxlabel("first true feature", fontsize=9)
    figure.supylabel("second true feature", fontsize=9)
    caption = (
        "The first draw: colour is the probability, the line its boundary, points are training examples. The share of "
        "the noise-free half circles on the right side is above each panel."
    )
    alt = "Panels of the plane coloured by prediction, one row of panels for each method, epochs from left to right."
    return drawing.finish(figure, [], caption, alt, "boundaries", wide=True)


def alphas(study: Study) -> Figure | None:
    """Held-out accuracy by alpha for each setting, with ERM's level and the suggestion."""
    settings = alpha_settings(study)
    figure, axes = drawing.panels(len(settings), 3.6, 2.6, left=0, below=0.5)
    for ax, (name, setting) in zip(axes, settings.items(), strict=False):
        _alpha_panel(ax, name, setting)
    for ax in axes[len(settings) - min(3, len(settings)) : len(settings)]:
        ax.set_xlabel("alpha", fontsize=9)
    axes[0].set_ylabel("held-out accuracy, %", fontsize=9)
    keys = [
        drawing.key(axes[0], "RCAD: draws and mean", marker="o", color=BLUE, ms=4),
        drawing.key(axes[0], "ERM", color=BLACK, lw=1.2),
        drawing.key(axes[0], "suggested alpha", color=GREEN, ls="--", lw=1.4),
    ]
    caption = "Accuracy on held-out examples by alpha; no test set was read."
    return drawing.finish(
        figure, keys, caption, f"A curve of accuracy by alpha for {', '.join(settings)}.", "grid", wide=True
    )


def _alpha_panel(ax: Any, name: str, setting: JSON) -> None:
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
