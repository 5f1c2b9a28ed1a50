"""Small imitations of CIFAR-10-C's arrays and of Tiny-ImageNet-C's folders."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from one_line import one_line
from rcad.data.corrupted import CorruptedArrays, CorruptedFolders, open_corrupted

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
    corrupted = open_corrupted(tmp_path, classes=3)
    assert isinstance(corrupted, CorruptedArrays)
    assert corrupted.corruptions == ("snow", "fog")  # in the paper's order
    for name, array in stored.items():
        for severity in range(1, 6):
            split = corrupted.split(name, severity)
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
    corrupted = open_corrupted(tmp_path / "set", classes=classes, cache_dir=tmp_path / "cache")
    assert isinstance(corrupted, CorruptedFolders)
    assert corrupted.classes == (classes or ("n01", "n02"))
    split = corrupted.split("fog", 5)
    assert split.x.shape == (4, 3, 64, 64)
    np.testing.assert_array_equal(split.y, [0, 0, 1, 1])
    np.testing.assert_allclose(split.x[:, 0, 0, 0], levels, atol=2)
    np.testing.assert_allclose(corrupted.split("fog", 1).x[:, 0, 0, 0], np.asarray(levels) - 160, atol=2)


def test_missing_files_and_folders(tmp_path):
    with one_line("is none; check the path"):
        open_corrupted(tmp_path / "absent")
    with one_line("but got neither"):
        open_corrupted(tmp_path)
    np.save(tmp_path / "labels.npy", np.zeros(5, np.uint8))
    with one_line("expected gaussian_noise.npy and the like"):
        open_corrupted(tmp_path)
    arrays(tmp_path)
    corrupted = open_corrupted(tmp_path)
    (tmp_path / "fog.npy").unlink()
    with one_line("expected fog.npy in"):
        corrupted.split("fog", 1)
    with one_line("to be one of snow, fog, but got 'frost'"):
        corrupted.split("frost", 1)


@pytest.mark.parametrize("severity", [0, 6, 1.0, True])
@pytest.mark.parametrize("make", [arrays, folders])
def test_severities_are_one_to_five(tmp_path, make, severity):
    make(tmp_path)
    with one_line("expected a severity from 1 to 5"):
        open_corrupted(tmp_path).split("fog", severity)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("fog", np.zeros((20, 32, 32, 3), np.float32), r"uint8 images \(20, H, W, 3\) .*float32 \(20, 32, 32, 3\)"),
        ("fog", np.zeros((19, 32, 32, 3), np.uint8), r"but got uint8 \(19, 32, 32, 3\)"),
        ("fog", np.zeros((20, 3, 32, 32), np.uint8), r"but got uint8 \(20, 3, 32, 32\)"),
        ("fog", np.zeros((20, 3072), np.uint8), r"but got uint8 \(20, 3072\)"),
        ("fog", b"\x93NUMPY cut short", "to be a whole .npy file"),
        ("fog", pickle.dumps([1, 2]), "to be a whole .npy file"),
        ("fog", np.array([{}], dtype=object), "to be a whole .npy file"),
        ("labels", np.zeros((5, 1), np.uint8), r"expected whole-number labels \(N,\) of 5 equal parts"),
        ("labels", np.zeros(7, np.uint8), r"expected whole-number labels \(N,\) of 5 equal parts"),
        ("labels", np.zeros(5, np.float32), "expected whole-number labels"),
        ("labels", np.zeros(0, np.uint8), "expected whole-number labels"),
        ("labels", np.array([0, 1] * 4 + [1, 0], np.uint8), "expected the same labels for every severity"),
        ("labels", np.full(5, 9, np.uint8), "expected labels from 0 to 2, but got 9 in"),
    ],
    ids=str,
)
def test_wrong_arrays(tmp_path, file, content, message):
    arrays(tmp_path)
    path = tmp_path / f"{file}.npy"
    path.write_bytes(content) if isinstance(content, bytes) else np.save(path, content)
    with one_line(match=message):
        open_corrupted(tmp_path, classes=3).split("fog", 1)


def test_wrong_folders(tmp_path):
    folders(tmp_path / "set")
    (tmp_path / "bare" / "fog").mkdir(parents=True)
    for name, classes, severity, message in (
        ("set", None, 3, "fog/3, but it is missing"),
        ("set", 2, 1, "expected the names of the classes"),
        ("set", ("n01", "n03"), 1, "but got 'n02'"),
        ("set", ("n01", "n02", "n03"), 1, "n03, but got none"),
        ("bare", None, 1, "expected folders 1 to 5"),
    ):
        with one_line(message):
            open_corrupted(tmp_path / name, classes=classes, cache_dir=tmp_path / "cache").split("fog", severity)
