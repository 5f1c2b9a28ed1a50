"""The pictures, from the records alone. Raises MissingExtraError where matplotlib is not installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from rcad.errors import MissingExtraError
from rcad.paper import moons_claims, uci_claims
from rcad.paper.boundaries import LIMITS
from rcad.paper.published import UCI_NLL
from rcad.study.statistics import summary

# Okabe and Ito's colours, which stay apart for colour-blind readers.
COLOURS = {"erm": "#000000", "rcad": "#0072B2", "rcad_random": "#D55E00"}
OTHER, PAPER, BAYES = "#888888", "#CC79A7", "#009E73"
Record = Mapping[str, Any]


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "report") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, file: BinaryIO) -> None:
    figure.savefig(file, format="png", dpi=120, metadata={"Software": None})


def uci(record: Record, file: BinaryIO) -> None:
    """Each method's difference from ERM on every data set, with corrected intervals, and the published ones."""
    datasets = record["results"]["datasets"]
    methods = [name for name in uci_claims.LABELS if name != "erm"]
    figure = _figure(3.0 + 2.3 * len(datasets), 4.4)
    axes = np.atleast_1d(figure.subplots(1, len(datasets), sharey=True))
    for ax, (name, table) in zip(axes, datasets.items(), strict=True):
        _differences(ax, methods, table, UCI_NLL.get(name, {}))
        ax.set_title(name)
    axes[0].plot([], [], "D", color=PAPER, ms=6, mfc="none", mew=1.6, label="as published")
    axes[0].set_yticks(range(len(methods)), [uci_claims.LABELS[name] for name in methods])
    figure.supxlabel("difference of test NLL from ERM in nats: left of 0 is better than ERM", fontsize=10)
    handles, _ = axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles=handles, loc="outside upper right", fontsize=9, frameon=False)
    figure.suptitle("UCI: mean over splits and 95% interval, corrected for overlapping splits", fontsize=11)
    _save(figure, file)


def _differences(
    ax: Any, methods: list[str], table: Mapping[str, Any], printed: Mapping[str, tuple[float, float]]
) -> None:
    found = {method: uci_claims.compare(table, method, "erm") for method in methods}
    gaps = {name: printed[name][0] - printed["erm"][0] for name in ("me_ada", "rcad") if name in printed}
    # Sets that grow can end anywhere: they must not squeeze the others, so they may leave the picture.
    steady = [one for name, one in found.items() if one is not None and not name.endswith("ada")]
    limit = 1.15 * max([0.01, *(max(-one.low, one.high) for one in steady), *map(abs, gaps.values())])
    for row, (method, one) in enumerate(found.items()):
        colour = COLOURS.get(method, OTHER)
        if one is None:
            lost = summary(table["methods"][method]["nll"])["diverged"]
            ax.text(-0.95 * limit, row, f"{lost} diverged", va="center", fontsize=8, color=OTHER)
        elif abs(one.mean) > limit:
            ax.text(0.95 * limit, row - 0.25, f"mean {one.mean:+.2f} →", ha="right", fontsize=8, color=OTHER)
        if one is not None:
            ax.errorbar(one.mean, row, xerr=one.high - one.mean, fmt="o", color=colour, ms=5, lw=1.5, capsize=3)
        if method in gaps:
            ax.plot(gaps[method], row, "D", color=PAPER, ms=6, mfc="none", mew=1.6)
    ax.axvline(0, color="#000000", lw=0.8)
    ax.set(ylim=(len(methods) - 0.5, -0.5), xlim=(-limit, limit))
    ax.spines[["top", "right"]].set_visible(False)


def moons(record: Record, file: BinaryIO) -> None:
    """Accuracy by method for each distribution; accuracy by n; weights by epoch."""
    results = record["results"]
    cells = {name: cell for name, cell in results["cells"].items() if cell["noise"] == "all"}
    figure = _figure(13.5, 8.2)
    top, bottom = figure.subfigures(2, 1)
    axes = np.atleast_1d(top.subplots(1, len(cells), sharey=True))
    for ax, cell in zip(axes, cells.values(), strict=True):
        _bars(ax, cell)
    shown = (
        axes[0].plot([], [], "D", color=PAPER, ms=7, mfc="none", mew=1.6, label="as published (n = 20,000)"),
        axes[0].plot(
            [], [], "o", color=OTHER, ms=5, label=f"our draws and their mean (n = {record['settings']['n']:,})"
        ),
        axes[0].plot([], [], color=BAYES, ls="--", label="Bayes: the best possible"),
    )
    top.legend(handles=[line for (line,) in shown], loc="outside upper center", ncol=3, fontsize=9, frameon=False)
    left, right = bottom.subplots(1, 2)
    _by_n(left, results["sweep"])
    _weights(right, results["weight_ratio"])
    for ax in (*axes, left, right):
        ax.spines[["top", "right"]].set_visible(False)
    _save(figure, file)


