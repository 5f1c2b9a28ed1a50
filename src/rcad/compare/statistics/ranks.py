"""Wilcoxon's signed-rank test: asks for the order of the differences only, not for their distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.compare.statistics.too_few import FEWEST, TooFew, pairs

EXACT_UP_TO = 50
"""Pairs up to which every sign pattern is counted; above, the normal approximation with its correction for ties."""


@dataclass(frozen=True)
class Ranked:
    """Wilcoxon's test, first against second.

    Args:
        n: pairs that differ; equal ones are left out, as Wilcoxon did.
        w: the sum of the ranks of positive differences.
        p_less, p_greater, p_two: as in `Paired`.
        exact: counted, not approximated.
    """

    n: int
    w: float
    p_less: float
    p_greater: float
    p_two: float
    exact: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def wilcoxon(first: Sequence[float], second: Sequence[float]) -> Ranked | TooFew:
    """The signed-rank test of paired results; tied differences share their mean rank, in the exact test too."""
    every = pairs(first, second, at_least=0)
    if len(every) < FEWEST:
        return TooFew(len(every))
    difference = every[every != 0]
    ranks = _ranks(np.abs(difference))
    w = float(ranks[difference > 0].sum())
    exact = len(ranks) <= EXACT_UP_TO
    less, greater = _counted(ranks, w) if exact else _approximated(ranks, w)
    return Ranked(len(ranks), w, less, greater, min(1.0, 2 * min(less, greater)), exact)


def _ranks(sizes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """1 for the smallest; equal ones share the mean of their ranks."""
    _, place, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place], dtype=np.float64)


def _counted(ranks: npt.NDArray[np.float64], w: float) -> tuple[float, float]:
    """(P(W <= w), P(W >= w)) where each sign is a fair coin. Doubled, mean ranks are whole numbers."""
    doubled = np.rint(2 * ranks).astype(np.int64)
    chance = np.zeros(int(doubled.sum()) + 1)
    chance[0] = 1.0
    for rank in doubled:
        moved = np.zeros_like(chance)
        moved[rank:] = chance[: len(chance) - rank]
        chance = (chance + moved) / 2
    at = round(2 * w)
    return min(1.0, float(chance[: at + 1].sum())), min(1.0, float(chance[at:].sum()))


def _approximated(ranks: npt.NDArray[np.float64], w: float) -> tuple[float, float]:
    # The variance of a sum of ranks with fair signs is a quarter of the sum of their squares, ties or not.
    z = (w - float(ranks.sum()) / 2) / math.sqrt(float((ranks**2).sum()) / 4)
    return math.erfc(-z / math.sqrt(2)) / 2, math.erfc(z / math.sqrt(2)) / 2
