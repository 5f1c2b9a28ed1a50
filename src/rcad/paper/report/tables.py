"""The numbers of a study and its tables: ours beside the published ones, claims, every measure, every run."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from rcad.paper.claims import NOT_RUN, Claim, by_verdict, gain_of
from rcad.paper.record import LAST, MEASURED, METRICS, Place, Study
from rcad.paper.targets import Printed
from rcad.report.document import Cell, Table
from rcad.report.numbers import capital, fixed, p_value
from rcad.study.judge import Difference, compare_groups, judge_questions
from rcad.study.statistics import AgainstPublished, Paired, Summary, against_published, averages, describe

WORDS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


def caption(name: str, **fields: Any) -> str:
    """A caption or paragraph of words.toml."""
    return str(WORDS["tables"][name].format(**fields))


def about(name: str, **fields: Any) -> tuple[str, str]:
    """The caption of a picture of words.toml, and its text for who cannot see it."""
    words = WORDS["pictures"][name]
    return words["caption"].format(**fields), words["alt"].format(**fields)


class Measure(NamedTuple):
    """A metric in words: its name and the unit of a gain; whether higher is better; decimals."""

    name: str
    unit: str
    higher: bool
    digits: int


MEASURES = {"accuracy": Measure("accuracy", "points", True, 1), "nll": Measure("NLL", "nats", False, 2)}


def mean_of(values: Sequence[float], overlap: float = 0.0) -> Summary | None:
    """The mean with its 95% interval, which splits that overlap widen (Nadeau and Bengio); None without values."""
    return describe(values, test_ratio=overlap) if values else None


def place_mean(study: Study, place: Place, metric: str | None = None) -> Summary | None:
    """The mean of a cell's runs; `metric` is the column's own where it is None."""
    return mean_of(place.values(metric or study.metric_of(place.column)), study.overlap.get(place.column, 0.0))


def gain_over(
    study: Study, row: str, base: str, column: str, metric: str | None = None, *, higher: bool | None = None
) -> Paired | None:
    """How much better a row is than another on the same seeds; None where a run diverged or fewer than two pair.

    metric, higher: None for the column's own, and for what the study says is better.
    """
    name = metric or study.metric_of(column)
    ours, theirs = (place.by_seed(name) if (place := study.place(side, column)) else {} for side in (row, base))
    better = study.higher_is_better if higher is None else higher
    return gain_of(ours, theirs, better, study.overlap.get(column, 0.0), fewest=2)[0]


def printed_gain(study: Study, row: str, base: str, column: str) -> float | None:
    """The same difference as printed."""
    ours, theirs = (place.published if (place := study.place(name, column)) else None for name in (row, base))
    if ours is None or theirs is None:
        return None
    return (ours.mean - theirs.mean) * (1 if study.higher_is_better else -1)


def reference(study: Study) -> str | None:
    """The row that others are compared with; F1 calls ERM on augmented images DA."""
    return next((row for name in ("erm", "da") for row in study.rows if row.casefold() == name), None)


def gain_unit(study: Study) -> str:
    """The unit of a difference: percents differ by points."""
    return "points" if study.unit == "%" else study.unit


def better_by(base: str, unit: str) -> str:
    """The name of an axis of gains over a row."""
    return f"better than {base} by, {unit}" if unit else f"better than {base} by"


def beside_published(study: Study, place: Place) -> AgainstPublished | None:
    """Our mean against the printed one; no test where a run diverged or splits overlap."""
    values, printed = place.values(study.metric_of(place.column)), place.published
    if printed is None or not values:
        return None
    n = printed.n if printed.n and printed.n > 1 else None
    gap = against_published(values, printed.mean, printed.half, n=n)
    return replace(gap, test=None) if place.diverged or place.column in study.overlap else gap


def digits(study: Study) -> int:
    """Decimals: tenths of a percent, thousandths of all else."""
    return 1 if study.unit == "%" else 3


def with_half(mean: Summary | None, places: int) -> str:
    """A mean ± half its interval."""
    if mean is None:
        return "-"
    return fixed(mean.mean, places) + ("" if mean.half is None else f" ± {mean.half:.{places}f}")


def as_printed(published: Printed | None, unit: str) -> str:
    """As the paper has it: tenths of a percent and hundredths of all else, or more where it gives more."""
    if published is None:
        return "-"
    places = 1 if unit == "%" else 2
    exact = round(published.mean, places) == published.mean
    mean = f"{published.mean:.{places}f}" if exact else f"{published.mean:g}"
    return mean + ("" if published.half is None else f" ± {published.half:.2f}")


def interval_text(mean: float, low: float, high: float, places: int) -> str:
    """A difference with its interval."""
    return f"{fixed(mean, places, sign=True)} [{fixed(low, places)}, {fixed(high, places)}]"


def gain_text(claim: Claim | None, places: int) -> str:
    """Our difference, positive for the claim, with its interval."""
    if claim is None or claim.gain is None:
        return (claim and claim.ours) or "no test"
    return interval_text(claim.gain["mean"], claim.gain["low"], claim.gain["high"], places)


def tally(claims: Sequence[Claim]) -> str:
    """How many got each verdict, in words."""
    return by_verdict([claim.verdict for claim in claims if claim.verdict != NOT_RUN]) or "no claims"


MARKS = {"reproduced": "good", "not reproduced": "bad", "opposite": "bad", "undecided": "open"}


@dataclass(frozen=True)
class Links:
    """The files that numbers come from, as addresses relative to the page's folder; run records by id."""

    folder: Path
    run_files: Mapping[str, Path]

    def to(self, path: Path | None) -> str:
        """A file's address; quoted, so that no name can be read as another kind of address."""
        if path is None:
            return ""
        return quote(os.path.relpath(path.resolve(), self.folder.resolve()).replace(os.sep, "/"), safe="/")

    def run(self, name: str) -> str:
        return self.to(self.run_files.get(name))


