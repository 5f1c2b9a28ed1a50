"""What each measure is worth where labels are few: gains over ERM on subsets of CIFAR-100, at the last epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rcad.paper.claims import gain_of
from rcad.paper.record import LAST, Place, Study
from rcad.paper.report.numbers import interval_text, mean_of, reference, with_half
from rcad.report import drawing
from rcad.report.document import Cell, Figure, Part, Section, Table
from rcad.report.drawing import BLUE, GREY
from rcad.study.statistics import Paired

TITLE = "What to do with few labels"
TARGET, FEW = "T4", ("n=500", "n=1,000", "n=2,000")
METRICS: Mapping[str, tuple[bool, int]] = {"accuracy": (True, 2), "nll": (False, 3)}
"""Whether higher is better, and the decimals shown."""
ERM = "ERM"
DECAY = "weight decay: tuned ERM against the paper's"
PAPER = "paper's setting"
CHANCE, GUESSING = 1.5, 4.605
"""Percent of accuracy below which a model of 100 classes knows nothing; nats of who guesses all alike."""


@dataclass(frozen=True)
class Gain:
    """A row against a base on the same seeds; positive is better."""

    setting: str
    column: str
    row: str
    place: Place
    gains: Mapping[str, Paired | None]

    @property
    def group(self) -> str:
        return f"{self.column}, {self.setting}"

    @property
    def name(self) -> str:
        """The measure, and whether its model is no better than guessing."""
        accuracy = mean_of(self.place.values(f"{LAST}accuracy"))
        return self.row + (" (no better than guessing)" if accuracy is not None and accuracy.value < CHANCE else "")


def section(studies: Sequence[Study]) -> Section | None:
    """The chapter; None without a full record of T4."""
    found = gains(studies)
    if not found:
        return None
    text = (
        "Subsets of CIFAR-100. How much better than ERM each method is at the last epoch, where no epoch is selected: "
        "points of test accuracy and nats of test NLL, paired by seed, with 95% intervals that are not corrected for "
        "their number. In the paper's setting every method has the paper's weight decay and parameters; tuned, all "
        "methods, ERM too, had the same number of candidates for both, chosen by held-out images."
    )
    guessing = (
        f"Equal probabilities for all 100 classes have an NLL of {GUESSING:.3f} nats. A higher NLL means an "
        "overconfident model: a large gain in nats may only be less overconfidence."
    )
    shown = [one for one in found if any(one.gains.values())]
    parts: list[Part] = [*([figure(shown)] if shown else []), table(found)]
    return Section(TITLE, [*best(found), text, guessing], parts, short="few labels")


def best(found: Sequence[Gain]) -> list[str]:
    """For each number of images and setting, the measures that gain most, where their intervals leave out zero."""
    told = []
    for group in dict.fromkeys(one.group for one in found):
        parts = []
        for metric, (name, unit) in {"accuracy": ("accuracy", "points"), "nll": ("NLL", "nats")}.items():
            sure = [
                (gain.mean, one.row)
                for one in found
                if one.group == group and one.row not in (ERM, DECAY) and one.name == one.row
                if (gain := one.gains[metric]) is not None and gain.low > 0
            ]
            digits = METRICS[metric][1]
            mean, row = max(sure, default=(0.0, ""))
            parts.append(f"{name}: {row} (+{mean:.{digits}f} {unit})" if row else f"{name}: nothing shown to be better")
        told.append(f"{group}: best by {'; by '.join(parts)}.")
    return told


def gains(studies: Sequence[Study]) -> list[Gain]:
    """ERM and every other row of each small column against it; then what tuning the weight decay gave ERM."""
    some = [study for study in studies if study.target == TARGET and study.scale == "full"]
    found = []
    for study in some:
        base = reference(study)
        for column in (one for one in FEW if base is not None and one in study.columns_run):
            erm = study.places[str(base), column]
            rows = [place for row in study.rows if (place := study.place(row, column)) and place.runs]
            found += [_gain(study, column, place.row, place, erm) for place in rows]
    pairs = [(tuned, other) for tuned in some for other in some if tuned.tuned and other.as_published]
    for tuned, other in pairs:
        for column in FEW if _network(tuned) == _network(other) else ():
            place, plain = tuned.place("ERM", column), other.place("ERM", column)
            if place and place.runs and plain and plain.runs:
                found.append(_gain(tuned, column, DECAY, place, plain))
    return found


def table(found: Sequence[Gain]) -> Table:
    rows: list[list[str | Cell]] = []
    for one in found:
        cells = [with_half(mean_of(one.place.values(LAST + metric)), digits) for metric, (_, digits) in METRICS.items()]
        marked = [_cell(one.gains[metric], digits) for metric, (_, digits) in METRICS.items()]
        rows.append([one.column, one.setting, one.name, cells[0], marked[0], cells[1], marked[1]])
    header = ["images", "setting", "method", "accuracy, %", "better by, points", "NLL, nats", "better by, nats"]
    return Table(header, rows, "Last epoch; positive is better than ERM of the same setting.")


def figure(found: Sequence[Gain]) -> Figure:
    """Points to the left, nats to the right; one pair of panels for each number of images and setting."""
    groups = list(dict.fromkeys(one.group for one in found))
    heights = [sum(one.group == group for one in found) for group in groups]
    drawn = drawing.blank(8.4, 0.24 * sum(heights) + 0.7 * len(groups) + 0.4)
    axes = drawn.subplots(len(groups), 2, squeeze=False, height_ratios=heights)
    for pair, group in zip(axes, groups, strict=True):
        rows = [one for one in found if one.group == group]
        for ax, metric in zip(pair, METRICS, strict=True):
            _panel(ax, rows, metric)
        pair[0].set_title(group, fontsize=9, loc="left")
        pair[0].set_yticks(range(len(rows)), [drawing.label(one.name, 30, 1) for one in rows], fontsize=8)
        pair[1].set_yticks(range(len(rows)), [""] * len(rows))
    axes[-1][0].set_xlabel("accuracy: points better than ERM", fontsize=9)
    axes[-1][1].set_xlabel("NLL: nats better than ERM", fontsize=9)
    return Figure(
        drawn,
        "Mean gain over ERM on the same seeds and its 95% interval, last epoch; right of the line is better. Blue: the "
        "interval leaves out zero, on either side.",
        "Gains over ERM by number of images, setting and measure; the numbers are in the table below.",
        wide=True,
        name="few-labels",
    )


def _panel(ax: Any, rows: Sequence[Gain], metric: str) -> None:
    for y, one in enumerate(rows):
        gain = one.gains[metric]
        if gain is not None:
            colour = GREY if gain.low <= 0 <= gain.high else BLUE
            ax.plot([gain.low, gain.high], [y, y], color=colour, lw=1.6)
            ax.plot([gain.mean], [y], marker="o", color=colour, ms=4)
    ax.axvline(0, color=GREY, lw=0.8)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.tick_params(labelsize=8)
    drawing.bare(ax)


def _gain(study: Study, column: str, row: str, place: Place, base: Place) -> Gain:
    compared = {
        metric: None
        if place is base
        else gain_of(place.by_seed(LAST + metric), base.by_seed(LAST + metric), higher, fewest=2)[0]
        for metric, (higher, _) in METRICS.items()
    }
    kind = "every method tuned" if study.tuned else PAPER
    return Gain(f"{_network(study)}, {kind}", column, row, place, compared)


def _network(study: Study) -> str:
    """As the title has it: "Low data: subsets of CIFAR-100, ResNet-18"."""
    return study.title.removesuffix(", every method tuned").rpartition(", ")[2]


def _cell(gain: Paired | None, digits: int) -> str | Cell:
    if gain is None:
        return "-"
    text = interval_text({"mean": gain.mean, "low": gain.low, "high": gain.high}, digits)
    return Cell(text, mark="" if gain.low <= 0 <= gain.high else "good" if gain.low > 0 else "bad")
