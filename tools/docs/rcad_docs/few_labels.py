"""The tables of README.md and docs/few-labels.md: what each method changes where labels are few, from T4's records."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from rcad.paper.claims import ENTROPY, RANDOM, gain_of
from rcad.paper.record import LAST, Place, Study
from rcad.paper.report.tables import MEASURES, mean_of
from rcad.study.statistics import Paired
from rcad_docs import table
from rcad_docs.evidence import report

ERM, VIEWS, N500, N2000 = "ERM", "two views", "n=500", "n=2,000"
NAMES = {
    "ERM": "ERM",
    "two views": "two views",
    "MixUp": "mixup",
    "ME-ADA": "ME-ADA",
    "LS": "label smoothing",
    "FGSM": "FGSM training",
    "RCAD": "**RCAD**",
    RANDOM: "random direction (control)",
    ENTROPY: "entropy at x (control)",
}


def studies(root: Path) -> dict[str, Study]:
    """T4 with the paper's settings, tuned, tuned among 16 candidates, and tuned with the small CNN."""
    full = [study for study in report(root).records.studies if study.target == "T4" and study.scale == "full"]
    return {_kind(study): study for study in full}


def _kind(study: Study) -> str:
    if study.as_published:
        return "paper"
    return "tuned 16" if "16 candidates" in study.title else "tuned" if "ResNet-18" in study.title else "cnn"


def tuned_place(every: dict[str, Study], row: str, column: str) -> Place | None:
    """A method tuned with ResNet-18: among 16 candidates where it had as many, else among 8."""
    more = every["tuned 16"].place(row, column)
    return more if more is not None and more.runs else every["tuned"].place(row, column)


def gain(place: Place, base: Place, metric: str) -> Paired:
    """By how much better at the last epoch, on the same seeds."""
    paired, why = gain_of(place.by_seed(LAST + metric), base.by_seed(LAST + metric), MEASURES[metric].higher, fewest=2)
    assert paired is not None, why
    return paired


def change_text(place: Place, base: Place, metric: str) -> str:
    """The mean change (a lower NLL is negative) ± half of its 95% confidence interval; bold: significantly better."""
    paired, measure = gain(place, base, metric), MEASURES[metric]
    text = signed(paired.mean if measure.higher else -paired.mean, measure.digits)
    text += f" ± {(paired.high - paired.low) / 2:.{measure.digits}f}"
    return f"**{text}**" if paired.low > 0 else text


def signed(value: float, digits: int) -> str:
    """With a sign, but for a zero."""
    text = f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")
    return text if float(text[1:]) else text[1:]


def mean_text(place: Place, metric: str) -> str:
    mean = mean_of(place.values(LAST + metric))
    assert mean is not None
    return f"{mean.mean:.{MEASURES[metric].digits}f}"


def in_short(root: Path) -> str:
    """README's table: 2,000 images, everything against ERM with the paper's settings."""
    every = studies(root)
    base = every["paper"].places[ERM, N2000]
    rows = []
    for name, kind, row in (
        ("ERM (plain training), the paper's settings", "paper", ERM),
        ("RCAD, the paper's settings", "paper", "RCAD"),
        ("random direction instead (control)", "paper", RANDOM),
        ("ERM, weight decay tuned", "tuned", ERM),
        ("two views, weight decay tuned", "tuned", VIEWS),
    ):
        place, cells = every[kind].places[row, N2000], []
        for metric in MEASURES:
            cells += [mean_text(place, metric), "" if place is base else change_text(place, base, metric)]
        rows.append([name, *cells])
    return table(["2,000 CIFAR-100 images", "accuracy, %", "change", "NLL", "change"], rows, numbers=True)


def tuned(root: Path) -> str:
    """Every method tuned alike, against tuned ERM."""
    every = studies(root)
    columns = {
        "500 images": {row: tuned_place(every, row, N500) for row in NAMES},
        "2,000 images": {row: tuned_place(every, row, N2000) for row in NAMES},
        "500 images, small CNN without BatchNorm": {row: every["cnn"].place(row, N500) for row in NAMES},
    }
    usual = [_cells(every["paper"].places[ERM, column], None) for column in (N500, N2000)]
    return _table(columns, [["ERM, the paper's weight decay", *chain(*usual), "-", "-"]], ", tuned")


def paper_settings(root: Path) -> str:
    """Every method with the paper's hyperparameters, against ERM."""
    study = studies(root)["paper"]
    columns = (N500, "n=1,000", N2000, "n=5,000")
    return _table({f"{column[2:]} images": {row: study.place(row, column) for row in NAMES} for column in columns})


def _table(columns: dict[str, dict[str, Place | None]], rows: Sequence[list[str]] = (), of_erm: str = "") -> str:
    """After `rows`, ERM's own numbers, then the changes; `of_erm` is added to its name."""
    header = ["", *(f"{name}: {measure.name}" for name in columns for measure in MEASURES.values())]
    rows = [*rows]
    for row, name in NAMES.items():
        cells = [*chain(*(_cells(places[row], places[ERM]) for places in columns.values()))]
        if {*cells} != {"-"}:
            rows.append([name + (of_erm if row == ERM else ""), *cells])
    return table(header, rows, numbers=True)


def _cells(place: Place | None, base: Place | None) -> list[str]:
    if place is None or not place.runs:
        return ["-", "-"]
    if base is None or place is base:
        return [mean_text(place, metric) + ("%" if metric == "accuracy" else "") for metric in MEASURES]
    return [change_text(place, base, metric) for metric in MEASURES]
