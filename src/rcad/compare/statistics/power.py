"""What so many seeds could have shown, and how many would be needed: the noncentral t distribution."""

from __future__ import annotations

import math
from typing import Literal

from rcad.compare.statistics.paired_splits import LEVEL
from rcad.compare.statistics.too_few import FEWEST
from rcad.data.lazy import need
from rcad.errors import finite, one_of, whole

Sides = Literal["one", "two"]
POWER = 0.8
MOST = 100_000
"""More seeds than this are called out of reach."""


def power_paired(
    effect: float, n: int, *, test_ratio: float = 0.0, sides: Sides = "one", level: float = LEVEL
) -> float:
    """The chance that n pairs show a true effect.

    Args:
        effect: the mean difference in deviations of the differences, on the side of the one-sided test.
        n: pairs, at least 2.
        test_ratio: n_test / n_train of splits that overlap, see `paired`.
        sides: of the test.
        level: its level.
    """
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
    sides: Sides = "one",
    level: float = LEVEL,
) -> float:
    """The chance that two independent groups show a true difference of their means, given their deviations."""
    finite("difference", difference)
    finite("sd1", sd1, above=0.0)
    finite("sd2", sd2, above=0.0)
    whole("n1", n1, minimum=2)
    whole("n2", n2, minimum=2)
    part1, part2 = sd1**2 / n1, sd2**2 / n2
    df = (part1 + part2) ** 2 / (part1**2 / (n1 - 1) + part2**2 / (n2 - 1))
    return _power(difference / math.sqrt(part1 + part2), df, sides, level)


def seeds_needed(
    effect: float,
    *,
    paired: bool = True,
    test_ratio: float = 0.0,
    sides: Sides = "one",
    level: float = LEVEL,
    power: float = POWER,
) -> int | None:
    """The seeds (of each group) with which a true effect of this size would be seen; None if no number will do.

    Args:
        effect: in deviations of the paired differences, or of either group; its sign does not matter.
        paired: the paired test; else Welch's with equal deviations and equally many seeds.
        test_ratio: of splits that overlap. More splits of the same data never bring the error below a floor, so
            small effects stay out of reach.
        sides, level, power: of the test.
    """
    size = abs(effect)

    def enough(n: int) -> bool:
        if paired:
            return power_paired(size, n, test_ratio=test_ratio, sides=sides, level=level) >= power
        return power_welch(size, 1.0, n, 1.0, n, sides=sides, level=level) >= power

    high = FEWEST
    while not enough(high):
        if high >= MOST:
            return None
        high = min(2 * high, MOST)
    low = high // 2 if high > FEWEST else FEWEST - 1  # not enough, or below the fewest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return max(high, FEWEST)


def _power(noncentrality: float, df: float, sides: Sides, level: float) -> float:
    one_of("sides", sides, ("one", "two"))
    stats = need("scipy.stats", "scipy")
    if sides == "one":
        return float(stats.nct.sf(stats.t.isf(level, df), df, noncentrality))
    edge = stats.t.isf(level / 2, df)
    return float(stats.nct.sf(edge, df, noncentrality) + stats.nct.cdf(-edge, df, noncentrality))
