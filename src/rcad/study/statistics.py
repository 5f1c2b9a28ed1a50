"""Statistics of a handful of seeds: intervals, tests, effect sizes and power, from plain lists of results.

Training sets of repeated splits share most of their rows, so their results are not independent and the plain paired
t-test is far too sure of itself. Nadeau and Bengio (2003) replace the variance factor 1/k of a mean over k splits by
1/k + n_test/n_train: `test_ratio` wherever it is an argument.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rcad.errors import InputError, finite, need, one_of, whole

LEVEL = 0.05
FEWEST = 3
"""With fewer results than this there is no p-value."""
EXACT_UP_TO = 50
"""Pairs up to which Wilcoxon's sign patterns are counted; above, the normal approximation with ties."""
ROUNDING = 1e-12
"""Differences that are this close, relative to the numbers they are of, are equal."""
Z95 = 1.959964
"""The normal's 97.5% point."""
POWER = 0.8
MOST = 100_000
"""More seeds than this are called out of reach."""
Array = npt.NDArray[np.float64]
Sides = Literal["one", "two"]


@dataclass(frozen=True)
class TooFew:
    """In place of a test: the results (of the smaller group) are fewer than `FEWEST`."""

    got: int

    def __str__(self) -> str:
        return f"too few seeds for a test: {self.got}, at least {FEWEST} are needed"


def numbers(values: Sequence[float], *, at_least: int = 1) -> Array:
    """The results as an array: finite, one-dimensional, so many at least."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < at_least:
        raise InputError(f"expected a list of at least {at_least} results, but got shape {array.shape}")
    if not np.isfinite(array).all():
        raise InputError("expected finite results, but got NaN or inf; leave a run that diverged out, and say so")
    return array


def differences(first: Sequence[float], second: Sequence[float], *, at_least: int = 1) -> Array:
    a, b = numbers(first, at_least=at_least), numbers(second, at_least=at_least)
    if len(a) != len(b):
        raise InputError(f"expected two lists of equally many results to pair, but got {len(a)} and {len(b)}")
    return a - b


@dataclass(frozen=True)
class Summary:
    """Results of independent runs: deviation (n - 1) and Student's 95% interval of the mean, None for one result."""

    n: int
    mean: float
    sd: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def half(self) -> float | None:
        return None if self.high is None else self.high - self.mean


def describe(values: Sequence[float], *, test_ratio: float = 0.0) -> Summary:
    """Mean, deviation and 95% interval of at least one result; `test_ratio` widens the interval."""
    results = numbers(values)
    count, mean = len(results), float(results.mean())
    if count == 1:
        return Summary(1, mean)
    sd = float(results.std(ddof=1))
    half = _quantile(count - 1) * sd * math.sqrt(1 + count * test_ratio) / math.sqrt(count)
    return Summary(count, mean, sd, mean - half, mean + half)


def averages(values: Sequence[float | None]) -> dict[str, float | None]:
    """Mean, median and deviation (n - 1) of the finite results; None where they are too few."""
    results = np.asarray([v for v in values if v is not None and math.isfinite(v)], dtype=np.float64)
    return {
        "mean": float(results.mean()) if len(results) else None,
        "median": float(np.median(results)) if len(results) else None,
        "sd": float(results.std(ddof=1)) if len(results) > 1 else None,
    }


@dataclass(frozen=True)
class Paired:
    """A difference of means, first minus second: of pairs, or of independent groups (Welch).

    Attributes:
        se: the (corrected) standard error of the mean difference.
        low, high: its 95% interval.
        p_less, p_greater: one-sided: the first is smaller, the first is greater.
    """

    mean: float
    se: float
    low: float
    high: float
    t: float
    df: float
    p_less: float
    p_greater: float
    p_two: float

    @property
    def half(self) -> float:
        return self.high - self.mean

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def paired(first: Sequence[float], second: Sequence[float], *, test_ratio: float = 0.0) -> Paired:
    """Compare two lists of 2 or more results, pair by pair; without a `test_ratio` it is the ordinary t-test."""
    difference = differences(first, second, at_least=2)
    error = math.sqrt(float(difference.var(ddof=1)) * (1 / len(difference) + test_ratio))
    return _test(float(difference.mean()), error, len(difference) - 1)


def paired_t(first: Sequence[float], second: Sequence[float], *, test_ratio: float = 0.0) -> Paired | TooFew:
    """`paired`, which says so where there are fewer than three pairs."""
    count = len(differences(first, second, at_least=0))
    return TooFew(count) if count < FEWEST else paired(first, second, test_ratio=test_ratio)


def welch(first: Sequence[float], second: Sequence[float], *, test_ratio: float = 0.0) -> Paired | TooFew:
    """Welch's test of two groups that do not pair and may spread differently; `test_ratio` widens the error of each."""
    groups = numbers(first, at_least=0), numbers(second, at_least=0)
    fewest = min(map(len, groups))
    if fewest < FEWEST:
        return TooFew(fewest)
    a, b = ((float(group.mean()), float(group.std(ddof=1)), len(group)) for group in groups)
    return _welch(*a, *b, test_ratio)


