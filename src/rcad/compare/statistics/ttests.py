"""Student's tests of a difference of means: paired where results pair, Welch's where they do not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rcad.compare.statistics.paired_splits import LEVEL, Paired, paired
from rcad.compare.statistics.too_few import FEWEST, TooFew, numbers, pairs
from rcad.data.lazy import need
from rcad.errors import InputError, finite, whole


@dataclass(frozen=True)
class Welch:
    """A difference of means of independent groups, first minus second; attributes as in `Paired`."""

    mean: float
    se: float
    low: float
    high: float
    t: float
    df: float
    p_less: float
    p_greater: float
    p_two: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def paired_t(first: Sequence[float], second: Sequence[float], *, test_ratio: float = 0.0) -> Paired | TooFew:
    """`paired`, which says so where there are fewer than three pairs."""
    count = len(pairs(first, second, at_least=0))
    return TooFew(count) if count < FEWEST else paired(first, second, test_ratio=test_ratio)


def welch(first: Sequence[float], second: Sequence[float]) -> Welch | TooFew:
    """Welch's test of two groups that do not pair and may spread differently."""
    a, b = numbers(first, at_least=0), numbers(second, at_least=0)
    if min(len(a), len(b)) < FEWEST:
        return TooFew(min(len(a), len(b)))
    return welch_from_summaries(
        float(a.mean()), float(a.std(ddof=1)), len(a), float(b.mean()), float(b.std(ddof=1)), len(b)
    )


def welch_from_summaries(mean1: float, sd1: float, n1: int, mean2: float, sd2: float, n2: int) -> Welch:
    """Welch's test from means, deviations (n - 1) and numbers of results, at least 2 each."""
    for name, count in (("n1", n1), ("n2", n2)):
        whole(name, count, minimum=2)
    for name, value in (("mean1", mean1), ("mean2", mean2)):
        finite(name, value)
    for name, value in (("sd1", sd1), ("sd2", sd2)):
        finite(name, value, minimum=0.0)
    part1, part2 = sd1**2 / n1, sd2**2 / n2
    mean, se = mean1 - mean2, math.sqrt(part1 + part2)
    if se == 0.0:
        if mean == 0.0:
            return Welch(0.0, 0.0, 0.0, 0.0, 0.0, float(n1 + n2 - 2), 0.5, 0.5, 1.0)
        raise InputError(
            "expected results that spread, but got two constant groups: without a spread there is nothing to test by"
        )
    df = (part1 + part2) ** 2 / (part1**2 / (n1 - 1) + part2**2 / (n2 - 1))
    student = need("scipy.stats", "scipy").t
    t = mean / se
    less, greater = float(student.cdf(t, df)), float(student.sf(t, df))
    half = float(student.ppf(1 - LEVEL / 2, df)) * se
    return Welch(mean, se, mean - half, mean + half, t, df, less, greater, min(1.0, 2 * min(less, greater)))
