"""From arrays, sparse matrices and DataFrames to rcad's tables and their standardised features."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import check_consistent_length, validate_data

from rcad.data.scaling import Standardizer
from rcad.data.table_encoder import ColumnCode, TableEncoder, TableFeatures, frequent_levels
from rcad.data.table_files import Column, Table, Text
from rcad.errors import InputError

Array = npt.NDArray[Any]

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


def learn(table: Table, weight: Array | None = None) -> TableFeatures:
    """How a table becomes standardised features, from training rows that count as much as they weigh."""
    levels = [
        frequent_levels(column, MOST_LEVELS) if isinstance(column, Text) else None for column in table.columns.values()
    ]
    encoder = TableEncoder(tuple(map(ColumnCode, table.names, levels)))
    return TableFeatures(encoder, Standardizer.fit(encoder.transform(table, np.inf), weight))


def categorical_of(features: TableFeatures) -> tuple[int, ...]:
    """The positions of the columns of text."""
    return tuple(j for j, code in enumerate(features.encoder.codes) if code.levels is not None)


def precision_of(table: Table) -> type[np.floating[Any]]:
    """The dtype of the features: float32 if all numbers of the table are."""
    kinds = {column.dtype for column in table.columns.values() if not isinstance(column, Text)}
    return np.float32 if kinds == {np.dtype(np.float32)} else np.float64


def _table(columns: Sequence[Column], length: int) -> Table:
    """A Table with column numbers as names: scikit-learn checks the real ones."""
    return Table(Path("X"), {str(j): column for j, column in enumerate(columns)}, length, lambda row: f"row {row}")


def read(
    estimator: Any, x: Any, y: Any = "no_validation", *, categorical: tuple[int, ...] | None = None
) -> tuple[Table, Any]:
    """A Table from what the user gave, and `y`, which is else scikit-learn's word for none.

    The estimator learns the columns, or checks them where `categorical` says which were text in training.
    """
    alone = isinstance(y, str) and y == "no_validation"
    options = {"y": y, "reset": categorical is None} | ({} if alone else {"multi_output": True})
    texts = _text_columns(x) if categorical is None else categorical
    if not texts:
        checked = validate_data(
            estimator, x, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite="allow-nan", **options
        )
        numbers, y = (checked, y) if alone else checked
        return _table(list(_bounded(_dense(numbers), x, range(numbers.shape[1])).T), numbers.shape[0]), y
    validate_data(estimator, x, skip_check_array=True, **options)
    frame = x if hasattr(x, "iloc") else pd.DataFrame(np.asarray(x, dtype=object))
    if not len(frame):
        raise InputError(f"expected at least one row, but got a table of shape {frame.shape}")
    numeric = [j for j in range(frame.shape[1]) if j not in texts]
    numbers = np.column_stack([_numbers(frame, j) for j in numeric]) if numeric else np.empty((len(frame), 0))
    columns: dict[int, Column] = dict(zip(numeric, _bounded(numbers, frame, numeric).T, strict=True))
    columns |= {j: Text(_texts(frame, j)) for j in texts}
    if categorical is None:
        _warn_of_names(frame, columns)
    if not alone:
        check_consistent_length(frame, y)
    return _table([columns[j] for j in range(frame.shape[1])], len(frame)), y


def _text_columns(x: Any) -> tuple[int, ...]:
    """Positions of the columns of a DataFrame that hold no numbers; Python objects may be numbers, too."""
    if not (hasattr(x, "iloc") and getattr(x, "ndim", 0) == 2):
        return ()
    texts = []
    for j, dtype in enumerate(x.dtypes):
        if getattr(dtype, "kind", "") in "mM" or isinstance(dtype, pd.PeriodDtype):
            raise _holds(x, j, dtype)
        objects = x.iloc[:, j].dropna() if pd.api.types.is_object_dtype(dtype) else ()
        are_numbers = len(objects) > 0 and all(isinstance(value, Real | Decimal) for value in objects)
        if not (are_numbers or pd.api.types.is_numeric_dtype(dtype)):
            texts.append(j)
    return tuple(texts)


def _holds(frame: Any, j: int, kind: Any) -> InputError:
    return InputError(
        f"expected numbers or categories, but column {frame.columns[j]!r} holds {kind}; extract numbers from it"
    )


def _dense(numbers: Any) -> Any:
    if not hasattr(numbers, "toarray"):
        return numbers
    size = float(numbers.shape[0]) * numbers.shape[1] * numbers.dtype.itemsize
    words = f"a sparse matrix of shape {numbers.shape} becomes {size / 1e9:.3g} GB when it is made dense"
    if size > LARGE:
        warnings.warn(f"{words}; reduce its columns before, e.g. with TruncatedSVD", stacklevel=CALLER + 1)
    try:
        return numbers.toarray()
    except MemoryError:
        raise InputError(f"expected a table that fits into memory, but {words}; reduce its columns before") from None


def _numbers(frame: Any, j: int) -> Array:
    try:
        values: Array = frame.iloc[:, j].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise InputError(f"expected numbers in column {frame.columns[j]!r} as in training, but got text") from None
    if np.isinf(values).any():
        raise InputError(f"expected finite numbers or gaps, but column {frame.columns[j]!r} contains infinity")
    return values


def _bounded(numbers: Array, x: Any, places: Any) -> Array:
    """The numbers; raises if one is so large that its square overflows."""
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


def _texts(frame: Any, j: int) -> list[str | None]:
    """The categories of a column; what is neither text nor number is refused unless it was declared a category."""
    column = frame.iloc[:, j]
    if not isinstance(column.dtype, pd.CategoricalDtype):
        for value in column:
            if isinstance(value, CONTAINERS) or (isinstance(value, TIMES) and value is not pd.NaT):
                raise _holds(frame, j, f"a {type(value).__name__}")
    return list(map(_level, column))


def _level(value: Any) -> str | None:
    """A category as text; 2 and 2.0 are the same, since gaps make floats of whole numbers."""
    if pd.isna(value):
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return repr(int(value))
    return str(value)


def _warn_of_names(frame: Any, columns: dict[int, Column]) -> None:
    """Warns of columns whose text is different in nearly every row: they name the rows and predict nothing."""
    for j, column in columns.items():
        distinct = len(column.levels) if isinstance(column, Text) else 0
        if distinct > MOST_LEVELS and 2 * distinct > len(frame):
            warnings.warn(
                f"column {frame.columns[j]!r} holds {distinct} different texts in {len(frame)} rows, of which the "
                f"{MOST_LEVELS} most frequent become features; leave it out if it names the rows",
                stacklevel=CALLER + 1,
            )


FEW_ROWS = 10
"""A first batch of fewer rows says little of the columns' scales."""
NAMED = 3
"""How many columns a warning names."""


