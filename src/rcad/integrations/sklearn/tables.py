"""What a user calls a table, read by kind of column: numbers, and categories as text."""

from __future__ import annotations

import datetime
import warnings
from dataclasses import dataclass
from decimal import Decimal
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
LARGE = 1e9
"""Bytes from which on a sparse matrix is not made dense without a word."""
LARGEST = 1e150
"""Beyond it the sum of squares, which a deviation needs, may not be finite."""
TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64, pd.Period)
CONTAINERS = (list, dict, set, frozenset, np.ndarray, pd.Series, pd.DataFrame)
CALLER = 4
"""How many calls the user's line is above a warning: fit, _fit, read."""


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

    def constant(self) -> list[int]:
        """Positions in the table of the numeric columns that have no scale: one value only, and not zeros or ones."""
        x, missing = self.numbers, np.isnan(self.numbers)
        low, high = np.where(missing, np.inf, x).min(0), np.where(missing, -np.inf, x).max(0)
        numeric = [j for j in range(x.shape[1] + len(self.categorical)) if j not in self.categorical]
        return [numeric[k] for k in np.flatnonzero((low >= high) & (low != 0) & (low != 1))]


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
        table = Table(_bounded(_dense(numbers), x, range(numbers.shape[1])))
        return (table, target) if isinstance(checked, tuple) else table
    checked = validate_data(estimator, x, skip_check_array=True, **given)
    frame = x if hasattr(x, "iloc") else pd.DataFrame(np.asarray(x, dtype=object))
    if not len(frame):
        raise InputError(f"expected at least one row, but got a table of shape {frame.shape}")
    rest = [j for j in range(frame.shape[1]) if j not in found]
    numbers = np.column_stack([_numbers(frame, j) for j in rest]) if rest else np.empty((len(frame), 0))
    texts = tuple(_texts(frame, j) for j in found)
    if categorical is None:
        _warn_of_names(frame, found, texts)
    table = Table(_bounded(numbers, frame, rest), texts, found)
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
        if getattr(dtype, "kind", "") in "mM" or isinstance(dtype, pd.PeriodDtype):
            raise _holds(x, j, dtype)
        if not pd.api.types.is_numeric_dtype(dtype) and not _numeric_objects(x.iloc[:, j]):
            found.append(j)
    return tuple(found)


def _numeric_objects(column: Any) -> bool:
    """Whether a column of Python objects holds nothing but numbers and gaps."""
    if column.dtype != object:
        return False
    values = column.dropna()
    return len(values) > 0 and all(isinstance(v, Real | Decimal) for v in values)


def _holds(frame: Any, j: int, what: Any) -> InputError:
    return InputError(
        f"expected numbers or categories, but column {frame.columns[j]!r} holds {what}; extract numbers from it"
    )


def _dense(numbers: Any) -> Array:
    if not hasattr(numbers, "toarray"):
        dense: Array = numbers
        return dense
    size = float(numbers.shape[0]) * numbers.shape[1] * numbers.dtype.itemsize
    told = f"a sparse matrix of shape {numbers.shape} becomes {size / 1e9:.3g} GB when it is made dense"
    if size > LARGE:
        warnings.warn(f"{told}; reduce its columns before, e.g. with TruncatedSVD", stacklevel=CALLER + 1)
    try:
        dense = numbers.toarray()
    except MemoryError:
        raise InputError(f"expected a table that fits into memory, but {told}; reduce its columns before") from None
    return dense


def _numbers(frame: Any, j: int) -> Array:
    try:
        values: Array = frame.iloc[:, j].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise InputError(f"expected numbers in column {frame.columns[j]!r} as in training, but got text") from None
    if np.isinf(values).any():
        raise InputError(f"expected finite numbers or gaps, but column {frame.columns[j]!r} contains infinity")
    return values


def _bounded(numbers: Array, x: Any, places: Any) -> Array:
    """The numbers, none of them so large that a square overflows."""
    # NaN compares as False; a float32 cannot get there.
    large = (np.abs(numbers) >= LARGEST).any(0) if numbers.dtype == np.float64 else np.zeros(0)
    if large.any():
        j = list(places)[int(np.argmax(large))]
        name = x.columns[j] if hasattr(x, "columns") else j
        most = np.nanmax(np.abs(numbers[:, int(np.argmax(large))]))
        raise InputError(
            f"expected numbers below {LARGEST:g}, so that their squares are finite, but column {name!r} holds "
            f"{most:g}; change its unit"
        )
    return numbers


def _texts(frame: Any, j: int) -> tuple[Level, ...]:
    """The categories of a column; what is neither text nor number is refused unless it was declared a category."""
    column = frame.iloc[:, j]
    if not isinstance(column.dtype, pd.CategoricalDtype):
        for value in column:
            if isinstance(value, CONTAINERS):
                raise _holds(frame, j, f"a {type(value).__name__}")
            if isinstance(value, TIMES) and value is not pd.NaT:
                raise _holds(frame, j, f"a {type(value).__name__}")
    return tuple(map(_level, column))


def _level(value: Any) -> Level:
    """A category as text, the same whether gaps have made floats of its whole numbers or not."""
    if pd.isna(value):
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return repr(int(value))
    return str(value)


def _warn_of_names(frame: Any, found: tuple[int, ...], texts: tuple[tuple[Level, ...], ...]) -> None:
    """A text that is different in nearly every row names the row and predicts nothing."""
    for j, column in zip(found, texts, strict=True):
        distinct = len(set(column))
        if distinct > MOST_LEVELS and 2 * distinct > len(column):
            warnings.warn(
                f"column {frame.columns[j]!r} holds {distinct} different texts in {len(column)} rows, of which the "
                f"{MOST_LEVELS} most frequent become features; leave it out if it names the rows",
                stacklevel=CALLER + 1,
            )
