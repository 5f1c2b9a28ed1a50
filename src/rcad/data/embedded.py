"""The small data sets inside scikit-learn: nothing to download."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np

from rcad.data.dataset import Dataset, Split
from rcad.errors import need, one_of

_LOADERS = {
    "digits": "load_digits",
    "breast_cancer": "load_breast_cancer",
    "wine_recognition": "load_wine",
    "diabetes": "load_diabetes",
}
NAMES = tuple(_LOADERS)


def load(name_or_path: str) -> Dataset:
    """Read one of `NAMES`; none has a test set of its own.

    "digits" are images, uint8 (1797, 1, 8, 8); the others are tables, float32 and unscaled. "diabetes" is
    regression.
    """
    one_of("the name", name_or_path, NAMES)
    bunch = _read(name_or_path, need("sklearn.datasets", "scikit-learn", "sklearn"))
    rows, columns = bunch.data.shape
    about = f"scikit-learn's {name_or_path}: {rows}"
    if name_or_path == "digits":
        pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
        split = Split(pixels, bunch.target.astype(np.int64))
        note = f"{about} images of 8x8, their levels 0..16 rounded to 0..255"
        return Dataset(name_or_path, "classification", split, classes=tuple(map(str, range(10))), note=note)
    x, names = bunch.data.astype(np.float32), tuple(map(str, bunch.feature_names))
    if name_or_path == "diabetes":
        split = Split(x, bunch.target.astype(np.float32))
        note = f"{about} rows, unscaled, progression after a year"
        return Dataset(name_or_path, "regression", split, columns=names, note=note)
    split, classes = Split(x, bunch.target.astype(np.int64)), tuple(map(str, bunch.target_names))
    note = f"{about} rows, {columns} columns"
    return Dataset(name_or_path, "classification", split, classes=classes, columns=names, note=note)


@functools.cache
def _read(name: str, sources: ModuleType) -> Any:
    """As scikit-learn gives it, kept: reading takes longer than a short run's training. Data sets are copies of it."""
    # By default diabetes is scaled with the statistics of all rows, test rows among them.
    options = {"scaled": False} if name == "diabetes" else {}
    return getattr(sources, _LOADERS[name])(**options)
