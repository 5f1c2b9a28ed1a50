"""NumPy archives of images or features."""

import numpy as np
import pytest

from rcad.data.arrays import load
from rcad.errors import InputError

RNG = np.random.default_rng(0)
NCHW = RNG.integers(0, 256, (6, 3, 5, 4), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 0, 1, 2])


def save(tmp_path, **arrays):
    np.savez(tmp_path / "d.npz", **arrays)
    return str(tmp_path / "d.npz")


@pytest.mark.parametrize(
    "x",
    [
        NCHW,
        NCHW.transpose(0, 2, 3, 1),
        NCHW.astype(np.int64),
        NCHW / 255,
        (NCHW / 255).astype(np.float32).transpose(0, 2, 3, 1),
    ],
    ids=["NCHW", "NHWC", "int64", "float64", "float32 NHWC"],
)
def test_images_become_uint8_nchw(tmp_path, x):
    dataset = load(save(tmp_path, x=x, y=LABELS))
    assert dataset.train.x.dtype == np.uint8
    np.testing.assert_array_equal(dataset.train.x, NCHW)
    np.testing.assert_array_equal(dataset.train.y, LABELS)
    assert dataset.classes == ("0", "1", "2")
    assert dataset.test is None


def test_train_and_test(tmp_path):
    path = save(
        tmp_path, x_train=NCHW[:4], y_train=LABELS[:4, None], x_test=NCHW[4:], y_test=LABELS[4:].astype(np.uint8)
    )
    dataset = load(path)
    np.testing.assert_array_equal(dataset.test.x, NCHW[4:])
    np.testing.assert_array_equal(dataset.train.y, LABELS[:4])
    assert dataset.test.y.dtype == np.int64


def test_features_text_classes_and_regression(tmp_path):
    x = RNG.normal(size=(6, 2))
    dataset = load(save(tmp_path, x=x, y=np.array(list("bacbac"))))
    assert dataset.classes == ("a", "b", "c")
    assert dataset.train.y.tolist() == [1, 0, 2, 1, 0, 2]
    assert dataset.train.x.dtype == np.float32
    dataset = load(save(tmp_path, x=x, y=x[:, 0]))
    assert (dataset.task, dataset.classes, dataset.train.y.dtype) == ("regression", (), np.float32)


def test_floats_are_rounded_to_the_nearest_level(tmp_path):
    x = np.full((2, 1, 2, 2), 0.999)
    x[1] = 0.4 / 255
    assert load(save(tmp_path, x=x, y=[0, 1])).train.x[:, 0, 0, 0].tolist() == [255, 0]


def test_time_stamps_keep_their_differences(tmp_path):
    stamps = 1_700_000_000_000 + np.arange(40)
    dataset = load(save(tmp_path, x=np.column_stack([stamps, stamps % 3]), y=stamps / 2))
    assert np.diff(dataset.train.x[:, 0]).tolist() == [1.0] * 39
    assert np.diff(dataset.train.y).tolist() == [0.5] * 39


def test_zeros_and_ones_are_no_pixels_and_grey_images_have_one_channel(tmp_path):
    x = np.eye(5, dtype=np.int64)[None].repeat(6, axis=0)
    with pytest.raises(InputError, match=r"up to 255 in .*, but the largest is 1"):
        load(save(tmp_path, x=x, y=LABELS))
    for pixels, largest in ((x.astype(np.float32), 255), (x * 2, 2), (x * 0, 0)):
        read = load(save(tmp_path, x=pixels, y=LABELS)).train.x
        assert (read.shape, read.max()) == ((6, 1, 5, 5), largest)


def test_the_note_says_how_the_targets_were_taken(tmp_path):
    x = RNG.normal(size=(6, 2))
    assert "regression, since the targets are floats" in load(save(tmp_path, x=x, y=LABELS.astype(float))).note
    assert load(save(tmp_path, x=x, y=LABELS)).note.endswith("integers or text")
    assert load(save(tmp_path, x=x, y=np.asarray([0, 2, 4, 4, 0, 2]))).note.endswith("; no training example of class 1")
