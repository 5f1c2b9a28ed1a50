"""From a table to standardised features: numbers scaled, gaps filled and marked, categories one-hot.

Statistics come from the training rows and count each as much as it weighs, so that a weight of two is two rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_consistent_length, validate_data

from rcad.errors import InputError

Array = npt.NDArray[Any]
Level = str | None
"""A category as text; None is a missing value."""

MOST_LEVELS = 100
"""Of a column with more categories the most frequent are kept; the others are read like unseen ones."""


@dataclass(frozen=True)
class Table:
    """The rows of a table by kind of column.

    Args:
        numbers: (N, A), NaN where one is missing.
        texts: for each of the B categorical columns one level per row.
        categorical: their positions in the table.
    """

    numbers: Array
    texts: tuple[tuple[Level, ...], ...] = ()
    categorical: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: Array) -> Table:
        texts = tuple(tuple(column[i] for i in rows) for column in self.texts)
        return Table(self.numbers[rows], texts, self.categorical)


def read(estimator: Any, x: Any, y: Any = "no_validation", *, categorical: tuple[int, ...] | None = None) -> Any:
    """A Table from what the user gave; with `y` a pair of both.

    Args:
        estimator: which learns number and names of the columns, or checks them where `categorical` is given.
        y: the target, or scikit-learn's word for none.
        categorical: the positions known from training; None finds them.
    """
    given = {"y": y, "reset": categorical is None}
    found = _text_columns(x) if categorical is None else categorical
    if not found:
        checked = validate_data(
            estimator,
            x,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            **given,
        )
        numbers, target = checked if isinstance(checked, tuple) else (checked, None)
        table = Table(numbers.toarray() if hasattr(numbers, "toarray") else numbers)
        return (table, target) if isinstance(checked, tuple) else table
    checked = validate_data(estimator, x, skip_check_array=True, **given)
    frame = x if hasattr(x, "iloc") else pd.DataFrame(np.asarray(x, dtype=object))
    if not len(frame):
        raise InputError(f"expected at least one row, but got a table of shape {frame.shape}")
    rest = [j for j in range(frame.shape[1]) if j not in found]
    numbers = np.column_stack([_numbers(frame, j) for j in rest]) if rest else np.empty((len(frame), 0))
    table = Table(numbers, tuple(tuple(map(_level, frame.iloc[:, j])) for j in found), found)
    if not isinstance(checked, tuple):
        return table
    check_consistent_length(frame, y)
    return table, y


def _text_columns(x: Any) -> tuple[int, ...]:
    """Positions of the columns of a DataFrame that hold no numbers."""
    if not (hasattr(x, "iloc") and getattr(x, "ndim", 0) == 2):
        return ()
    found = []
    for j, dtype in enumerate(x.dtypes):
        if getattr(dtype, "kind", "") in "mM":
            raise InputError(
                f"expected numbers or categories, but column {x.columns[j]!r} holds {dtype}; turn times into numbers"
            )
        if not pd.api.types.is_numeric_dtype(dtype) and not _numeric_objects(x.iloc[:, j]):
            found.append(j)
    return tuple(found)


def _numeric_objects(column: Any) -> bool:
    """Whether a column of Python objects holds nothing but numbers and gaps."""
    if column.dtype != object:
        return False
    values = column.dropna()
    return len(values) > 0 and all(isinstance(v, Real) for v in values)


def _numbers(frame: Any, j: int) -> Array:
    try:
        values: Array = frame.iloc[:, j].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise InputError(f"expected numbers in column {frame.columns[j]!r} as in training, but got text") from None
    if np.isinf(values).any():
        raise InputError(f"expected finite numbers or gaps, but column {frame.columns[j]!r} contains infinity")
    return values


def _level(value: Any) -> Level:
    """A category as text, the same whether gaps have made floats of its whole numbers or not."""
    if pd.isna(value):
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return repr(int(value))
    return str(value)


@dataclass(frozen=True)
class Columns:
    """How a table becomes features, learned from the training rows.

    Args:
        mean, scale: of each numeric column, subtracted and divided by; 0 and 1 for columns of zeros and ones, whose
            rare ones scaling would blow up.
        fill: what a gap becomes: the column's mean.
        gaps: the numeric columns that get a second feature, 1 where the value is missing.
        categorical: positions of the categorical columns in the table.
        levels: their categories; one that is not among them, a gap included, becomes zeros.
    """

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    fill: tuple[float, ...]
    gaps: tuple[int, ...] = ()
    categorical: tuple[int, ...] = ()
    levels: tuple[tuple[Level, ...], ...] = ()

    @classmethod
    def fit(cls, table: Table, weight: Array | None = None) -> Columns:
        """Take the statistics of training rows, each counting as much as it weighs."""
        x, missing = table.numbers.astype(np.float64), np.isnan(table.numbers)
        share = np.where(missing, 0.0, np.ones(len(x))[:, None] if weight is None else weight[:, None])
        total = np.maximum(share.sum(0), np.finfo(np.float64).tiny)
        known = np.where(missing, 0.0, x)
        mean = (share * known).sum(0) / total
        scale = np.sqrt((share * (known - mean) ** 2).sum(0) / total)
        low, high = np.where(missing, np.inf, x).min(0), np.where(missing, -np.inf, x).max(0)
        # A constant column has no scale of its own: it becomes zero, whatever rounding its mean suffered.
        scale = np.where((low < high) & (scale > 0), scale, 1.0)
        binary = (missing | (x == 0) | (x == 1)).all(0)
        return cls(
            tuple(np.where(binary, 0.0, np.where(low == high, low, mean)).tolist()),
            tuple(np.where(binary, 1.0, scale).tolist()),
            tuple(mean.tolist()),
            tuple(np.flatnonzero(missing.any(0)).tolist()),
            table.categorical,
            tuple(_levels(column) for column in table.texts),
        )

    def transform(self, table: Table) -> Array:
        """(N, D) features, in the precision of the table's numbers."""
        x = table.numbers
        missing = np.isnan(x)
        filled = np.where(missing, np.asarray(self.fill), x)
        parts = [(filled - np.asarray(self.mean)) / np.asarray(self.scale), missing[:, list(self.gaps)]]
        for column, levels in zip(table.texts, self.levels, strict=True):
            place = {level: k for k, level in enumerate(levels)}
            one_hot = np.eye(len(levels) + 1)[[place.get(level, len(levels)) for level in column]]
            parts.append(one_hot[:, :-1])
        return np.hstack(parts).astype(x.dtype)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Columns:
        levels = tuple(tuple(column) for column in state["levels"])
        return cls(**{**{key: tuple(value) for key, value in state.items()}, "levels": levels})


def _levels(column: tuple[Level, ...]) -> tuple[Level, ...]:
    """The categories of a column, sorted, so that the order of the rows does not matter; gaps last."""
    counts = Counter(column)
    often = sorted(counts, key=lambda level: (-counts[level], level is None, level or ""))[:MOST_LEVELS]
    return tuple(sorted(often, key=lambda level: (level is None, level or "")))
