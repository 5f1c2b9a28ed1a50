"""Our mean against one that was printed: Welch's test from summary statistics, with every assumption said."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rcad.compare.statistics.describe import describe
from rcad.compare.statistics.paired_splits import LEVEL, paired
from rcad.compare.statistics.too_few import FEWEST, TooFew, numbers
from rcad.compare.statistics.ttests import Welch, welch_from_summaries
from rcad.data.lazy import need
from rcad.errors import finite, one_of, whole

Meaning = Literal["95% interval", "standard error", "standard deviation"]


@dataclass(frozen=True)
class AgainstPublished:
    """Ours minus the published mean.

    Args:
        test: None in place of a test where our results are too few; then `too_few` says so.
        assumed: what the printed number was taken for.
    """

    difference: float
    test: Welch | None
    too_few: TooFew | None
    assumed: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def against_published(
    ours: Sequence[float],
    mean: float,
    half: float | None,
    *,
    n: int | None = 10,
    meaning: Meaning = "95% interval",
) -> AgainstPublished:
    """Test our results against a printed "mean ± half".

    Args:
        ours: one result per seed.
        mean: as printed.
        half: the number after ±; None where none is printed: the mean is then taken as exact.
        n: runs behind the printed mean, at least 2; None as for `half`.
        meaning: what ± stands for. The interval is read as Student's t over the n runs.
    """
    finite("mean", mean)
    one_of("meaning", meaning, ("95% interval", "standard error", "standard deviation"))
    values = numbers(ours)
    difference = float(values.mean()) - mean
    few = TooFew(len(values)) if len(values) < FEWEST else None
    if half is None or n is None:
        assumed = "the published mean is taken as exact: no spread or number of runs is printed"
        return AgainstPublished(difference, None if few else _exact(values.tolist(), mean), few, assumed)
    finite("half", half, minimum=0.0)
    whole("n", n, minimum=2)
    sd = _deviation(half, n, meaning)
    assumed = f"± {half:g} is read as the {meaning} over n = {n} independent runs, sd {sd:.3g}"
    if few:
        return AgainstPublished(difference, None, few, assumed)
    own = describe(values.tolist())
    assert own.sd is not None
    return AgainstPublished(difference, welch_from_summaries(own.mean, own.sd, own.n, mean, sd, n), None, assumed)


def _deviation(half: float, n: int, meaning: Meaning) -> float:
    if meaning == "standard deviation":
        return half
    if meaning == "standard error":
        return half * math.sqrt(n)
    return half * math.sqrt(n) / float(need("scipy.stats", "scipy").t.ppf(1 - LEVEL / 2, n - 1))


def _exact(values: list[float], mean: float) -> Welch:
    """The one-sample test, which is the paired one against a constant."""
    one = paired(values, [mean] * len(values))
    return Welch(one.mean, one.se, one.low, one.high, one.t, float(one.df), one.p_less, one.p_greater, one.p_two)