def grid(study: Study) -> Table:
    """Methods by data: our mean and interval, the published number below it. Columns that were not run are left out."""
    columns = study.columns_run
    rows = []
    for row in study.rows:
        places = [study.place(row, column) for column in columns]
        if any(places):
            rows.append([_name(study, row), *("" if place is None else _grid_cell(study, place) for place in places)])
    unit = f"{capital(study.label)}: mean ± half the 95% interval, the paper's number below. "
    way = "Higher is better." if study.higher_is_better else "Lower is better."
    controls = " Controls are in italics." if study.controls else ""
    return Table(["method", *columns], rows, unit + way + controls)


def _grid_cell(study: Study, place: Place) -> Cell:
    notes = [f"paper {as_printed(place.published, study.unit)}"] if place.published is not None else []
    if place.diverged:
        notes.append(f"{place.diverged} of {len(place.runs)} diverged")
    mean = place_mean(study, place)
    if mean is not None and mean.n == 1:
        notes.append("one seed")
    text = with_half(mean, digits(study)) if place.runs else "not run"
    return Cell(text, "; ".join(notes), f"#{anchor(study, place)}" if place.runs else "", "" if mean else "none")


def _name(study: Study, row: str) -> Cell:
    return Cell(row, "control" if row in study.controls else "", mark="aside" if row in study.controls else "")


