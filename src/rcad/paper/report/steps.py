"""F4: what a step size is worth, as gains over ERM on the same seeds; in a picture and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rcad.paper.claims import RANDOM
from rcad.paper.record import LAST, Study
from rcad.paper.report.curves import ALONG, set_scale
from rcad.paper.report.figures import finish
from rcad.paper.report.numbers import gain_over
from rcad.report import drawing
from rcad.report.document import Figure
from rcad.report.drawing import BLACK
from rcad.report.numbers import capital, fixed
from rcad.study.statistics import Paired

BASE, METHOD = "ERM", "RCAD"
EPOCHS = {"": "at the chosen epoch", LAST: "at the last epoch"}
MEASURES: Mapping[str, tuple[str, str, bool, int]] = {
    "accuracy": ("accuracy", "points", True, 1),
    "nll": ("NLL", "nats", False, 2),
}
"""In words: name, unit, whether higher is better, and decimals."""
Gains = dict[float, Paired]


def steps(study: Study) -> dict[str, float]:
    """The step size of each column."""
    x = study.series[0].x if study.series else ()
    return {column: float(alpha) for column, alpha in zip(study.columns, x, strict=False)}


def gains(study: Study, row: str, base: str, metric: str, epoch: str) -> Gains:
    """By step size, where both were run: how much better a row is than another; positive is better."""
    higher = MEASURES[metric][2]
    found = {
        alpha: gain_over(study, row, base, column, epoch + metric, higher=higher)
        for column, alpha in steps(study).items()
    }
    return {alpha: gain for alpha, gain in found.items() if gain is not None}


def picture(study: Study) -> Figure | None:
    """Accuracy above, NLL below; the chosen epoch left, the last right."""
    if not gains(study, METHOD, BASE, "accuracy", ""):
        return None
    figure = drawing.blank(8.4, 5.6)
    axes = figure.subplots(len(MEASURES), len(EPOCHS), sharex=True, sharey="row")
    rows = [row for row in study.rows if row != BASE]
    colours = drawing.colours_of(rows)
    for line, (metric, (name, unit, *_)) in zip(axes, MEASURES.items(), strict=True):
        for ax, (epoch, when) in zip(line, EPOCHS.items(), strict=True):
            for index, row in enumerate(rows):
                _curve(ax, gains(study, row, BASE, metric, epoch), row, colours[row], _same(study, row), index)
            ax.axhline(0, color=BLACK, lw=0.8)
            ax.set_title(f"{name} {when}", fontsize=9, loc="left")
            ax.tick_params(labelsize=8)
            drawing.bare(ax)
        line[0].set_ylabel(f"better than {BASE} by, {unit}", fontsize=9)
    for ax in axes[-1]:
        set_scale(ax, list(steps(study).values()))
        ax.set_xlabel(ALONG["step size"], fontsize=9)
    caption = (
        f"Mean gain over {BASE} on the same seeds and its 95% interval; above the line is better. Dashed: does not "
        "depend on alpha."
    )
    alt = f"{study.title}: gain over {BASE} in accuracy and NLL by alpha for {', '.join(rows)}."
    return finish(
        figure, study, axes[0][0].get_legend_handles_labels()[0], caption, alt, "curves", columns=3, wide=True
    )


def _same(study: Study, row: str) -> bool:
    """Whether a row has the same runs in every column."""
    runs = {tuple(run.id for run in place.runs) for column in study.columns if (place := study.place(row, column))}
    return len(runs) == 1


def _curve(ax: Any, found: Gains, row: str, colour: str, same: bool, index: int) -> None:
    style: dict[str, Any] = {"color": colour, "label": drawing.label(row, 30)}
    means = [one.mean for one in found.values()]
    if same and found:
        ax.axhline(means[0], lw=1.4, ls="--", **style)
    elif found:
        half = [one.high - one.mean for one in found.values()]
        shifted = [alpha * (1 + 0.05 * index) for alpha in found]
        ax.errorbar(shifted, means, yerr=half, fmt="o-", lw=1.5, ms=3.5, capsize=2, **style)


def words(study: Study) -> list[str]:
    """What the curves show: for each pair, epoch and measure, at which step sizes the interval leaves out zero."""
    found = []
    for row, base in ((METHOD, BASE), (METHOD, RANDOM), (RANDOM, BASE)):
        for epoch, when in EPOCHS.items():
            parts = [_said(metric, gains(study, row, base, metric, epoch)) for metric in MEASURES]
            if all(parts):
                found.append(f"{capital(row)} against {base}, {when}: {'; '.join(parts)}.")
    return [*found, "Intervals of 95% on the same seeds, not corrected for their number."] if found else []


def _said(metric: str, found: Gains) -> str:
    """E.g. "accuracy better at alpha 5, 10, worse at none, of 9 step sizes (mean gain from ... to ...)"."""
    if not found:
        return ""
    name, unit, _, digits = MEASURES[metric]
    better = [alpha for alpha, one in found.items() if one.low > 0]
    worse = [alpha for alpha, one in found.items() if one.high < 0]
    least, most = min(found, key=lambda a: found[a].mean), max(found, key=lambda a: found[a].mean)
    ends = [f"{fixed(found[alpha].mean, digits, sign=True)}" for alpha in (least, most)]
    return (
        f"{name} better at {_listed(better)}, worse at {_listed(worse)}, of {len(found)} step sizes "
        f"(mean gain from {ends[0]} {unit} at {least:g} to {ends[1]} at {most:g})"
    )


def _listed(alphas: Sequence[float]) -> str:
    return "alpha " + ", ".join(f"{alpha:g}" for alpha in alphas) if alphas else "none"
