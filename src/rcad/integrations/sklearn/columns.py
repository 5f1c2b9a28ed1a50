"""From a table to standardised features: numbers scaled, gaps filled and marked, categories one-hot.

Statistics come from the training rows and count each as much as it weighs, so that a weight of two is two rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rcad.integrations.sklearn.tables import MOST_LEVELS, Array, Level, Table


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
