"""Small imitations of CIFAR-10-C's arrays and of Tiny-ImageNet-C's folders."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from rcad.data.corrupted import CorruptedArrays, CorruptedFolders, open_corrupted
from rcad.errors import InputError

COUNT = 4  # images per severity


def arrays(folder, names=("fog", "snow"), classes=3):
    rng = np.random.default_rng(0)
    stored = {name: rng.integers(0, 256, (5 * COUNT, 32, 32, 3), dtype=np.uint8) for name in names}
    for name, array in stored.items():
        np.save(folder / f"{name}.npy", array)
    labels = np.tile(np.arange(COUNT, dtype=np.uint8) % classes, 5)
    np.save(folder / "labels.npy", labels)
    return stored, labels


def folders(root, names=("fog",), severities=(1, 5), classes=("n01", "n02")):
    image = pytest.importorskip("PIL.Image")
    for name in names:
        for severity in severities:
            for label, wnid in enumerate(classes):
                place = root / name / str(severity) / wnid
                place.mkdir(parents=True)
                for index in range(2):
                    level = 40 * severity + 10 * label + index
                    pixels = np.full((64, 64, 3), level, np.uint8)
                    image.fromarray(pixels).save(place / f"val_{index}.JPEG", quality=100)


def test_arrays_are_cut_by_severity_and_stay_on_disk(tmp_path):
    stored, labels = arrays(tmp_path)
    found = open_corrupted(tmp_path, classes=3)
    assert isinstance(found, CorruptedArrays)
    assert found.corruptions == ("snow", "fog")  # in the paper's order
    for name, array in stored.items():
        for severity in range(1, 6):
            split = found.split(name, severity)
            rows = slice(COUNT * (severity - 1), COUNT * severity)
            np.testing.assert_array_equal(split.x, array[rows].transpose(0, 3, 1, 2))
            np.testing.assert_array_equal(split.y, labels[rows])
            assert split.y.dtype == np.int64
            base = split.x
            while base.base is not None and not isinstance(base, np.memmap):
                base = base.base
            assert isinstance(base, np.memmap) or type(base).__name__ == "mmap"


@pytest.mark.parametrize(("classes", "levels"), [(None, [200, 201, 210, 211]), (("n02", "n01"), [210, 211, 200, 201])])
def test_folders_are_decoded_with_labels_in_the_order_of_the_classes(tmp_path, classes, levels):
    folders(tmp_path / "set")
    found = open_corrupted(tmp_path / "set", classes=classes, cache_dir=tmp_path / "cache")
    assert isinstance(found, CorruptedFolders)
    assert found.classes == (classes or ("n01", "n02"))
    split = found.split("fog", 5)
    assert split.x.shape == (4, 3, 64, 64)
    np.testing.assert_array_equal(split.y, [0, 0, 1, 1])
    np.testing.assert_allclose(split.x[:, 0, 0, 0], levels, atol=2)
    np.testing.assert_allclose(found.split("fog", 1).x[:, 0, 0, 0], np.asarray(levels) - 160, atol=2)


def says(job):
    with pytest.raises(InputError) as error:
        job()
    return str(error.value)


def test_missing_files_and_folders(tmp_path):
    assert "is none; check the path" in says(lambda: open_corrupted(tmp_path / "absent"))
    assert "but got neither" in says(lambda: open_corrupted(tmp_path))
    np.save(tmp_path / "labels.npy", np.zeros(5, np.uint8))
    assert "expected gaussian_noise.npy and the like" in says(lambda: open_corrupted(tmp_path))
    arrays(tmp_path)
    found = open_corrupted(tmp_path)
    (tmp_path / "fog.npy").unlink()
    assert "expected fog.npy in" in says(lambda: found.split("fog", 1))
    assert "to be one of snow, fog, but got 'frost'" in says(lambda: found.split("frost", 1))


@pytest.mark.parametrize("severity", [0, 6, 1.0, True])
def test_severities_are_one_to_five(tmp_path, severity):
    arrays(tmp_path)
    folders(tmp_path / "set")
    assert "severity" in says(lambda: open_corrupted(tmp_path).split("fog", severity))
    assert "severity" in says(lambda: open_corrupted(tmp_path / "set").split("fog", severity))


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((5 * COUNT, 32, 32, 3), np.float32),
        np.zeros((5 * COUNT - 1, 32, 32, 3), np.uint8),
        np.zeros((5 * COUNT, 3, 32, 32), np.uint8),
        np.zeros((5 * COUNT, 3072), np.uint8),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_of_another_shape_or_kind(tmp_path, wrong):
    arrays(tmp_path)
    np.save(tmp_path / "fog.npy", wrong)
    message = says(lambda: open_corrupted(tmp_path).split("fog", 1))
    assert "expected uint8 images (20, H, W, 3)" in message
    assert str(wrong.shape) in message


def test_files_that_are_no_arrays(tmp_path):
    arrays(tmp_path)
    (tmp_path / "fog.npy").write_bytes((tmp_path / "fog.npy").read_bytes()[:1000])
    assert "to be a whole .npy file" in says(lambda: open_corrupted(tmp_path).split("fog", 1))
    np.save(tmp_path / "fog.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert "to be a whole .npy file" in says(lambda: open_corrupted(tmp_path).split("fog", 1))
    (tmp_path / "fog.npy").write_bytes(pickle.dumps([1, 2]))
    assert "to be a whole .npy file" in says(lambda: open_corrupted(tmp_path).split("fog", 1))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros((5, 1), np.uint8), "expected whole-number labels (N,) of 5 equal parts"),
        (np.zeros(7, np.uint8), "expected whole-number labels (N,) of 5 equal parts"),
        (np.zeros(5, np.float32), "expected whole-number labels"),
        (np.zeros(0, np.uint8), "expected whole-number labels"),
        (np.array([0, 1, 0, 1, 0, 1, 0, 1, 1, 0], np.uint8), "expected the same labels for every severity"),
        (np.full(5, 9, np.uint8), "expected labels from 0 to 2, but got 9 in"),
    ],
)
def test_wrong_labels(tmp_path, labels, message):
    arrays(tmp_path)
    np.save(tmp_path / "labels.npy", labels)
    assert message in says(lambda: open_corrupted(tmp_path, classes=3))


def test_wrong_folders(tmp_path):
    folders(tmp_path / "set")
    opened = open_corrupted(tmp_path / "set", cache_dir=tmp_path / "cache")
    assert "fog/3, but it is missing" in says(lambda: opened.split("fog", 3))
    assert "expected the names of the classes" in says(lambda: open_corrupted(tmp_path / "set", classes=2))
    other = open_corrupted(tmp_path / "set", classes=("n01", "n03"))
    assert "but got 'n02'" in says(lambda: other.split("fog", 1))
    more = open_corrupted(tmp_path / "set", classes=("n01", "n02", "n03"))
    assert "n03, but got none" in says(lambda: more.split("fog", 1))
    (tmp_path / "bare" / "fog").mkdir(parents=True)
    assert "expected folders 1 to 5" in says(lambda: open_corrupted(tmp_path / "bare"))
