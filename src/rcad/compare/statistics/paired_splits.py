"""Paired comparisons over splits that overlap, corrections for many of them, and the rule that turns them to verdicts.

Training sets of repeated splits share most of their rows, so their results are not independent and the plain paired
t-test is far too sure of itself. Nadeau and Bengio (2003) replace the variance factor 1/k of a mean over k splits by
1/k + n_test/n_train.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from rcad.errors import InputError, MissingExtraError

Verdict = Literal["reproduced", "not reproduced", "opposite", "undecided"]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "not reproduced", "opposite", "undecided")
LEVEL = 0.05
RULE = (
    "reproduced: the one-sided p for the claim, Holm over all claims of the page, is below 0.05; opposite: that for "
    "its reverse is; not reproduced: neither, and the 95% interval lies below the published difference; else undecided"
)


@dataclass(frozen=True)
class Paired:
    """A mean paired difference, first minus second.

    Attributes:
        mean, se: the difference and its (corrected) standard error.
        low, high: its 95% interval.
        t, df: the statistic and its degrees of freedom.
        p_less, p_greater: one-sided: the first is smaller, the first is greater.
        p_two: two-sided.
    """

    mean: float
    se: float
    low: float
    high: float
    t: float
    df: int
    p_less: float
    p_greater: float
    p_two: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def paired(first: Sequence[float], second: Sequence[float], *, test_ratio: float = 0.0) -> Paired:
    """Compare two lists of results, pair by pair.

    Args:
        first, second: one finite number per split or seed, in the same order; at least 2.
        test_ratio: n_test / n_train of splits that overlap; 0 for independent draws, the ordinary paired t-test.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1 or len(a) < 2:
        raise InputError(f"expected two lists of at least 2 results, but got shapes {a.shape} and {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise InputError("expected finite results to compare, but got NaN or inf; a run that diverged has no pair")
    difference = a - b
    count, mean = len(a), float(difference.mean())
    se = math.sqrt(float(difference.var(ddof=1)) * (1 / count + test_ratio))
    student = _student()
    # Equal differences in every pair: no spread to measure by, so the sign alone speaks.
    t = mean / se if se > 0 else math.copysign(math.inf, mean) if mean else 0.0
    less, greater = float(student.cdf(t, count - 1)), float(student.sf(t, count - 1))
    half = float(student.ppf(1 - LEVEL / 2, count - 1)) * se
    return Paired(mean, se, mean - half, mean + half, t, count - 1, less, greater, min(1.0, 2 * min(less, greater)))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: the i-th smallest of m is multiplied by m - i + 1, and none falls below one before."""
    adjusted = [1.0] * len(p)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        largest = max(largest, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = largest
    return adjusted


def summary(values: Sequence[float | None]) -> dict[str, float | int | None]:
    """Mean, median and deviation of the finite results, and how many were not finite."""
    good = np.asarray([v for v in values if v is not None and math.isfinite(v)], dtype=np.float64)
    numbers = {
        "mean": float(good.mean()) if len(good) else None,
        "median": float(np.median(good)) if len(good) else None,
        "sd": float(good.std(ddof=1)) if len(good) > 1 else None,
    }
    return {**numbers, "runs": len(values), "diverged": len(values) - len(good)}


def interval_half(values: Sequence[float]) -> float:
    """Half the width of the 95% interval of the mean of independent results."""
    good = np.asarray(values, dtype=np.float64)
    return float(_student().ppf(1 - LEVEL / 2, len(good) - 1) * good.std(ddof=1) / math.sqrt(len(good)))


def judge(gain: Paired | None, p_for: float, p_against: float, published: float | None) -> Verdict:
    """The verdict of `RULE`.

    Args:
        gain: the difference, oriented so that positive speaks for the claim; None where a run diverged.
        p_for, p_against: adjusted one-sided p-values of the claim and of its reverse.
        published: the size of the difference as printed, > 0; None where the paper gives none.
    """
    if gain is None:
        return "undecided"
    if p_for < LEVEL:
        return "reproduced"
    if p_against < LEVEL:
        return "opposite"
    return "not reproduced" if published is not None and gain.high < published else "undecided"


def _student() -> Any:
    try:
        from scipy.stats import t
    except ImportError:
        raise MissingExtraError("scipy", "data") from None
    return t
