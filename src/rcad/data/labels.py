"""Class labels: every reader's are int64 0..K-1, checked once here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.errors import InputError


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
    if labels.min() < 0:
        index = int(labels.argmin())
        raise InputError(
            f"expected labels from 0, but got {labels[index]} in {origin(index)}; number the classes from 0"
        )
    if labels.min() > 0:
        index = int(labels.argmin())
        raise InputError(
            f"expected labels from 0, but the smallest is {labels[index]} in {origin(index)}; subtract it from all"
        )
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