def side_by_side(study: Study) -> Table:
    """One line for each method on each data set: published, ours, the difference, every other metric, the cost."""
    metrics, places, base = _metrics(study), digits(study), reference(study)
    rows: list[dict[str, str | Cell]] = []
    for place in _ordered(study):
        mean = place_mean(study, place)
        gap = beside_published(study, place)
        rows.append(
            {
                "data": place.column,
                "method": _name(study, place.row),
                f"published, {study.unit}" if study.unit else "published": as_printed(place.published, study.unit),
                "ours ± 95%": Cell(with_half(mean, places), href=f"#{anchor(study, place)}" if place.runs else ""),
                "n": str(mean.n if mean else 0),
                "ours \N{MINUS SIGN} published": _gap(gap, places),
                "p, two-sided": p_value(gap.test.p_two if gap and gap.test else None),
                **{metric_name(m): with_half(place_mean(study, place, m), _places(m)) for m in metrics},
                **_cost(study, place, base),
            }
        )
    return Table.of(rows, caption("side_by_side", label=capital(study.label))).filled(keep=["n"])


def metric_name(metric: str) -> str:
    """A metric for a header."""
    name = metric.removeprefix(LAST)
    return f"{'last epoch: ' if metric != name else ''}{METRICS.get(name, name)}"


def _places(metric: str) -> int:
    return 1 if metric.endswith(("accuracy", "top5")) else 3


def _gap(gap: AgainstPublished | None, places: int) -> str:
    if gap is None:
        return "-"
    if gap.test is None:
        return fixed(gap.difference, places, sign=True)
    return interval_text(gap.difference, gap.test.low, gap.test.high, places)


def _metrics(study: Study) -> list[str]:
    """What else was measured, nine at most: the usual metrics, each with that of the last epoch, then others."""
    own = {study.metric_of(column) for column in study.columns}
    runs = [run for place in study.places.values() for run in place.runs]
    names = dict.fromkeys(name for run in runs for name, value in run.metrics.items() if value is not None)
    usual = [name for metric in METRICS for name in (metric, f"{LAST}{metric}") if name in names.keys() - own]
    return [*usual, *(name for name in names if name not in (*usual, *own) and not name.startswith(LAST))][:9]


def _ordered(study: Study) -> list[Place]:
    keys = [(row, column) for column in study.columns_run for row in study.rows]
    return [study.places[key] for key in keys if key in study.places]


def _cost(study: Study, place: Place, base: str | None) -> dict[str, str]:
    """Seconds of a run, and how many times those of the base."""
    sides = (place, study.place(base, place.column) if base else None)
    ours, theirs = (averages([run.seconds for run in side.runs] if side else [])["mean"] for side in sides)
    ratio = ours / theirs if ours is not None and theirs else None
    return {"seconds a run": fixed(ours, 1), "times ERM": fixed(ratio, 2)}


def claim_table(claims: Sequence[tuple[Study, Claim]], text: str, homes: Mapping[str, str], choose: str = "") -> Table:
    """Claims with the published difference, ours and the verdict; where it is known, also at the last epoch.

    homes: the chapter of each study by its title; with them the table says where a claim is from.
    """
    twice = any(claim.last is not None for _, claim in claims)
    rows: list[dict[str, str | Cell]] = []
    for study, claim in claims:
        places, gain = digits(study), claim.gain
        ours = "our check" if claim.published is None else "our check; published: RCAD's gain over ERM"
        notes = filter(None, (claim.note, ours if study.added(claim) else ""))
        rows.append(
            {
                **({"from": Cell(study.target, study.scale, f"#{homes[study.title]}")} if homes else {}),
                "verdict": _verdict(claim),
                **({"at the last epoch": _verdict(claim.last, gain_text(claim.last, places))} if twice else {}),
                "where": claim.where,
                "claim": Cell(claim.statement, "; ".join(notes)),
                "published": fixed(claim.published, places, sign=True),
                "ours [95%]": Cell(gain_text(claim, places), mark="none" if gain is None and not claim.ours else ""),
                "n": str(int(gain["df"]) + 1) if gain and "df" in gain else "-",
                "p, Holm": p_value(claim.p_holm if gain is not None else None),
                "p of the reverse": p_value(claim.p_reverse_holm if gain is not None else None),
            }
        )
    return Table.of(rows, text, choose=choose)


def _verdict(claim: Claim | None, note: str = "") -> Cell:
    return Cell("-", mark="none") if claim is None else Cell(claim.verdict, note, mark=MARKS.get(claim.verdict, "none"))


