"""Means with intervals, gains over a reference, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from rcad.paper.claims import NOT_RUN, Claim, by_verdict, gain_of
from rcad.paper.record import Place, Study
from rcad.paper.targets import Printed
from rcad.report.numbers import fixed
from rcad.study.statistics import AgainstPublished, Paired, Summary, against_published, describe


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

    Args:
        metric: None for the column's own.
        higher: whether higher is better; None for what the study says.
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


def gain_text(claim: Claim, places: int) -> str:
    """Our difference, positive for the claim, with its interval."""
    gain = claim.gain
    return claim.ours or "no test" if gain is None else interval_text(gain["mean"], gain["low"], gain["high"], places)


def tally(claims: Sequence[Claim]) -> str:
    """How many got each verdict, in words."""
    return by_verdict([claim.verdict for claim in claims if claim.verdict != NOT_RUN]) or "no claims"
