"""The picture: boundaries, weights and accuracies by iteration, and the window of alpha."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rcad.paper.theory.bands import Band
from rcad.paper.theory.report import Results
from rcad.paper.theory.study import LARGE, SMALL, Study
from rcad.paper.theory.sweeps import Sweep, Window

if TYPE_CHECKING:
    Axes = Any

# Okabe and Ito's colours, which stay apart for colour-blind readers.
ERM_COLOUR, LARGE_COLOUR, SMALL_COLOUR, GREY = "#000000", "#0072B2", "#D55E00", "#666666"
ITERATIONS = (10, 30, 100)


def draw(results: Results, path: Path) -> None:
    """Write the four panels as one PNG. Raises ImportError where matplotlib is missing."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 9.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2)
    settings = results.study.settings
    _boundaries(axes[0, 0], results.study)
    _weights(axes[0, 1], results.study)
    _accuracies(axes[1, 0], results.study)
    _window(axes[1, 1], results.sweeps[0], next(w for w in results.windows if w.beta == settings.problem.beta))
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    problem = settings.problem
    numbers = rf"$n$={problem.n}, $d$={problem.d}, $\beta$={problem.beta:g}, $\gamma$={problem.gamma:g}"
    figure.suptitle(f"Linear theory: {numbers}; {settings.draws} draws; lines: medians, bands: 5% to 95%")
    figure.savefig(path, dpi=130, metadata={"Software": None})


def typical_draw(study: Study) -> int:
    """The draw whose gain in test accuracy is the median one: chosen by rule, not by eye."""
    gain = study.accuracy(study.path(LARGE)[-1]) - study.accuracy(study.erm[-1])
    return int(gain.argsort()[len(gain) // 2])


def _boundaries(ax: Axes, study: Study) -> None:
    """One training set in the plane of the true feature and of the direction in the noise that ERM learnt."""
    index = typical_draw(study)
    erm, path, small = study.erm[-1, index], study.path(LARGE)[:, index], study.path(SMALL)[-1, index]
    spurious = erm[1:] / erm[1:].norm()
    x, y = study.sample.x[index], study.sample.y[index]
    for label, marker, face in ((1, "o", "white"), (-1, "s", GREY)):
        chosen = x[y == label]
        points = (chosen[:, 0].tolist(), (chosen[:, 1:] @ spurious).tolist())
        ax.scatter(*points, marker=marker, facecolor=face, edgecolor=GREY, s=34, label=f"y = {label:+d}", zorder=3)

    def boundary(w: Tensor, **style: Any) -> None:
        # w1 x1 + (w2 . spurious) s = 0, as x1 over s: the noise's weight may be 0, the feature's is not.
        s = torch.tensor([-6.2, 6.2], dtype=w.dtype)
        x1 = -(w[1:] @ spurious) * s / w[0]
        ax.plot(x1.tolist(), s.tolist(), **style)

    boundary(erm, color=ERM_COLOUR, lw=2, label="ERM")
    boundary(
        small, color=SMALL_COLOUR, lw=2, ls=(0, (5, 2)), label=f"RCAD $\\alpha$={SMALL:g}, iteration {len(path) - 1}"
    )
    shown = [k for k in ITERATIONS if k < len(path)] or [len(path) - 1]
    for k, strength in zip(shown, (0.35, 0.65, 1.0), strict=False):
        boundary(path[k], color=LARGE_COLOUR, lw=2, alpha=strength, label=f"RCAD $\\alpha$={LARGE:g}, iteration {k}")
    ax.set(xlim=(-1.5, 1.5), ylim=(-3.5, 6.2), xlabel="true feature x₁", ylabel="noise, along ERM's w₂")
    ax.set_title("RCAD turns the boundary back to the true feature (the median draw)", fontsize=11)
    ax.legend(fontsize=8, loc="upper right", framealpha=0.95)


def _line(ax: Axes, start: int, band: Band, colour: str, label: str, style: Any = "-") -> None:
    steps = range(start, start + len(band.median))
    ax.plot(steps, band.median, color=colour, ls=style, lw=1.8, label=label)
    ax.fill_between(steps, band.q05, band.q95, color=colour, alpha=0.13, lw=0)


def _mean_line(ax: Axes, start: int, band: Band, colour: str, label: str, style: Any) -> None:
    """For training accuracy, whose medians jump by 1/n."""
    ax.plot(range(start, start + len(band.mean)), band.mean, color=colour, ls=style, lw=1.8, label=label)


def _curves(ax: Axes, study: Study, solid: str, dashed: str, names: tuple[str, str]) -> None:
    """ERM's iterations, then those of RCAD for both alphas; one quantity solid, the other dashed."""
    last = len(study.erm) - 1
    parts = (
        (study.erm, 0, ERM_COLOUR, "ERM"),
        (study.path(LARGE), last, LARGE_COLOUR, f"RCAD $\\alpha$={LARGE:g}"),
        (study.path(SMALL), last, SMALL_COLOUR, f"RCAD $\\alpha$={SMALL:g}"),
    )
    for path, start, colour, label in parts:
        bands = study.bands(path)
        _line(ax, start, bands[solid], colour, f"{label}, {names[0]}")
        line = _mean_line if dashed == "train" else _line
        line(ax, start, bands[dashed], colour, f"{label}, {names[1]}", (0, (4, 2)))
    ax.axvline(last, color=GREY, lw=0.8, ls=":")
    ax.set(xlabel="iteration (RCAD starts at the dotted line)", xlim=(0, 2 * last))


def _weights(ax: Axes, study: Study) -> None:
    _curves(ax, study, "w1", "w2", ("|w₁|", "‖w₂‖"))
    ax.set(ylim=(0, 1.02), ylabel="weight")
    ax.set_title("Weight on the true feature and on the noise", fontsize=11)
    ax.legend(fontsize=8, ncol=3, loc="lower center")


def _accuracies(ax: Axes, study: Study) -> None:
    _curves(ax, study, "test", "train", ("test", "train"))
    ax.set(ylim=(0.3, 1.02), ylabel="accuracy (test: exact; train: mean over draws)")
    ax.set_title("Accuracy on training and test data", fontsize=11)
    ax.legend(fontsize=8, ncol=3, loc="lower center")


def _window(ax: Axes, sweep: Sweep, window: Window) -> None:
    band, erm = sweep.rcad_accuracy, sweep.erm_accuracy
    if window.attracting:
        ax.axvspan(*window.attracting, color="#009E73", alpha=0.15, lw=0, label="w* attracts (n = ∞, closed form)")
    ax.plot(sweep.values, band.median, "o-", color=LARGE_COLOUR, ms=4, lw=1.8, label="RCAD, iteration 100")
    ax.fill_between(sweep.values, band.q05, band.q95, color=LARGE_COLOUR, alpha=0.15, lw=0)
    ax.plot(sweep.values, erm.median, color=ERM_COLOUR, lw=1.8, label="ERM")
    ax.fill_between(sweep.values, erm.q05, erm.q95, color=ERM_COLOUR, alpha=0.08, lw=0)
    ax.axvline(window.beta, color=GREY, ls=":", lw=1.2, label=f"$\\alpha = \\beta$ = {window.beta:g}")
    ax.set(xlim=(0, max(sweep.values)), ylim=(0.5, 1.02), xlabel=r"$\alpha$", ylabel="test accuracy (exact)")
    ax.set_title(r"The step helps in a window around $\beta$", fontsize=11)
    ax.legend(fontsize=8, loc="upper right")