def _welch(mean1: float, sd1: float, n1: int, mean2: float, sd2: float, n2: int, test_ratio: float = 0.0) -> Paired:
    """Welch's test from means, deviations (n - 1) and numbers of results, at least 2 each."""
    se, df = _welch_error(sd1, n1, sd2, n2, test_ratio)
    if se == 0.0 and mean1 != mean2:
        raise InputError(
            "expected results that spread, but got two constant groups: without a spread there is nothing to test by"
        )
    return _test(mean1 - mean2, se, df)


def _welch_error(sd1: float, n1: int, sd2: float, n2: int, test_ratio: float) -> tuple[float, float]:
    """The (corrected) standard error of a difference of means, and its degrees of freedom."""
    part1, part2 = sd1**2 / n1 + sd1**2 * test_ratio, sd2**2 / n2 + sd2**2 * test_ratio
    if part1 + part2 == 0.0:
        return 0.0, float(n1 + n2 - 2)
    return math.sqrt(part1 + part2), (part1 + part2) ** 2 / (part1**2 / (n1 - 1) + part2**2 / (n2 - 1))


def _test(mean: float, se: float, df: float) -> Paired:
    student = _stats().t
    # Without spread there is nothing to measure by, so the sign alone speaks.
    t = mean / se if se > 0 else math.copysign(math.inf, mean) if mean else 0.0
    less, greater = float(student.cdf(t, df)), float(student.sf(t, df))
    half = _quantile(df) * se
    return Paired(mean, se, mean - half, mean + half, t, df, less, greater, min(1.0, 2 * min(less, greater)))


