"""From the columns of a table to features: numbers stay numbers, text becomes one-hot. No statistics are taken."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.data.scaling import Real, beyond_float64, compact
from rcad.data.table_files import Table
from rcad.errors import InputError

UNKNOWN = "?"
"""The level of a value that is missing, or that was not there when the encoder was fitted."""

# What float32 holds; beyond it a finite number would turn into an infinite one.
_LARGEST = float(np.finfo(np.float32).max)

# With so many different numbers for each word a column holds numbers, and the words are slips or stand for a gap.
_MANY_NUMBERS = 20


@dataclass(frozen=True)
class ColumnCode:
    """How one column is encoded: as a number where `levels` is None, else one-hot with a last level `UNKNOWN`."""

    name: str
    levels: tuple[str, ...] | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features."""
        if self.levels is None:
            return (self.name,)
        return tuple(f"{self.name}={level}" for level in (*self.levels, UNKNOWN))


@dataclass(frozen=True)
class TableEncoder:
    """The encoding of a table's feature columns, frozen so that a new file is encoded like the first."""

    codes: tuple[ColumnCode, ...]

    @classmethod
    def fit(
        cls,
        table: Table,
        columns: Sequence[int],
        *,
        numeric: Collection[str] = (),
        categorical: Collection[str] = (),
        max_levels: int = 100,
    ) -> TableEncoder:
        """Choose an encoding for each of `columns`.

        A column is numeric when all its values are numbers. Levels are sorted, so that the order of the rows does
        not matter.

        Args:
            table: all rows; only which levels exist is taken from them.
            columns: positions of the features in the table.
            numeric: names of columns where anything but a number is an error.
            categorical: names of columns that are one-hot even if they hold numbers.
            max_levels: more than these are taken for a mistake (an identifier, a typing error in a number).
        """
        codes = [_choose(table, j, numeric, categorical, max_levels) for j in columns]
        return cls(tuple(codes))

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the D features."""
        return tuple(name for code in self.codes for name in code.features)

    def transform(self, table: Table) -> Real:
        """Encode a table that has the encoder's columns by name, in any order.

        Returns:
            (N, D), float32 unless that would blur a column: numbers with NaN for missing, and 0 or 1 for levels.
        """
        parts = []
        for code in self.codes:
            if code.name not in table.names:
                raise InputError(f"expected a column {code.name!r} in {table.path}, but it is missing; add it")
            j = table.names.index(code.name)
            if code.levels is None:
                parts.append(numbers(table, j)[:, None])
            else:
                parts.append(_one_hot(table, j, code.levels))
        return compact(np.hstack(parts))

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"codes": [{"name": c.name, "levels": c.levels and list(c.levels)} for c in self.codes]}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> TableEncoder:
        codes = (ColumnCode(c["name"], None if c["levels"] is None else tuple(c["levels"])) for c in state["codes"])
        return cls(tuple(codes))


def numbers(table: Table, column: int) -> npt.NDArray[np.float64]:
    """A column as float64 (N,) with NaN for missing; anything else is an error that says where."""
    values = table.columns[column]
    if isinstance(values, np.ndarray):
        parsed = values
    else:
        parsed = np.empty(len(values))
        for row, text in enumerate(values):
            number = np.nan if text is None else number_of(text)
            if number is None:
                raise InputError(f"expected a number in {table.where(row, column)}, but got {text!r}")
            parsed[row] = number
    with np.errstate(invalid="ignore"):
        large = np.flatnonzero(np.abs(parsed) > _LARGEST)
    if len(large):
        row = int(large[0])
        raise InputError(f"expected a finite number in {table.where(row, column)}, but got {_shown(values[row])}")
    return parsed


def number_of(text: str) -> float | None:
    """The number that a text is, or None. Python's "1_000" is not one."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def check_commas(table: Table, column: int) -> None:
    """Numbers written with commas ("1,5", "1,234.50") would pass for text, and each for a level of its own."""
    texts = [text for text in table.columns[column] if isinstance(text, str)]
    row = next((r for r, text in enumerate(table.columns[column]) if isinstance(text, str) and "," in text), None)
    if row is not None and all(number_of(text.replace(",", "")) is not None for text in texts):
        raise InputError(
            f"expected a number without commas in {table.where(row, column)}, but got "
            f"{_shown(table.columns[column][row])!r}; write 1.5 for 1,5 and 1000 for 1,000"
        )


def check_slips(table: Table, column: int) -> None:
    """A word or two among many different numbers would make a level of each number."""
    texts = table.columns[column]
    levels = {text for text in texts if isinstance(text, str)}
    strange = {text for text in levels if number_of(text) is None}
    if len(levels) - len(strange) >= _MANY_NUMBERS * len(strange):
        row = next(r for r, text in enumerate(texts) if text in strange)
        raise InputError(
            f"expected a number in {table.where(row, column)}, but got {_shown(texts[row])!r} among "
            f"{len(levels) - len(strange)} different numbers; correct it, or leave it empty if it is missing"
        )


def labels(table: Table, column: int) -> list[str | None]:
    """A column as text with None for missing; whole numbers are written without a point."""
    values = table.columns[column]
    if isinstance(values, list):
        return values
    return [None if np.isnan(v) else repr(int(v)) if v.is_integer() else repr(v) for v in values.tolist()]


def _choose(
    table: Table, j: int, numeric: Collection[str], categorical: Collection[str], max_levels: int
) -> ColumnCode:
    name = table.names[j]
    values = table.columns[j]
    if name not in categorical:
        strange = next((t for t in values if isinstance(t, str) and number_of(t) is None), None)
        if name in numeric or strange is None:
            if beyond_float64(numbers(table, j)):
                raise InputError(
                    f"expected column {name!r} of {table.path} to hold numbers that float64 tells apart, but they are "
                    "beyond 2^53 and too close; is it an identifier? remove the column"
                )
            return ColumnCode(name)
        check_commas(table, j)
        check_slips(table, j)
    seen = labels(table, j)
    levels = sorted({level for level in seen if level is not None})
    if len(levels) > max_levels:
        row = next((r for r, t in enumerate(seen) if t is not None and number_of(t) is None), 0)
        raise InputError(
            f"expected numbers or at most {max_levels} levels in {table.where(row, j)}, but got {seen[row]!r} and "
            f"{len(levels)} levels; correct it, drop the column or raise max_levels"
        )
    return ColumnCode(name, tuple(levels))


def _one_hot(table: Table, column: int, levels: tuple[str, ...]) -> npt.NDArray[np.float64]:
    place = {level: k for k, level in enumerate(levels)}
    index = [len(levels) if t is None else place.get(t, len(levels)) for t in labels(table, column)]
    return np.eye(len(levels) + 1)[index]


def _shown(value: str | float | None) -> str:
    """A value for a message, however long the file has it."""
    text = str(value)
    return text if len(text) <= 24 else f"{text[:20]}..."
