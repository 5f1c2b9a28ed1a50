"""Which rows train: those that weigh something, less those held out; and whether they show the columns' scales."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from rcad.data.table_files import Table, Text
from rcad.errors import InputError
from rcad.integrations.sklearn.tables import CALLER, Array

FEW_ROWS = 10
"""A first batch of fewer rows says little of the columns' scales."""
NAMED = 3
"""How many columns a warning names."""


def heavy(table: Table, y: Array, weight: Array, what: str) -> tuple[Table, Array, Array]:
    """The examples of weight above zero."""
    rows = np.flatnonzero(weight)
    if not len(rows):
        raise InputError(f"expected a {what} above zero, but got only zeros")
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
    """The first batch of `partial_fit` sets the scales for good."""
    numeric = [(j, column) for j, column in enumerate(table.columns) if not isinstance(column, Text)]
    same = [str(names[j]) for j, column in numeric if _constant(column)]
    if len(table) >= FEW_ROWS and not same:
        return
    listed = ", ".join(same[:NAMED]) + (", ..." if len(same) > NAMED else "")
    found = f"{len(table)} rows" + (f" with one value only in column {listed}" if same else "")
    warnings.warn(
        f"the first batch of partial_fit sets the scales of the columns for good, and it has {found}; begin with more",
        stacklevel=CALLER,
    )


def _constant(column: Array) -> bool:
    """Whether a column has no scale: one value only, and not zeros or ones."""
    known = column[~np.isnan(column)]
    return not len(known) or bool(known.min() == known.max() and known[0] not in (0, 1))
