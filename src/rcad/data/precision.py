"""How many bits a column of numbers needs. Readers take no statistics, so what they round away is lost for good."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

Real = npt.NDArray[np.float32] | npt.NDArray[np.float64]

# A column may be moved by this share of its deviation.
_TOLERANCE = 1e-3


def compact(values: npt.NDArray[Any]) -> Real:
    """float32, or float64 where float32 would blur a column: time stamps of 1.7e12 ms differ in their last digits.

    Args:
        values: numbers (N,) or (N, D), NaN for missing; each column is looked at by itself.
    """
    if values.dtype == np.float32:
        return values
    wide = values.astype(np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without any number has no largest one
        lost = np.nanmax(np.abs(wide - narrow), axis=0)
        varies = np.nanmin(wide, axis=0) < np.nanmax(wide, axis=0)
        blurred = varies & (lost > _TOLERANCE * np.nanstd(wide, axis=0))
    return wide if blurred.any() else narrow


def beyond_float64(column: npt.NDArray[np.float64]) -> bool:
    """Whether whole numbers are so large that float64 merged those that differ (long identifiers)."""
    seen = column[~np.isnan(column)]
    largest = np.abs(seen).max(initial=0.0)
    return bool(largest > 2.0**53 and np.spacing(largest) > _TOLERANCE * seen.std())
