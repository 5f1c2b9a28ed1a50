"""How much each method gains over ERM where labels are few: on subsets of CIFAR-100, at the last epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from rcad.paper.claims import RANDOM, gain_of
from rcad.paper.record import EVERY_METHOD, LAST, Place, Study
from rcad.paper.report.tables import MEASURES, about, caption, interval_text, mean_of, reference, with_half
from rcad.report import drawing
from rcad.report.document import Cell, Figure, Part, Section, Table
from rcad.report.drawing import BLUE, GREY, VERMILION
from rcad.report.numbers import fixed
from rcad.study.statistics import Paired

TITLE = "What to do with few labels"
TARGET, FEW = "T4", ("n=500", "n=1,000", "n=2,000")
ERM = "ERM"
DECAY = "tuned ERM against the paper's weight decay"
PAPER = "paper's setting"
SHORT = {
    "ERM (plain training), the paper's settings": ("T4", "ERM"),
    "RCAD, the paper's settings": ("T4", "RCAD"),
    "random direction instead (control)": ("T4", RANDOM),
    "ERM, weight decay tuned": ("T4, tuned", "ERM"),
    "RCAD, tuned alike": ("T4, tuned, 16 candidates", "RCAD"),
    "two views, weight decay tuned": ("T4, tuned", "two views"),
}
"""Rows of the short table: the study, and its row."""
CHANCE, GUESSING = 1.5, 4.605
"""Accuracy in percent below which a model of 100 classes only guesses; the NLL of equal probabilities in nats."""


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
        return self.row + (" (no better than guessing)" if accuracy is not None and accuracy.mean < CHANCE else "")


def section(studies: Sequence[Study]) -> Section | None:
    """The chapter; None without a full record of T4."""
    rows = gains(studies)
    if not rows:
        return None
    drawn = [row for row in rows if any(row.gains.values())]
    parts: list[Part] = [*([figure(drawn)] if drawn else []), table(rows)]
    words = [*best(rows), caption("few_labels"), caption("guessing", nll=GUESSING)]
    return Section(TITLE, words, parts, short="few labels")


def in_short(studies: Sequence[Study]) -> Table | None:
    """RCAD, its control, weight decay and two views on 2,000 images; None where one of them was not run there."""
    kinds = {study.short_title: study for study in studies if study.scale == "full"}
    cells = {name: kinds[kind].place(row, FEW[-1]) for name, (kind, row) in SHORT.items() if kind in kinds}
    places = {name: place for name, place in cells.items() if place is not None and place.runs}
    if len(places) < len(SHORT):
        return None
    base = next(iter(places.values()))
    body: list[list[str | Cell]] = [[name] for name in places]
    for row, place in zip(body, places.values(), strict=True):
        for metric in MEASURES:
            row += [mean_text(place, metric), change(place, base, metric)]
    return Table(["2,000 CIFAR-100 images", "accuracy, %", "change", "NLL", "change"], body, caption("in_short"))


def change(place: Place, base: Place, metric: str) -> Cell:
    """Mean change at the last epoch (a lower NLL is negative) ± half of its 95% interval; marked: a gain."""
    gain, measure = last_gain(place, base, metric), MEASURES[metric]
    if gain is None:
        return Cell("" if place is base else "-")
    mean = signed(gain.mean if measure.higher else -gain.mean, measure.digits)
    return Cell(f"{mean} ± {gain.half:.{measure.digits}f}", mark="good" if gain.low > 0 else "")


def last_gain(place: Place, base: Place, metric: str) -> Paired | None:
    """How much better a cell is than another at the last epoch, on the same seeds; None where that is not known."""
    ours, theirs = (cell.by_seed(LAST + metric) for cell in (place, base))
    return None if place is base else gain_of(ours, theirs, MEASURES[metric].higher, fewest=2)[0]


def mean_text(place: Place, metric: str) -> str:
    """The mean at the last epoch."""
    mean = mean_of(place.values(LAST + metric))
    return "-" if mean is None else f"{mean.mean:.{MEASURES[metric].digits}f}"


def signed(value: float, digits: int) -> str:
    """With a sign, but for a zero."""
    return fixed(value, digits, sign=round(value, digits) != 0)


def best(rows: Sequence[Gain]) -> list[str]:
    """For each number of images and setting, the methods that gain most, where their intervals leave out zero."""
    lines = []
    for group in dict.fromkeys(row.group for row in rows):
        parts = []
        for metric, (name, unit, _, digits) in MEASURES.items():
            sure = [
                (gain.mean, row.row)
                for row in rows
                if row.group == group and row.row not in (ERM, DECAY) and row.name == row.row
                if (gain := row.gains[metric]) is not None and gain.low > 0
            ]
            mean, method = max(sure, default=(0.0, ""))
            parts.append(
                f"{name}: {f'{method} (+{mean:.{digits + 1}f} {unit})' if method else 'nothing shown to be better'}"
            )
        lines.append(f"{group}: best by {'; by '.join(parts)}.")
    return lines


def gains(studies: Sequence[Study]) -> list[Gain]:
    """ERM and every other row of each small column against it; then what tuning the weight decay gave ERM."""
    full = [study for study in studies if study.target == TARGET and study.scale == "full"]
    rows = []
    for study in full:
        base = reference(study)
        for column in (column for column in FEW if base is not None and column in study.columns_run):
            erm = study.places[str(base), column]
            places = [place for row in study.rows if (place := study.place(row, column)) and place.runs]
            rows += [_gain(study, column, place.row, place, erm) for place in places]
    for tuned, other in product(full, full):
        comparable = tuned.tuned and other.as_published and _network(tuned) == _network(other)
        for column in FEW if comparable else ():
            place, plain = tuned.place("ERM", column), other.place("ERM", column)
            if place and place.runs and plain and plain.runs:
                rows.append(_gain(tuned, column, DECAY, place, plain))
    return rows


def table(rows: Sequence[Gain]) -> Table:
    """Accuracy and NLL of every method, each with its gain over ERM."""
    body: list[list[str | Cell]] = []
    for row in rows:
        cells: list[str | Cell] = []
        for metric, measure in MEASURES.items():
            mean, digits = mean_of(row.place.values(LAST + metric)), measure.digits + 1
            cells += [with_half(mean, digits), _cell(row.gains[metric], digits)]
        body.append([row.column, row.setting, row.name, *cells])
    header = ["images", "setting", "method", "accuracy, %", "better by, points", "NLL, nats", "better by, nats"]
    return Table(header, body, "Last epoch; positive is better than ERM of the same setting.")


def figure(rows: Sequence[Gain]) -> Figure:
    """Points to the left, nats to the right; one pair of panels for each number of images and setting."""
    groups: dict[str, list[Gain]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    heights = [len(group) for group in groups.values()]
    height = 0.24 * sum(heights) + 0.9 * len(groups) + 0.2
    drawn, axes = drawing.grid(8.4, height, len(groups), 2, height_ratios=heights)
    for pair, (name, group) in zip(axes, groups.items(), strict=True):
        for ax, (metric, measure) in zip(pair, MEASURES.items(), strict=True):
            for y, gain in enumerate(row.gains[metric] for row in group):
                if gain is not None:
                    colour = BLUE if gain.low > 0 else VERMILION if gain.high < 0 else GREY
                    ax.plot([gain.low, gain.high], [y, y], color=colour, lw=1.6)
                    ax.plot([gain.mean], [y], marker="o", color=colour, ms=4)
            ax.axvline(0, color=GREY, lw=0.8)
            ax.set_ylim(len(group) - 0.5, -0.5)
            ax.set_xlabel(f"{measure.name}: {measure.unit} better than ERM", fontsize=8)
        pair[0].set_title(name, fontsize=9, loc="left")
        names = [drawing.label(row.name.replace("LS", "label smoothing", 1)) for row in group]
        pair[0].set_yticks(range(len(group)), names, fontsize=8)
        pair[1].set_yticks(range(len(group)), [""] * len(group))
    return drawing.finish(drawn, [], *about("few-labels"), "few-labels", wide=True)


def _gain(study: Study, column: str, row: str, place: Place, base: Place) -> Gain:
    _, tuned, more = study.title.partition(EVERY_METHOD)
    compared = {metric: last_gain(place, base, metric) for metric in MEASURES}
    return Gain(f"{_network(study)}, {tuned + more or PAPER}", column, row, place, compared)


def _network(study: Study) -> str:
    """As the title has it: "Low data: subsets of CIFAR-100, ResNet-18"."""
    return study.title.partition(f", {EVERY_METHOD}")[0].rpartition(", ")[2]


def _cell(gain: Paired | None, digits: int) -> str | Cell:
    if gain is None:
        return "-"
    text = interval_text(gain.mean, gain.low, gain.high, digits)
    return Cell(text, mark="" if gain.low <= 0 <= gain.high else "good" if gain.low > 0 else "bad")