def share_interval(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share of so many, which is honest at 0 and 1 too."""
    scale = 1 + Z95**2 / count
    centre = (share + Z95**2 / (2 * count)) / scale
    half = Z95 / scale * math.sqrt(share * (1 - share) / count + Z95**2 / (4 * count * count))
    return max(0.0, centre - half), min(1.0, centre + half)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: the i-th smallest of m is multiplied by m - i + 1, and none falls below one before."""
    order = np.argsort(p, kind="stable")
    adjusted = np.ones(len(p))
    grown = np.asarray(p, dtype=np.float64)[order] * np.arange(len(p), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(grown), 1.0)
    return adjusted.tolist()


@dataclass(frozen=True)
class Ranked:
    """Wilcoxon's test, first against second: p as in `Paired`, counted where `exact`, else approximated.

    `n` pairs differ (equal ones are left out, as Wilcoxon did), `w` is the sum of the ranks of positive differences.
    """

    n: int
    w: float
    p_less: float
    p_greater: float
    p_two: float
    exact: bool


def wilcoxon(first: Sequence[float], second: Sequence[float]) -> Ranked | TooFew:
    """The signed-rank test of paired results; tied differences share their mean rank, in the exact test too."""
    gaps = differences(first, second, at_least=0)
    if len(gaps) < FEWEST:
        return TooFew(len(gaps))
    difference = gaps[gaps != 0]
    ranks = np.asarray(_stats().rankdata(np.abs(difference)), dtype=np.float64)
    w = float(ranks[difference > 0].sum())
    exact = len(ranks) <= EXACT_UP_TO
    less, greater = _counted(ranks, w) if exact else _approximated(ranks, w)
    return Ranked(len(ranks), w, less, greater, min(1.0, 2 * min(less, greater)), exact)


def _counted(ranks: Array, w: float) -> tuple[float, float]:
    """(P(W <= w), P(W >= w)) where each sign is a fair coin. Doubled, mean ranks are whole numbers."""
    doubled = np.rint(2 * ranks).astype(np.int64)
    chance = np.zeros(int(doubled.sum()) + 1)
    chance[0] = 1.0
    for rank in doubled:
        # No chance is lost at the end: what all ranks together can reach fits the array.
        chance = (chance + np.roll(chance, rank)) / 2
    at = round(2 * w)
    return min(1.0, float(chance[: at + 1].sum())), min(1.0, float(chance[at:].sum()))


def _approximated(ranks: Array, w: float) -> tuple[float, float]:
    # The variance of a sum of ranks with fair signs is a quarter of the sum of their squares, ties or not.
    z = (w - float(ranks.sum()) / 2) / math.sqrt(float((ranks**2).sum()) / 4)
    return math.erfc(-z / math.sqrt(2)) / 2, math.erfc(z / math.sqrt(2)) / 2


def cohen_dz(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The mean paired difference in deviations of the differences; None where they do not spread.

    Without a spread Student's t is infinite and its p 0, which a handful of runs cannot show: nothing to test.
    """
    difference = differences(first, second, at_least=2)
    if np.ptp(difference) <= ROUNDING * max(map(abs, (*first, *second))):
        return None
    return float(difference.mean() / difference.std(ddof=1))


def hedges_g(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The difference of means in pooled deviations, with the exact correction for few results; None without spread."""
    a, b = numbers(first, at_least=2), numbers(second, at_least=2)
    df = len(a) + len(b) - 2
    squares = (len(a) - 1) * float(a.var(ddof=1)) + (len(b) - 1) * float(b.var(ddof=1))
    mean, sd = float(a.mean() - b.mean()), math.sqrt(squares / df)
    # Hedges (1981): the expectation of the plain ratio is larger than the true one by this factor's inverse.
    shrink = math.exp(math.lgamma(df / 2) - math.lgamma((df - 1) / 2)) / math.sqrt(df / 2)
    return mean / sd * shrink if sd > ROUNDING * abs(mean) else None


def superiority(first: Sequence[float], second: Sequence[float], *, paired: bool = False) -> float:
    """The share of all combinations, or of pairs, in which the first is greater; equal ones count half."""
    gaps = differences(first, second) if paired else np.subtract.outer(numbers(first), numbers(second))
    return float(((gaps > 0) + 0.5 * (gaps == 0)).mean())


def power_paired(
    effect: float, n: int, *, test_ratio: float = 0.0, sides: Sides = "one", level: float = LEVEL
) -> float:
    """The chance that n >= 2 pairs show a true effect: a mean difference, in deviations of the differences."""
    finite("effect", effect)
    finite("test_ratio", test_ratio, minimum=0.0)
    whole("n", n, minimum=2)
    return _power(effect / math.sqrt(1 / n + test_ratio), n - 1, sides, level)


def power_welch(
    difference: float,
    sd1: float,
    n1: int,
    sd2: float,
    n2: int,
    *,
    test_ratio: float = 0.0,
    sides: Sides = "one",
    level: float = LEVEL,
) -> float:
    """The chance that two independent groups show a true difference of their means, given their deviations."""
    finite("difference", difference)
    for name, sd, n in (("1", sd1, n1), ("2", sd2, n2)):
        finite(f"sd{name}", sd, above=0.0)
        whole(f"n{name}", n, minimum=2)
    se, df = _welch_error(sd1, n1, sd2, n2, test_ratio)
    return _power(difference / se, df, sides, level)


def seeds_needed(
    effect: float, *, paired: bool = True, test_ratio: float = 0.0, sides: Sides = "one", level: float = LEVEL
) -> int | None:
    """The seeds (of each group) with which a true effect of this size would be seen; None if no number will do.

    Args:
        effect: in deviations of the paired differences, or of either group; its sign does not matter.
        paired: the paired test; else Welch's with equal deviations and equally many seeds.
        test_ratio: of splits that overlap. More splits of the same data never bring the error below a floor, so
            small effects stay out of reach.
        sides, level: of the test; its power is to be 80%.
    """
    size = abs(effect)
    rule: dict[str, Any] = {"test_ratio": test_ratio, "sides": sides, "level": level}

    def enough(n: int) -> bool:
        return (power_paired(size, n, **rule) if paired else power_welch(size, 1.0, n, 1.0, n, **rule)) >= POWER

    # By doubling first: far beyond what is needed the noncentral t is not computed well.
    high = FEWEST
    while not enough(high):
        if high >= MOST:
            return None
        high = min(2 * high, MOST)
    return bisect_left(range(high), True, lo=min(max(high // 2, FEWEST), high), key=enough)


def _power(noncentrality: float, df: float, sides: Sides, level: float) -> float:
    one_of("sides", sides, ("one", "two"))
    stats = _stats()
    if sides == "one":
        return float(stats.nct.sf(stats.t.isf(level, df), df, noncentrality))
    edge = stats.t.isf(level / 2, df)
    # Where the other tail is next to nothing SciPy may call it NaN.
    other = stats.nct.cdf(-edge, df, noncentrality)
    return float(stats.nct.sf(edge, df, noncentrality) + np.nan_to_num(other))


@dataclass(frozen=True)
class AgainstPublished:
    """Ours minus the published mean; no test where our results are too few."""

    difference: float
    test: Paired | None


def against_published(
    ours: Sequence[float], mean: float, half: float | None, *, n: int | None = 10
) -> AgainstPublished:
    """Test our results against a printed "mean ± half" by Welch's test.

    Args:
        ours: one result per seed.
        mean: as printed.
        half: half the 95% interval, read as Student's t; None where none is printed: the mean is then taken as exact.
        n: runs behind the printed mean, at least 2; None as for `half`.
    """
    finite("mean", mean)
    values = numbers(ours)
    count, own = len(values), float(values.mean())
    if count < FEWEST:
        return AgainstPublished(own - mean, None)
    if half is None or n is None:
        return AgainstPublished(own - mean, paired(ours, [mean] * count))
    finite("half", half, minimum=0.0)
    whole("n", n, minimum=2)
    sd = half / _quantile(n - 1) * math.sqrt(n)
    return AgainstPublished(own - mean, _welch(own, float(values.std(ddof=1)), count, mean, sd, n))


def _quantile(df: float) -> float:
    """Half the width of Student's 95% interval, in standard errors."""
    return float(_stats().t.ppf(1 - LEVEL / 2, df))


def _stats() -> Any:
    return need("scipy.stats", "scipy")