def measure_table(study: Study) -> Table | None:
    """RCAD and its controls by every measure, at the chosen and at the last epoch; None where nothing can be paired.

    Every cell is a two-sided question, Holm over all of them.
    """
    base = reference(study) or (study.rows[0] if study.rows else "")
    ours = next((row for row in study.rows if "RCAD" in row and row != base), None)
    if ours is None:
        return None
    pairs = [(ours, base), *((ours, control) for control in study.controls)]
    pairs += [(control, base) for control in study.controls]
    lines: dict[tuple[str, str, str], list[Difference]] = {}
    for column, pair, (epoch, prefix) in product(_distinct_columns(study), pairs, (("chosen", ""), ("last", LAST))):
        gaps = [_difference(study, pair, column, prefix, name) for name in MEASURED]
        if any(gap.n for gap in gaps):
            lines[column, " against ".join(pair), epoch] = gaps
    if not lines:
        return None
    judged = iter(judge_questions([gap for gaps in lines.values() for gap in gaps]))
    rows: list[list[str | Cell]] = [
        [*line, *(_question(next(judged), _places(name)) for name in MEASURED)] for line in lines
    ]
    return Table(["data", "pair", "epoch", *(METRICS[name] for name in MEASURED)], rows, caption("measures"))


def _difference(study: Study, pair: tuple[str, str], column: str, prefix: str, name: str) -> Difference:
    sides = [place.by_seed(f"{prefix}{name}") if (place := study.place(row, column)) else {} for row in pair]
    return compare_groups(*sides, higher_is_better=name == "accuracy")


def _question(gap: Difference, places: int) -> Cell:
    if gap.mean is None or gap.low is None or gap.high is None:
        return Cell("-", gap.note if gap.n else "", mark="none")
    mark = {"better": "good", "worse": "bad"}.get(gap.outcome, "")
    text = interval_text(gap.mean, gap.low, gap.high, places)
    return Cell(text, f"{gap.outcome}, p {p_value(gap.p_holm)}", mark=mark)


def _distinct_columns(study: Study) -> list[str]:
    """Columns whose runs differ: others show further numbers of the same runs."""
    seen: dict[tuple[str, ...], str] = {}
    for column in study.columns_run:
        runs = tuple(run.id for place in study.places.values() if place.column == column for run in place.runs)
        seen.setdefault(runs if any(runs) else (column,), column)
    return list(seen.values())


def run_table(study: Study, links: Links) -> Table:
    """Every run, folded away: what each number on the page is made of."""
    metrics = _metrics(study)
    file = study.path.name if study.path else study.target
    rows: list[dict[str, str | Cell]] = []
    for place in _ordered(study):
        names = {study.label: study.metric_of(place.column), **{metric_name(metric): metric for metric in metrics}}
        for index, run in enumerate(place.runs):
            values = {name: run.metrics.get(metric) for name, metric in names.items()}
            rows.append(
                {
                    "data": Cell(place.column, anchor=anchor(study, place) if index == 0 else ""),
                    "method": place.row,
                    "seed": str(run.seed),
                    **{n: "diverged" if v is None and run.diverged else fixed(v, 4) for n, v in values.items()},
                    "seconds": fixed(run.seconds, 1),
                    "record": Cell(run.id or file, href=links.run(run.id) if run.id else links.to(study.path)),
                }
            )
    return Table.of(rows, f"From {file}.", folded=f"Every run ({len(rows):,})")


def anchor(study: Study, place: Place) -> str:
    """The name of a cell's runs in the page."""
    where = (study.path.parent.name, study.path.stem) if study.path else ()
    row, column = list(study.rows).index(place.row), list(study.columns).index(place.column)
    return re.sub(r"[^a-z0-9]+", "-", "-".join((*where, study.target)).casefold()) + f"-r{row}c{column}"
