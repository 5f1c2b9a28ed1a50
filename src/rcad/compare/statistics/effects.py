"""How large a difference is, whatever its p-value: in deviations, and as a chance to win."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rcad.compare.statistics.too_few import numbers, pairs


def cohen_dz(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The mean paired difference in deviations of the differences; None where they do not spread."""
    difference = pairs(first, second, at_least=2)
    return _ratio(float(difference.mean()), float(difference.std(ddof=1)))


def hedges_g(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The difference of means in pooled deviations, with the exact correction for few results; None without spread."""
    a, b = numbers(first, at_least=2), numbers(second, at_least=2)
    df = len(a) + len(b) - 2
    squares = (len(a) - 1) * float(a.var(ddof=1)) + (len(b) - 1) * float(b.var(ddof=1))
    plain = _ratio(float(a.mean() - b.mean()), math.sqrt(squares / df))
    # Hedges (1981): the expectation of the plain ratio is larger than the true one by this factor's inverse.
    shrink = math.exp(math.lgamma(df / 2) - math.lgamma((df - 1) / 2)) / math.sqrt(df / 2)
    return None if plain is None else plain * shrink


def superiority_paired(first: Sequence[float], second: Sequence[float]) -> float:
    """The share of pairs in which the first is greater; equal ones count half."""
    difference = pairs(first, second)
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def superiority(first: Sequence[float], second: Sequence[float]) -> float:
    """The chance that a result of the first group is greater than one of the second; equal ones count half."""
    difference = np.subtract.outer(numbers(first), numbers(second))
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def _ratio(mean: float, sd: float) -> float | None:
    # Differences that are equal up to rounding have no spread to measure by.
    return mean / sd if sd > 1e-12 * abs(mean) else None
