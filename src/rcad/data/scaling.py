"""Statistics of a table, fitted on training rows only and then frozen, so that a test row cannot leak."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.errors import InputError, shaped, shown

Array = npt.NDArray[np.float32]
Real = npt.NDArray[np.float32] | npt.NDArray[np.float64]

_TOLERANCE = 1e-3  # rounding to float32 may move a column by this share of its deviation


@dataclass(frozen=True)
class Standardizer:
    """Fill in what is missing, by `median`, say where, and scale: (N, D) -> (N, D + M) for M columns with gaps.

    Args:
        mean, scale: subtracted, and divided by (> 0), per column.
        indicators: the columns that get another column, 1 where the value was missing and 0 elsewhere.
    """

    median: tuple[float, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    indicators: tuple[int, ...] = ()

    @classmethod
    def fit(
        cls, x: npt.NDArray[Any], weight: npt.NDArray[Any] | None = None, *, keep_binary: bool = True
    ) -> Standardizer:
        """Take the statistics of the training rows (N, D), finite or NaN for missing; a `weight` of two is two rows.

        `keep_binary` leaves columns of 0 and 1 as they are: scaling one-hot columns would blow up rare levels.
        """
        rows = _rows(x).astype(np.float64)
        if np.isinf(rows).any():
            raise InputError("expected finite numbers or NaN in the training rows, but got an infinite one")
        gaps = np.isnan(rows)
        median, mean, scale = (np.full(rows.shape[1], v) for v in (0.0, 0.0, 1.0))
        for j in np.flatnonzero(~gaps.all(axis=0)):
            present = ~gaps[:, j]
            seen, share = rows[present, j], None if weight is None else weight[present]
            median[j] = np.median(seen) if share is None else _weighted_median(seen, share)
            if keep_binary and np.isin(seen, (0.0, 1.0)).all():
                continue
            if seen.min() == seen.max():
                mean[j] = seen[0]  # exactly, so that a constant column, which has no scale, becomes zero
                continue
            mean[j] = seen.mean() if share is None else np.average(seen, weights=share)
            spread = seen.std() if share is None else np.sqrt(np.average((seen - mean[j]) ** 2, weights=share))
            scale[j] = spread if spread > 0 else 1.0
        indicators = np.flatnonzero(gaps.any(axis=0))
        return cls(tuple(median.tolist()), tuple(mean.tolist()), tuple(scale.tolist()), tuple(indicators.tolist()))

    def transform(self, x: npt.NDArray[Any], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
        """(N, D) with NaN for missing -> (N, D + M) of `dtype` without any."""
        rows = _rows(x).astype(np.float64)
        if rows.shape[1] != len(self.mean):
            raise InputError(f"expected {len(self.mean)} columns, but got {rows.shape[1]}")
        gaps = np.isnan(rows)
        filled = np.where(gaps, np.asarray(self.median), rows)
        scaled = (filled - np.asarray(self.mean)) / np.asarray(self.scale)
        return np.hstack([scaled, gaps[:, list(self.indicators)]]).astype(dtype)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Standardizer:
        """The scales that `to_dict` wrote; raises an InputError for anything else."""
        plain = shaped("the scales", state, {"median": [float], "mean": [float], "scale": [float], "indicators": [int]})
        scales = cls(**{field.name: tuple(plain[field.name]) for field in fields(cls)})
        size = len(scales.mean)
        if not len(scales.median) == len(scales.scale) == size or not all(0 <= j < size for j in scales.indicators):
            raise InputError(f"expected a median, a mean and a scale for each column, but got {shown(plain)}")
        if not all(scale > 0 for scale in scales.scale):
            raise InputError(f"expected scales above 0, but got {shown(scales.scale)}")
        return scales


@dataclass(frozen=True)
class TargetScaler:
    """Real targets with mean 0 and deviation 1 on the training rows.

    A density in scaled units is `scale` times the one in the target's units: add log(scale) to an NLL.
    """

    mean: float
    scale: float

    @classmethod
    def fit(cls, y: npt.NDArray[Any]) -> TargetScaler:
        """Take the statistics of the training targets (N,)."""
        values = np.asarray(y, dtype=np.float64)
        if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
            raise InputError(f"expected finite targets of shape (N,), but got shape {values.shape}")
        if values.min() == values.max():
            raise InputError(f"expected training targets that differ, but all are {values[0]:g}")
        return cls(float(values.mean()), float(values.std()))

    def transform(self, y: npt.NDArray[Any]) -> Array:
        """Targets (N,) -> float32 (N,) in units of the training deviation."""
        return ((np.asarray(y, dtype=np.float64) - self.mean) / self.scale).astype(np.float32)

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def _weighted_median(values: npt.NDArray[np.float64], weight: npt.NDArray[Any]) -> float:
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weight[order].astype(np.float64))
    half, near = total[-1] / 2, 1e-12 * total[-1]
    low, high = np.searchsorted(total, half - near), np.searchsorted(total, half + near)
    return float((values[order[low]] + values[order[min(high, len(order) - 1)]]) / 2)


def _rows(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if x.ndim != 2 or not len(x):
        raise InputError(f"expected rows of shape (N, D), but got shape {x.shape}")
    return x


def compact(values: npt.NDArray[Any]) -> Real:
    """float32, or float64 where float32 would blur a column, e.g. of time stamps: (N,) or (N, D), NaN for missing."""
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
