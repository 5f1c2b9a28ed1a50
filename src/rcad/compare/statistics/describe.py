"""A list of results in four numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rcad.compare.statistics.paired_splits import LEVEL
from rcad.compare.statistics.too_few import numbers
from rcad.data.lazy import need


@dataclass(frozen=True)
class Summary:
    """Results of independent runs.

    Args:
        n, mean: how many, and their mean.
        sd: standard deviation with n - 1; None for one result.
        low, high: 95% interval of the mean by Student's t; None for one result.
    """

    n: int
    mean: float
    sd: float | None
    low: float | None
    high: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def describe(values: Sequence[float]) -> Summary:
    """Mean, deviation and 95% interval of at least one result."""
    good = numbers(values)
    count, mean = len(good), float(good.mean())
    if count == 1:
        return Summary(1, mean, None, None, None)
    sd = float(good.std(ddof=1))
    half = float(need("scipy.stats", "scipy").t.ppf(1 - LEVEL / 2, count - 1)) * sd / math.sqrt(count)
    return Summary(count, mean, sd, mean - half, mean + half)
