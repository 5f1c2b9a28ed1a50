"""The tables of a study: ours beside the published numbers, claims, every run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from rcad.paper.report.numbers import (
    as_printed,
    beside_published,
    capital,
    digits,
    fixed,
    gain_text,
    p_text,
    place_mean,
    reference,
    with_half,
)
from rcad.paper.report.study import Claim, Place, Study
from rcad.report.document import Cell, Table
from rcad.study.statistics import AgainstPublished

MARKS = {"reproduced": "good", "not reproduced": "bad", "opposite": "bad", "undecided": "open"}
WORDS = {
    "accuracy": "accuracy, %",
    "nll": "NLL, nats",
    "brier": "Brier",
    "ece": "ECE",
    "rmse": "RMSE",
    "last_accuracy": "last epoch: accuracy, %",
    "last_nll": "last epoch: NLL",
    "last_rmse": "last epoch: RMSE",
}


@dataclass(frozen=True)
class Links:
    """Where numbers come from, as addresses relative to the page.

    Args:
        folder: that of the page.
        run_files: run records by id.
    """

    folder: Path
    run_files: Mapping[str, Path]

    def to(self, path: Path) -> str:
        """A file's address; quoted, so that no name can be read as another kind of address."""
        return quote(os.path.relpath(path.resolve(), self.folder.resolve()).replace(os.sep, "/"), safe="/")

    def run(self, name: str) -> str:
        return self.to(self.run_files[name]) if name in self.run_files else ""


def grid(study: Study) -> Table:
    """Methods by data: our mean and interval, the published number below it."""
    places = digits(study.unit)
    rows = []
    for row in study.rows:
        found = [study.places.get((row, column)) for column in study.columns]
        if not any(found):
            continue
        cells = ["" if place is None else _grid_cell(study, place, places) for place in found]
        rows.append([_name(study, row), *cells])
    unit = f"{capital(study.label)}: mean ± half the 95% interval, the paper's number below. "
    way = "Higher is better." if study.higher_is_better else "Lower is better."
    controls = " Controls are in italics." if study.controls else ""
    return Table(["method", *study.columns], rows, unit + way + controls)


def _grid_cell(study: Study, place: Place, places: int) -> Cell:
    lost = place.diverged
    notes = [f"paper {as_printed(place.published, study.unit)}"] if place.published is not None else []
    if lost:
        notes.append(f"{lost} of {len(place.runs)} diverged")
    mean = place_mean(study, place)
    if mean is not None and mean.n == 1:
        notes.append("one seed")
    text = with_half(mean, places) if place.runs else "not run"
    return Cell(text, "; ".join(notes), f"#{anchor(study, place)}" if place.runs else "", "" if mean else "none")


def _name(study: Study, row: str) -> Cell:
    return Cell(row, "control" if row in study.controls else "", mark="aside" if row in study.controls else "")


def side_by_side(study: Study) -> Table:
    """One line for each method on each data set: published, ours, the difference, every other metric, the cost."""
    others = _metrics(study)
    places, base = digits(study.unit), reference(study)
    rows: list[list[str | Cell]] = []
    for place in _ordered(study):
        mean = place_mean(study, place)
        beside = beside_published(study, place)
        rows.append(
            [
                place.column,
                _name(study, place.row),
                as_printed(place.published, study.unit),
                Cell(with_half(mean, places), href=f"#{anchor(study, place)}" if place.runs else ""),
                str(mean.n if mean else 0),
                _gap(beside, places),
                p_text(beside.test.p_two if beside and beside.test else None),
                *(
                    with_half(place_mean(study, place, metric), 1 if metric.endswith("accuracy") else 3)
                    for metric in others
                ),
                *_cost(study, place, base),
            ]
        )
    header = [
        "data",
        "method",
        f"published, {study.unit}" if study.unit else "published",
        "ours ± 95%",
        "n",
        "ours \N{MINUS SIGN} published",
        "p, two-sided",
        *(WORDS.get(metric, metric) for metric in others),
        "seconds a run",
        "times ERM",
    ]
    text = (
        f"{capital(study.label)} beside the published number, and what else was measured. A link leads to the runs "
        "behind a number. A mean leaves out runs that diverged. The p-value asks whether our number is the published "
        "one (Welch, ± read as a 95% interval; without ± the published number is taken as exact)."
    )
    # What no record of the study tells has no column.
    kept = [k for k in range(len(header)) if header[k] == "n" or any(_text(row[k]) not in ("-", "") for row in rows)]
    return Table([header[k] for k in kept], [[row[k] for k in kept] for row in rows], text)


