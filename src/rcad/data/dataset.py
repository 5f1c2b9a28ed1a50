"""What every reader returns: arrays in memory or memory-mapped, what they mean, and the checks of their labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from rcad.errors import InputError

if TYPE_CHECKING:
    from rcad.data.table_encoder import TableEncoder

Task = Literal["classification", "regression"]
Progress = Callable[[int, int], None]
"""Called with how much is done, and of how much."""


@dataclass(frozen=True, eq=False)
class Split:
    """Examples and their targets.

    Args:
        x: an array: images as uint8 (N, C, H, W), or features as float32 (N, D). Images that stay on disk are a
            `rcad.data.streams.Stream`.
        y: labels as int64 (N,), or regression targets as float32 (N,).

    Features and targets are float64 where float32 would blur them (`rcad.data.scaling`).
    """

    x: Any
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
        source: which edition it is, where somebody else keeps it: "hf:owner/name@commit".
        encoder: of a table read from a file, for new rows of the same kind.
        omissions: what of the source was left out, a sentence each: columns that name the rows, images that are broken.
    """

    name: str
    task: Task
    train: Split
    test: Split | None = None
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    standard_splits: tuple[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], ...] = field(default=())
    note: str = ""
    omissions: tuple[str, ...] = ()
    source: str = ""
    encoder: TableEncoder | None = None

    @property
    def is_image(self) -> bool:
        return bool(self.train.x.ndim == 4)


def check_labels(
    labels: npt.NDArray[Any], n_classes: int, origin: Callable[[int], str], first: int = 0
) -> npt.NDArray[np.int64]:
    """Labels as int64 (N,), all in first..first+n_classes-1.

    Args:
        origin: how an error names the label at an index, e.g. "train.bin image 7".
    """
    last = first + n_classes - 1
    wrong = np.flatnonzero((labels < first) | (labels > last))
    if len(wrong):
        index = int(wrong[0])
        raise InputError(
            f"expected labels from {first} to {last}, but got {labels[index]} in {origin(index)}; correct the label"
        )
    return labels.astype(np.int64)


def count_classes(labels: npt.NDArray[Any], origin: Callable[[int], str]) -> int:
    """How many classes training labels imply: the largest plus one.

    More classes than examples means the column holds something else (an id, a year).
    """
    if labels.min() != 0:
        index = int(labels.argmin())
        got, remedy = ("got", "number the classes from 0") if labels[index] < 0 else ("the smallest is", "subtract it")
        raise InputError(f"expected labels from 0, but {got} {labels[index]} in {origin(index)}; {remedy}")
    n_classes = int(labels.max()) + 1
    if n_classes > max(len(labels), 2):
        raise InputError(
            f"expected labels 0..K-1, but got label {n_classes - 1} among {len(labels)} examples "
            f"in {origin(int(labels.argmax()))}; number the classes from 0"
        )
    return n_classes


def check_several(classes: Sequence[str], origin: str) -> None:
    """Classification needs two classes."""
    if len(classes) < 2:
        got = f"only {classes[0]!r}" if classes else "none"
        raise InputError(f"expected at least 2 classes in {origin}, but got {got}; add examples of another class")
