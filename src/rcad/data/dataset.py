"""What every reader returns: arrays in memory or memory-mapped, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Task = Literal["classification", "regression"]


@dataclass(frozen=True, eq=False)
class Split:
    """Examples and their targets.

    Args:
        x: images as uint8 (N, C, H, W), or features as float32 (N, D).
        y: labels as int64 (N,), or real targets as float32 (N,).

    Features and targets are float64 where float32 would blur them (`rcad.data.precision`).
    """

    x: npt.NDArray[Any]
    y: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: npt.NDArray[np.int64]) -> Split:
        """The examples at `index`, in that order."""
        return Split(self.x[index], self.y[index])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named data set. `test` is None where the source has no split of its own.

    Args:
        name: what the user asked for, e.g. "cifar100".
        task: classification (y holds labels 0..K-1) or regression.
        classes: the class names in label order; empty for regression.
        columns: the feature names of tabular data; empty for images.
        standard_splits: (train, test) index pairs into `train` where the source defines them (UCI has 20).
        note: one line on what was read (source, size), for people.
    """

    name: str
    task: Task
    train: Split
    test: Split | None = None
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    standard_splits: tuple[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], ...] = field(default=())
    note: str = ""

    @property
    def is_image(self) -> bool:
        return self.train.x.ndim == 4
