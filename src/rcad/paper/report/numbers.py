"""Means with intervals, gains over a reference, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rcad.paper.claims import NOT_RUN, Claim, by_verdict, gain_of
from rcad.paper.published import Printed
from rcad.paper.record import Place, Study
from rcad.report.numbers import fixed
from rcad.study.judge import VERDICTS
from rcad.study.statistics import AgainstPublished, Paired, against_published, paired


@dataclass(frozen=True)
class Mean:
    """Of n finite results; half the 95% interval is None for fewer than two."""

    value: float
    half: float | None
    n: int


def mean_of(values: Sequence[float], overlap: float = 0.0) -> Mean | None:
    """The mean; splits that overlap widen its interval as Nadeau and Bengio say."""
    if not values:
        return None
    if len(values) == 1:
        return Mean(values[0], None, 1)
    found = paired(values, [0.0] * len(values), test_ratio=overlap)
    return Mean(found.mean, found.high - found.mean, len(values))


def place_mean(study: Study, place: Place, metric: str | None = None) -> Mean | None:
    return mean_of(place.values(metric or study.metric_of(place.column)), study.overlap.get(place.column, 0.0))


def gain_over(
    study: Study, row: str, base: str, column: str, metric: str | None = None, *, higher: bool | None = None
) -> Paired | None:
    """How much better a row is than another on the same seeds; None where a run diverged or fewer than two pair.

    Args:
        metric: the column's own where it is not given.
        higher: whether higher is better, where that is not asked of the study.
    """
    name = metric or study.metric_of(column)
    one, other = (place.by_seed(name) if (place := study.place(side, column)) else {} for side in (row, base))
    better = study.higher_is_better if higher is None else higher
    return gain_of(one, other, better, study.overlap.get(column, 0.0), fewest=2)[0]


def printed_gain(study: Study, row: str, base: str, column: str) -> float | None:
    """The same difference as printed."""
    one, other = (place.published if (place := study.place(name, column)) else None for name in (row, base))
    if one is None or other is None:
        return None
    return (one.mean - other.mean) * (1 if study.higher_is_better else -1)


def reference(study: Study) -> str | None:
    """The row that others are compared with; F1 calls ERM on augmented images DA."""
    return next((row for name in ("erm", "da") for row in study.rows if row.casefold() == name), None)


def better_by(study: Study, base: str) -> str:
    """What stands along an axis of gains over a row."""
    unit = "points" if study.unit == "%" else study.unit
    return f"better than {base} by, {unit}" if unit else f"better than {base} by"


def beside_published(study: Study, place: Place) -> AgainstPublished | None:
    """Our mean against the printed one; no test where a run diverged or splits overlap."""
    values = place.values(study.metric_of(place.column))
    if place.published is None or not values:
        return None
    printed = place.published
    n = printed.n if printed.n and printed.n > 1 else None
    found = against_published(values, printed.mean, printed.half, n=n)
    return replace(found, test=None) if place.diverged or place.column in study.overlap else found


def digits(unit: str) -> int:
    """Decimals: tenths of a percent, thousandths of all else."""
    return 1 if unit in ("%", "points") else 3


def with_half(mean: Mean | None, places: int) -> str:
    if mean is None:
        return "-"
    return fixed(mean.value, places) + ("" if mean.half is None else f" ± {mean.half:.{places}f}")


def as_printed(published: Printed | None, unit: str) -> str:
    """As the paper has it: tenths of a percent and hundredths of all else, or more where it gives more."""
    if published is None:
        return "-"
    places = 1 if unit == "%" else 2
    exact = round(published.mean, places) == published.mean
    mean = f"{published.mean:.{places}f}" if exact else f"{published.mean:g}"
    return mean + ("" if published.half is None else f" ± {published.half:.2f}")


def interval_text(gain: Mapping[str, float], places: int) -> str:
    """A difference with its interval."""
    low, high = fixed(gain["low"], places), fixed(gain["high"], places)
    return f"{fixed(gain['mean'], places, sign=True)} [{low}, {high}]"


def gain_text(claim: Claim, places: int) -> str:
    """Our difference, positive for the claim, with its interval."""
    return claim.ours or "no test" if claim.gain is None else interval_text(claim.gain, places)


def counts(claims: Sequence[Claim]) -> dict[str, int]:
    """Claims by verdict, the known verdicts first; those that were not run are no verdict."""
    found: dict[str, int] = dict.fromkeys(VERDICTS, 0)
    for claim in claims:
        if claim.verdict != NOT_RUN:
            found[claim.verdict] = found.get(claim.verdict, 0) + 1
    return found


def tally(claims: Sequence[Claim]) -> str:
    """How many got each verdict, in words."""
    return by_verdict([claim.verdict for claim in claims if claim.verdict != NOT_RUN]) or "no claims"
