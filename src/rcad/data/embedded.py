"""The small data sets inside scikit-learn: nothing to download."""

from __future__ import annotations

import difflib
import functools
from types import ModuleType
from typing import Any

import numpy as np

from rcad.data.dataset import Dataset, Split
from rcad.errors import InputError, need

NAMES = ("digits", "breast_cancer", "wine_recognition", "diabetes")


def load(name_or_path: str) -> Dataset:
    """Read one of `NAMES`; none has a test set of its own.

    "digits" are images, uint8 (1797, 1, 8, 8); the others are tables, float32 and unscaled. "diabetes" is
    regression.
    """
    if name_or_path not in NAMES:
        near = difflib.get_close_matches(name_or_path, NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "choose one of these"
        raise InputError(f"expected one of {', '.join(NAMES)}, but got {name_or_path!r}; {hint}")
    bunch = _read(name_or_path, need("sklearn.datasets", "scikit-learn", "sklearn"))
    if name_or_path == "digits":
        return _digits(bunch)
    if name_or_path == "diabetes":
        return _diabetes(bunch)
    return Dataset(
        name_or_path,
        "classification",
        Split(bunch.data.astype(np.float32), bunch.target.astype(np.int64)),
        classes=tuple(map(str, bunch.target_names)),
        columns=tuple(map(str, bunch.feature_names)),
        note=f"scikit-learn's {name_or_path}: {len(bunch.target)} rows, {bunch.data.shape[1]} columns",
    )


@functools.cache
def _read(name: str, sources: ModuleType) -> Any:
    """As scikit-learn gives it, kept: reading takes longer than a short run's training. Data sets are copies of it."""
    if name == "diabetes":
        # The default is scaled with the statistics of all rows, test rows among them.
        return sources.load_diabetes(scaled=False)
    loaders = {"digits": "load_digits", "wine_recognition": "load_wine", "breast_cancer": "load_breast_cancer"}
    return getattr(sources, loaders[name])()


def _digits(bunch: Any) -> Dataset:
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    return Dataset(
        "digits",
        "classification",
        Split(pixels, bunch.target.astype(np.int64)),
        classes=tuple(map(str, range(10))),
        note=f"scikit-learn's digits: {len(pixels)} images of 8x8, their levels 0..16 rounded to 0..255",
    )


def _diabetes(bunch: Any) -> Dataset:
    return Dataset(
        "diabetes",
        "regression",
        Split(bunch.data.astype(np.float32), bunch.target.astype(np.float32)),
        columns=tuple(map(str, bunch.feature_names)),
        note=f"scikit-learn's diabetes: {len(bunch.target)} rows, unscaled, progression after a year",
    )
