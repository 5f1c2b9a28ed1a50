"""UCI's files, read and refused; the data sets inside scikit-learn."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from one_line import one_line
from rcad.data.registry import load
from rcad.data.small_sets import EMBEDDED, find_uci, load_embedded, load_uci
from rcad.data.streams import Stream
from rcad.errors import MissingExtraError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A yacht of six rows with two splits, written as the originals are."""
    folder = tmp_path / "uci" / "yacht"
    folder.mkdir(parents=True)
    rows = "\n".join(f" {i}.5 \t{i * i}  {10 - i} " for i in range(6))
    files = {
        "data": rows + "\n\n",
        "index_features": "0\n1.000e+00\n",
        "index_target": "2\n",
        "n_splits": "2\n",
        "index_train_0": "3\n0\n1\n2\n4\n",
        "index_test_0": "5\n",
        "index_train_1": "5\n1\n2\n3\n",
        "index_test_1": "0\n4\n",
    }
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text)
    return tmp_path


def test_reads_rows_and_splits(root: Path) -> None:
    data = load_uci("yacht", data_dir=root)
    assert data.task == "regression"
    assert data.train.x.dtype == data.train.y.dtype == np.float32
    assert data.train.x.tolist() == [[i + 0.5, i * i] for i in range(6)]
    assert data.train.y.tolist() == [10, 9, 8, 7, 6, 5]
    assert data.columns == ("x0", "x1")
    assert [(a.tolist(), b.tolist()) for a, b in data.standard_splits] == [
        ([3, 0, 1, 2, 4], [5]),
        ([5, 1, 2, 3], [0, 4]),
    ]
    assert find_uci("yacht", root) == root / "uci" / "yacht"
    assert find_uci("boston", root) is None
    with one_line(match=r"boston at .*bostonHousing.data.txt, but there is no such file"):
        load_uci("boston", data_dir=root)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("data", "", "rows of numbers in .*data.txt, but the file is empty"),
        ("data", "1 2 3\n1 2\n", "rows of numbers in .*data.txt, but got: .* from 3 to 2"),
        ("data", "1 2 3\n1 x 2\n", "rows of numbers in .*data.txt, but got: .*'x'"),
        ("data", "1 2 3\n1 nan 2\n", "finite numbers in .*data.txt, but got '1 nan 2' in row 2"),
        ("data", "1 2 3\n1 4 3\n", "targets that differ"),
        ("index_features", "0\n3\n", "whole numbers from 0 to 2 in .*index_features.txt, but got 3"),
        ("index_features", "0\n0.5\n", "but got 0.5"),
        ("index_features", "", "numbers in .*index_features.txt, but the file is empty"),
        ("index_target", "0\n", "one column that is no feature in .*index_target.txt"),
        ("n_splits", "x\n", "numbers in .*n_splits.txt, but got"),
        ("n_splits", "0.5", "the number of splits in .*n_splits.txt"),
        ("n_splits", "3", "index_train_2.txt to be readable, but got: No such file"),
        ("index_train_1", "5\n1\n2\n2\n", "indices, each once, in .*index_train_1.txt, but got one twice"),
        ("index_train_1", "5\n1\n2\n4\n", "to train or to test in split 1 of .*, but row 4 does both"),
        ("index_train_1", "5\n1\n2\n-1\n", "but got -1"),
        ("index_test_0", "6\n", "whole numbers from 0 to 5 in .*index_test_0.txt, but got 6"),
        ("index_train_0", "0\n1\n2\n4\n", "split 0 of .* to cover 6 rows, but got 4 to train and 1 to test"),
    ],
)
def test_broken_files(root: Path, file: str, content: str, message: str) -> None:
    (root / "uci" / "yacht" / f"{file}.txt").write_text(content)
    with one_line(match=message):
        load_uci("yacht", data_dir=root)


def test_digits_are_images() -> None:
    from sklearn.datasets import load_digits

    data = load_embedded("digits")
    assert data.is_image
    assert (data.train.x.shape, data.train.x.dtype, data.train.y.dtype) == ((1797, 1, 8, 8), np.uint8, np.int64)
    assert data.classes == tuple("0123456789")
    levels = {int(v): round(v * 255 / 16) for v in range(17)}
    assert np.array_equal(data.train.x[:, 0], np.vectorize(levels.get)(load_digits().images))
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
    data = load_embedded(name)
    assert data.name == name
    assert data.train.x.shape == shape
    assert data.train.x.dtype == np.float32
    assert data.classes == classes
    assert len(data.columns) == shape[1]
    assert data.task == ("classification" if classes else "regression")
    assert data.train.y.dtype == (np.int64 if classes else np.float32)


@pytest.mark.parametrize("name", EMBEDDED)
def test_whoever_writes_into_the_arrays_changes_no_later_reading(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_embedded(name)
    x, y = first.train.x.copy(), first.train.y.copy()
    first.train.x[:], first.train.y[:] = 7, 1
    again = load_embedded(name)
    assert np.array_equal(again.train.x, x)
    assert np.array_equal(again.train.y, y)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtraError, match=r"scikit-learn to be installed: .*pip install .* '\.\[sklearn\]'"):
        load_embedded(name)


def test_digits_as_imagenet_is_laid_out_are_streamed(tmp_path: Path) -> None:
    data = load("digit_folders", cache_dir=tmp_path)
    assert isinstance(data.train.x, Stream)
    assert (data.train.x.shape, data.test.x.shape) == ((1438, 1, 8, 8), (359, 1, 8, 8))
    whole = load_embedded("digits").train
    for split, places in ((data.train, np.arange(1797) % 5 != 4), (data.test, np.arange(1797) % 5 == 4)):
        order = np.argsort(whole.y[places], kind="stable")  # a class after the other
        assert split.y.tolist() == whole.y[places][order].tolist()
        assert np.array_equal(split.x.copy(), whole.x[places][order])
