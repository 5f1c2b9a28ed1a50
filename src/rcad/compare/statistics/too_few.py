"""What stands where a p-value would, when the results are too few to speak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.errors import InputError

FEWEST = 3
"""With fewer results than this there is no p-value."""


@dataclass(frozen=True)
class TooFew:
    """Too few results for a test.

    Args:
        got: how many there are, in the smaller group.
        needed: how many a test takes at least.
    """

    got: int
    needed: int = FEWEST

    def __str__(self) -> str:
        return f"too few seeds for a test: {self.got}, at least {self.needed} are needed"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def numbers(values: Sequence[float], *, at_least: int = 1) -> npt.NDArray[np.float64]:
    """The results as an array: finite, one-dimensional, so many at least."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < at_least:
        raise InputError(f"expected a list of at least {at_least} results, but got shape {array.shape}")
    if not np.isfinite(array).all():
        raise InputError("expected finite results, but got NaN or inf; leave a run that diverged out, and say so")
    return array


def pairs(first: Sequence[float], second: Sequence[float], *, at_least: int = 1) -> npt.NDArray[np.float64]:
    """The differences of two lists that pair."""
    a, b = numbers(first, at_least=at_least), numbers(second, at_least=at_least)
    if len(a) != len(b):
        raise InputError(f"expected two lists of equally many results to pair, but got {len(a)} and {len(b)}")
    return a - b
