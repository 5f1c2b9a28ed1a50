"""The tables of README.md and docs/few-labels.md: what each method changes where labels are few (T4, F3)."""

from __future__ import annotations

from pathlib import Path

from rcad.paper.claims import ENTROPY, RANDOM
from rcad.paper.record import LAST, Place, Study
from rcad.paper.report.few_labels import CHANCE, change, last_gain, mean_text
from rcad.paper.report.few_labels import in_short as short_table
from rcad.paper.report.tables import MEASURES, mean_of
from rcad.report import markdown
from rcad.study.statistics import Paired
from rcad_docs import table
from rcad_docs.evidence import report

KINDS = {
    "T4": "paper",
    "T4, tuned": "tuned",
    "T4, tuned, 16 candidates": "tuned 16",
    "T4, tuned, small CNN": "cnn",
    "T4, tuned, small CNN, 16 candidates": "cnn 16",
    "F3": "gains",
}
ERM, VIEWS, N500, N2000 = "ERM", "two views", "n=500", "n=2,000"
NAMES = {
    "ERM": "ERM",
    "ERM, no augmentation": "ERM without crop and flip",
    "two views": "two views",
    "MixUp": "mixup",
    "ME-ADA": "ME-ADA",
    "LS": "label smoothing",
    "FGSM": "FGSM training",
    "RCAD": "**RCAD**",
    "RCAD + LS": "RCAD with label smoothing",
    RANDOM: "random direction (control)",
    ENTROPY: "entropy at x (control)",
}
TUNED = {
    "500 images (8)": (N500, "tuned"),
    "2,000 images (16 or 8)": (N2000, "tuned 16", "tuned"),
    "500, small CNN (8)": (N500, "cnn"),
    "500, small CNN (16)": (N500, "cnn 16"),
    "2,000, small CNN (8)": (N2000, "cnn"),
}
"""Columns of the table of tuned methods: the images, and the studies, of which the first that has a method counts."""


def studies(root: Path) -> dict[str, Study]:
    """T4 with the paper's settings, and tuned among 8 and 16 candidates with ResNet-18 and the small CNN; and F3."""
    full = [study for study in report(root).records.studies if study.scale == "full"]
    return {KINDS[study.short_title]: study for study in full if study.short_title in KINDS}


def first_place(every: dict[str, Study], row: str, column: str, *kinds: str) -> Place | None:
    """A method's runs in the first of these studies that has any."""
    places = (every[kind].place(row, column) for kind in kinds)
    return next((place for place in places if place is not None and place.runs), None)


def gain(place: Place, base: Place, metric: str) -> Paired:
    """By how much better at the last epoch, on the same seeds."""
    paired = last_gain(place, base, metric)
    assert paired is not None, (place.row, place.column)
    return paired


def change_text(place: Place, base: Place, metric: str) -> str:
    """As the report has it: the mean change ± half of its 95% confidence interval; bold: significantly better."""
    return markdown.cell_text(change(place, base, metric))


def in_short(root: Path) -> str:
    """README's table: 2,000 images, everything against ERM with the paper's settings; the report's first table."""
    found = short_table(report(root).records.studies)
    assert found is not None
    return table(found.header, [[*map(markdown.cell_text, row)] for row in found.cells], numbers=True)


def tuned(root: Path) -> str:
    """Every method tuned alike, against tuned ERM."""
    every = studies(root)
    columns = {name: {row: first_place(every, row, *where) for row in NAMES} for name, where in TUNED.items()}
    usual = [every["paper"].places[ERM, column] for column in (N500, N2000)]
    return _tables(columns, {"ERM, the paper's weight decay": [*usual, None, None, None]}, ", tuned")


def paper_settings(root: Path) -> str:
    """Every method with the paper's hyperparameters, against ERM."""
    every = studies(root)
    return _tables(
        {
            f"{column[2:]} images": {
                row: every["paper" if row in every["paper"].rows else "gains"].place(row, column) for row in NAMES
            }
            for column in (N500, "n=1,000", N2000, "n=5,000", "n=10,000")
        }
    )


def _tables(
    columns: dict[str, dict[str, Place | None]], first: dict[str, list[Place | None]] | None = None, of_erm: str = ""
) -> str:
    """One table a metric: the numbers of `first` and of ERM, then the changes; `of_erm` is added to ERM's name."""
    tables = []
    for metric, measure in MEASURES.items():
        rows = [[name, *(_cell(place, None, metric) for place in places)] for name, places in (first or {}).items()]
        for row, name in NAMES.items():
            cells = [_cell(places[row], places[ERM], metric) for places in columns.values()]
            if {*cells} != {"-"}:
                rows.append([name + (of_erm if row == ERM else ""), *cells])
        tables.append(table([f"**{measure.name}**", *columns], rows, numbers=True))
    return "\n\n".join(tables)


def _cell(place: Place | None, base: Place | None, metric: str) -> str:
    if place is None or not place.runs:
        return "-"
    if base is None or place is base:
        return mean_text(place, metric) + ("%" if metric == "accuracy" else "")
    text = change_text(place, base, metric)
    return f"{text.strip('*')} (guesses)" if mean_of(place.values(f"{LAST}accuracy")).mean < CHANCE else text