def _text(cell: str | Cell) -> str:
    return cell if isinstance(cell, str) else cell.text


def _gap(beside: AgainstPublished | None, places: int) -> str:
    if beside is None:
        return "-"
    text = fixed(beside.difference, places, sign=True)
    if beside.test is None:
        return text
    return f"{text} [{fixed(beside.test.low, places)}, {fixed(beside.test.high, places)}]"


def _metrics(study: Study) -> list[str]:
    shown = {study.metric_of(column) for column in study.columns}
    runs = [run for place in study.places.values() for run in place.runs]
    found = dict.fromkeys(n for run in runs for n, value in run.metrics.items() if n not in shown and value is not None)
    known = [name for name in WORDS if name in found]
    others = [name for name in found if name not in known and not name.startswith("last_")]
    return [*known, *others][:6]


def _ordered(study: Study) -> list[Place]:
    keys = [(row, column) for column in study.columns for row in study.rows]
    return [study.places[key] for key in keys if key in study.places]


def _cost(study: Study, place: Place, base: str | None) -> list[str]:
    mine = _seconds(place)
    other = study.places.get((base, place.column)) if base else None
    theirs = _seconds(other) if other is not None else None
    ratio = mine / theirs if mine is not None and theirs else None
    return [fixed(mine, 1), fixed(ratio, 2)]


def _seconds(place: Place) -> float | None:
    found = [run.seconds for run in place.runs if run.seconds is not None]
    return sum(found) / len(found) if found else None


def claim_table(
    claims: Sequence[tuple[Study, Claim]], caption: str, homes: Mapping[str, str], choose: str = ""
) -> Table:
    """Claims with the published difference, ours and the verdict.

    Args:
        claims: each with its study.
        caption: of the table.
        homes: the chapter of each study by its title; with them the table says where a claim is from.
        choose: the column to choose by.
    """
    rows: list[list[str | Cell]] = []
    for study, claim in claims:
        places = digits(study.unit)
        first: list[str | Cell] = []
        if homes:
            first = [Cell(study.target, "" if study.scale == "full" else study.scale, f"#{homes[study.title]}")]
        rows.append(
            [
                *first,
                Cell(claim.verdict, mark=MARKS.get(claim.verdict, "none")),
                claim.where,
                Cell(claim.statement, "; ".join(note for note in (claim.note, _whose(study, claim)) if note)),
                fixed(claim.published, places, sign=True),
                Cell(gain_text(claim, places), mark="none" if claim.gain is None and not claim.ours else ""),
                str(int(claim.gain["df"]) + 1) if claim.gain and "df" in claim.gain else "-",
                *(p_text(p if claim.gain is not None else None) for p in (claim.p, claim.p_reverse)),
            ]
        )
    header = ["verdict", "where", "claim", "published", "ours [95%]", "n", "p, Holm", "p of the reverse"]
    return Table([*(["from"] if homes else []), *header], rows, caption, choose)


def _whose(study: Study, claim: Claim) -> str:
    """Said of what the paper does not claim itself."""
    if not study.added(claim):
        return ""
    return "our check" if claim.published is None else "our check; published: RCAD's gain over ERM"


def run_table(study: Study, links: Links) -> Table:
    """Every run, folded away: what each number on the page is made of."""
    others = _metrics(study)
    rows: list[list[str | Cell]] = []
    for place in _ordered(study):
        names = [study.metric_of(place.column), *others]
        for index, run in enumerate(place.runs):
            href = links.run(run.id) if run.id else links.to(study.path)
            values = [run.metrics.get(name) for name in names]
            rows.append(
                [
                    Cell(place.column, anchor=anchor(study, place) if index == 0 else ""),
                    place.row,
                    str(run.seed),
                    *("diverged" if value is None and run.diverged else fixed(value, 4) for value in values),
                    fixed(run.seconds, 1),
                    Cell(run.id or study.path.name, href=href),
                ]
            )
    header = ["data", "method", "seed", study.label, *(WORDS.get(name, name) for name in others), "seconds", "record"]
    return Table(header, rows, f"From {study.path.name}.", folded=f"Every run ({len(rows):,})")


def anchor(study: Study, place: Place) -> str:
    """The name of a cell's runs in the page."""
    name = "-".join((study.path.parent.name, study.path.stem, study.target))
    row, column = list(study.rows).index(place.row), list(study.columns).index(place.column)
    return re.sub(r"[^a-z0-9]+", "-", name.casefold()) + f"-r{row}c{column}"
