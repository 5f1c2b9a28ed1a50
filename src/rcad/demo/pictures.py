"""The demo's pictures, from its numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rcad.demo.settings import LABELS
from rcad.demo.verdicts import LOWER_IS_BETTER, UNITS, WORDS, Comparison, Contest
from rcad.paper.boundaries import LIMITS
from rcad.report.document import Figure
from rcad.report.drawing import blank, inline

# Okabe and Ito's colours, which stay apart for colour-blind readers.
COLOURS = {"erm": "#000000", "rcad": "#0072B2", "rcad_small": "#D55E00"}
GREY = "#666666"
OUTCOMES = {"wins": "#0072B2", "loses": "#D55E00", "undecided": GREY}
Results = Mapping[str, Any]


def capital(text: str) -> str:
    """The text with a capital at its beginning, the rest as it is."""
    return text[:1].upper() + text[1:]


def linear(results: Results) -> list[Figure]:
    """The median draw's boundaries; test accuracy and the noise's weight over all draws."""
    large, small = f"RCAD, alpha {results['alpha']:g}", f"RCAD, alpha {results['alpha_small']:g}"
    names = {"erm": "ERM", "rcad_small": small, "rcad": large}
    draws = results["draws"]
    return [
        Figure(
            _boundary(results["plane"], names),
            "The draw with the median gain. Left and right is the feature that tells the classes apart; up and down "
            "is the noise that ERM learnt. An upright boundary ignores the noise.",
            "Training points of two classes and three straight boundaries: ERM's leans, RCAD's stands nearly upright.",
        ),
        Figure(
            _histogram(results, names, "accuracy", "test accuracy, % (exact)"),
            f"Test accuracy in {draws} draws; the best possible has {results['best']:.4f}%.",
            "Three histograms of test accuracy by classifier; the mean of each is in the table.",
        ),
        Figure(
            _histogram(results, names, "w2", "weight on the noise, ‖w₂‖"),
            f"The weight on the noise in {draws} draws; the whole weight has length 1.",
            "Three histograms of the weight on the noise by classifier; the mean of each is in the table.",
        ),
    ]


def _boundary(plane: Results, names: Mapping[str, str]) -> str:
    figure = blank(4.0, 3.4)
    ax = figure.subplots()
    x1, s, y = (np.asarray(plane[key]) for key in ("x1", "s", "y"))
    for label, marker, face in ((1, "o", "white"), (-1, "s", GREY)):
        ax.scatter(x1[y == label], s[y == label], marker=marker, facecolor=face, edgecolor=GREY, s=34, zorder=3)
    height = 1.15 * float(np.abs(s).max())
    ends = np.asarray([-height, height])
    for name, text in names.items():
        style = "-" if name != "rcad_small" else (0, (5, 2))
        ax.plot(plane["slopes"][name] * ends, ends, color=COLOURS[name], lw=2.2, ls=style, label=text)
    width = max(1.0, 1.2 * float(np.abs(x1).max()))
    ax.set(xlim=(-width, width), ylim=(-height, height), xlabel="true feature x₁", ylabel="noise, along ERM's w₂")
    _finish(figure, ax)
    return inline(figure)


def _histogram(results: Results, names: Mapping[str, str], key: str, label: str) -> str:
    figure = blank(4.0, 3.4)
    ax = figure.subplots()
    values = {name: np.asarray(results["classifiers"][name][key]) for name in names}
    every = np.concatenate(list(values.values()))
    bins = np.linspace(float(every.min()), float(every.max()), 31)
    for name, text in names.items():
        fill = name != "rcad_small"
        style = {"alpha": 0.45, "histtype": "stepfilled"} if fill else {"histtype": "step", "lw": 1.8}
        ax.hist(values[name], bins=bins, color=COLOURS[name], label=text, **style)
    ax.set(xlabel=label, ylabel="draws")
    _finish(figure, ax)
    return inline(figure)


def moons(results: Results) -> list[Figure]:
    """One plane for each method: the probability of a class where all noise dimensions are 0."""
    across = _across(results)
    figures = []
    for name, plane in results["planes"].items():
        accuracy, curves = results["methods"][name]["accuracy"][0], plane["on_the_curves"][0]
        shown = "a run that diverged" if accuracy is None else f"{accuracy:.1f}% of its test examples right"
        text = f"{capital(LABELS[name])}: {shown}, {curves:.1f}% of the half circles themselves."
        alt = f"The plane of the true features coloured by the prediction of {LABELS[name]}, with its boundary."
        figures.append(Figure(_plane(plane["probability"], results["points"], across), text, alt))
    return figures


def _across(results: Results) -> int:
    """The grid has two thirds as many rows as columns."""
    cells = len(results["planes"]["erm"]["probability"])
    return next(k for k in range(2, cells + 1) if k * max(2, k * 2 // 3) == cells)


def _plane(probability: Sequence[float], points: Results, across: int) -> str:
    figure = blank(4.0, 3.0)
    ax = figure.subplots()
    plane = np.asarray(probability, dtype=float).reshape(-1, across)
    left, right, low, high = LIMITS
    ax.imshow(plane, origin="lower", extent=LIMITS, cmap="RdBu", vmin=0, vmax=100, aspect="equal", alpha=0.55)
    x, y = np.linspace(left, right, plane.shape[1]), np.linspace(low, high, plane.shape[0])
    if plane.min() < 50 < plane.max():
        ax.contour(x, y, plane, levels=[50], colors="black", linewidths=1.8)
    where, labels = np.asarray(points["x"]), np.asarray(points["y"])
    for label, marker, colour in ((0, "o", "#6B0000"), (1, "s", "#00205F")):
        chosen = where[labels == label]
        ax.scatter(chosen[:, 0], chosen[:, 1], marker=marker, s=9, color=colour, alpha=0.9, lw=0)
    ax.set(xlim=(left, right), ylim=(low, high), xlabel="first true feature", ylabel="second true feature")
    _finish(figure, ax, legend=False)
    return inline(figure)


def differences(contest: Contest, comparisons: Sequence[Comparison]) -> list[Figure]:
    """By metric: how much better RCAD is than each other method, with 95% intervals."""
    own = [one for one in comparisons if one.contest == contest["title"]]
    figures = []
    for metric in contest["methods"]["rcad"]:
        rows = [one for one in own if one.metric == metric]
        direction = "lower" if metric in LOWER_IS_BETTER else "higher"
        caption = (
            f"{capital(contest['title'])}: how much {direction} RCAD's {WORDS[metric]} is, pair by pair, with 95% "
            "intervals. Right of 0 RCAD is better; blue wins, orange loses, grey is undecided after Holm's correction."
        )
        told = ", ".join(f"{LABELS[one.rival]} {one.numbers} ({one.outcome})" for one in rows)
        figures.append(Figure(_dots(rows, metric), caption, f"RCAD against {told}."))
    return figures


def _dots(rows: Sequence[Comparison], metric: str) -> str:
    figure = blank(4.0, 0.8 + 0.36 * len(rows))
    ax = figure.subplots()
    for k, one in enumerate(rows):
        if one.gain is None:
            ax.text(0, k, "a run diverged", va="center", ha="center", fontsize=8, color=GREY)
            continue
        error = one.gain.high - one.gain.mean
        ax.errorbar(one.gain.mean, k, xerr=error, fmt="o", color=OUTCOMES[one.outcome], ms=6, lw=1.8, capsize=3)
    ax.axvline(0, color="black", lw=0.8)
    ax.set_yticks(range(len(rows)), [LABELS[one.rival] for one in rows])
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel=f"RCAD better by, in {WORDS[metric]}{UNITS[metric]}")
    _finish(figure, ax, legend=False)
    return inline(figure)


def _finish(figure: Any, ax: Any, *, legend: bool = True) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    if legend:
        handles, labels = ax.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2, fontsize=8.5, frameon=False)