def _bars(ax: Any, cell: Mapping[str, Any]) -> None:
    methods = [name for name in moons_claims.LABELS if name in cell["methods"]]
    printed = moons_claims.printed(cell) or {}
    for row, method in enumerate(methods):
        values = [value for value in cell["methods"][method]["accuracy"] if value is not None]
        colour = COLOURS.get(method, OTHER)
        ax.plot(values, [row] * len(values), "o", color=colour, ms=5, alpha=0.7)
        ax.plot([np.mean(values)] * 2, [row - 0.3, row + 0.3], color=colour, lw=2)
        if method in printed:
            ax.plot(printed[method], row, "D", color=PAPER, ms=7, mfc="none", mew=1.6)
    ax.axvline(cell["bayes"], color=BAYES, ls="--", lw=1.4)
    ax.set(ylim=(len(methods) - 0.5, -0.5), xlabel="test accuracy, %")
    ax.set_title(f"d = {cell['d']}, sigma = {cell['sigma']:g}", fontsize=11)
    ax.set_yticks(range(len(methods)), [moons_claims.LABELS[name] for name in methods])


def _by_n(ax: Any, rows: list[Mapping[str, Any]]) -> None:
    sizes = [row["n"] for row in rows]
    for method in rows[0]["accuracy"]:
        mean = [np.mean(row["accuracy"][method]) for row in rows]
        ax.plot(sizes, mean, "o-", color=COLOURS[method], lw=1.8, ms=5, label=moons_claims.LABELS[method])
        for row in rows:
            shown = row["accuracy"][method]
            ax.plot([row["n"]] * len(shown), shown, ".", color=COLOURS[method], ms=4, alpha=0.5)
    ax.set_xscale("log")
    ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
    ax.minorticks_off()
    ax.set(xlabel="training examples", ylabel="test accuracy, %")
    ax.set_title("Accuracy by the number of training examples", fontsize=11)
    ax.legend(fontsize=9)


def _weights(ax: Any, found: Mapping[str, Any]) -> None:
    for method in found:
        if method == "epochs":
            continue
        values = np.asarray(found[method])
        colour = COLOURS[method]
        ax.plot(found["epochs"], values.mean(0), "o-", color=colour, ms=4, label=moons_claims.LABELS[method])
        ax.fill_between(found["epochs"], values.min(0), values.max(0), color=colour, alpha=0.15, lw=0)
    ax.set(xlabel="epoch", ylabel="true / noise, RMS", ylim=(0, None))
    ax.set_title("First layer: weight on a true dimension over that on a noise dimension", fontsize=11)
    ax.legend(fontsize=9)


def boundaries(record: Record, file: BinaryIO) -> None:
    """The probability of a class in the plane of the true features, ERM above and RCAD below."""
    results = record["results"]
    epochs = list(record["settings"]["epochs"])
    across = record["settings"]["grid"]
    figure = _figure(4.2 * len(epochs), 6.4)
    axes = figure.subplots(2, len(epochs), sharex=True, sharey=True)
    points, labels = np.asarray(results["points"]["x"]), np.asarray(results["points"]["y"])
    left, right, low, high = LIMITS
    image: Any = None
    for panel in results["panels"]:
        ax = axes[("erm", "rcad").index(panel["method"]), epochs.index(panel["epoch"])]
        plane = np.asarray(panel["probability"], dtype=float).reshape(-1, across)
        image = ax.imshow(
            plane, origin="lower", extent=LIMITS, cmap="RdBu", vmin=0, vmax=100, aspect="equal", alpha=0.55
        )
        x, y = np.linspace(left, right, plane.shape[1]), np.linspace(low, high, plane.shape[0])
        if plane.min() < 50 < plane.max():
            ax.contour(x, y, plane, levels=[50], colors="black", linewidths=1.8)
        for label, marker, colour in ((0, "o", "#6B0000"), (1, "s", "#00205F")):
            chosen = points[labels == label]
            ax.scatter(chosen[:, 0], chosen[:, 1], marker=marker, s=9, color=colour, alpha=0.9, lw=0)
        name = moons_claims.LABELS[panel["method"]]
        noisy, clean = panel["validation_accuracy"][0], panel["arc_accuracy"][0]
        text = f"right: {noisy:.1f}% of examples, {clean:.1f}% of the curves"
        ax.set_title(f"{name}, epoch {panel['epoch']}\n{text}", fontsize=10)
    figure.colorbar(image, ax=axes, label="probability of the lower moon, %", shrink=0.7)
    figure.supxlabel("first true feature", fontsize=10)
    figure.supylabel("second true feature", fontsize=10)
    _save(figure, file)
