from __future__ import annotations

import sys

import numpy as np
import pytest

from rcad.data.embedded import NAMES, load
from rcad.errors import InputError, MissingExtraError


def test_digits_are_images() -> None:
    from sklearn.datasets import load_digits

    data = load("digits")
    assert data.is_image
    assert data.train.x.shape == (1797, 1, 8, 8)
    assert data.train.x.dtype == np.uint8
    assert data.train.y.dtype == np.int64
    assert data.classes == tuple("0123456789")
    levels = {int(v): round(v * 255 / 16) for v in range(17)}
    raw = load_digits().images
    assert np.array_equal(data.train.x[:, 0], np.vectorize(levels.get)(raw))
    assert data.train.x.max() == 255
    assert "0..16" in data.note


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("breast_cancer", (569, 30), ("malignant", "benign")),
        ("wine_recognition", (178, 13), ("class_0", "class_1", "class_2")),
        ("diabetes", (442, 10), ()),
    ],
)
def test_tables(name: str, shape: tuple[int, int], classes: tuple[str, ...]) -> None:
    data = load(name)
    assert data.name == name
    assert data.train.x.shape == shape
    assert data.train.x.dtype == np.float32
    assert data.classes == classes
    assert len(data.columns) == shape[1]
    assert data.task == ("classification" if classes else "regression")
    assert data.train.y.dtype == (np.int64 if classes else np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_whoever_writes_into_the_arrays_changes_no_later_reading(name: str) -> None:
    first = load(name)
    x, y = first.train.x.copy(), first.train.y.copy()
    first.train.x[:], first.train.y[:] = 7, 1
    again = load(name)
    assert np.array_equal(again.train.x, x)
    assert np.array_equal(again.train.y, y)


def test_diabetes_is_not_scaled_with_all_rows() -> None:
    data = load("diabetes")
    age = data.train.x[:, data.columns.index("age")]
    assert age.min() == 19
    assert age.max() == 79


def test_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="but got 'digit'; did you mean 'digits'"):
        load("digit")
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    for name in NAMES:
        with pytest.raises(MissingExtraError, match=r'scikit-learn to be installed: pip install "rcad\[sklearn\]"'):
            load(name)