def heavy(table: Table, y: Array, weight: Array, name: str) -> tuple[Table, Array, Array]:
    """The examples of weight above zero."""
    rows = np.flatnonzero(weight)
    if not len(rows):
        raise InputError(f"expected a {name} above zero, but got only zeros")
    return (table, y, weight) if len(rows) == len(y) else (table.take(rows), y[rows], weight[rows])


def split(y: Array, share: float, seed: int, *, stratified: bool) -> tuple[Array, Array]:
    """Positions to train on and to hold out for early stopping; stratified, each class in proportion."""
    try:
        rows, held = train_test_split(
            np.arange(len(y)), test_size=share, random_state=seed, stratify=y if stratified else None
        )
    except ValueError as error:
        reason = str(error).split(". ")[0].rstrip(".")
        raise InputError(
            f"expected enough rows for early_stopping to hold out a share of {share:g}, but got {len(y)} rows: "
            f"{reason}; raise validation_fraction or set early_stopping=False"
        ) from None
    return np.sort(rows), np.sort(held)


def warn_of_scales(table: Table, names: Sequence[Any]) -> None:
    """Warns if the first batch of `partial_fit`, which sets the scales, says little of them."""
    numeric = [(j, column) for j, column in enumerate(table.columns.values()) if not isinstance(column, Text)]
    same = [str(names[j]) for j, column in numeric if _constant(column)]
    if len(table) >= FEW_ROWS and not same:
        return
    listed = ", ".join(same[:NAMED]) + (", ..." if len(same) > NAMED else "")
    rows = f"{len(table)} rows" + (f" with one value only in column {listed}" if same else "")
    warnings.warn(
        f"the first batch of partial_fit sets the scales of the columns for good, and it has {rows}; begin with more",
        stacklevel=CALLER,
    )


def _constant(column: Array) -> bool:
    """Whether a column has no scale: one value only, and not zeros or ones."""
    numbers = column[~np.isnan(column)]
    return not len(numbers) or bool(numbers.min() == numbers.max() and numbers[0] not in (0, 1))
