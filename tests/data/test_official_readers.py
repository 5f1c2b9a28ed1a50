"""CIFAR's binary records, from the archive and from its folder, and SVHN's .mat files."""

import numpy as np
import pytest
import scipy.io

from data.conftest import write
from made import tar
from rcad.data.official import load_cifar10, load_cifar100, load_svhn
from rcad.data.registry import CIFAR10_CLASSES, CIFAR100_CLASSES
from rcad.errors import InputError

pytestmark = pytest.mark.usefixtures("unchecked")


def records(count, label_bytes, seed=0, classes=10):
    """(images, labels (N, label_bytes), file bytes)"""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    labels = rng.integers(0, classes, (count, label_bytes), dtype=np.uint8)
    return images, labels, np.concatenate([labels, images.reshape(count, -1)], 1).tobytes()


def save(target, files):
    """As a folder, or as an archive with one top folder, by the target's name."""
    if target.name.endswith(".gz"):
        return tar(target, {f"top/{name}": data for name, data in files.items()})
    return write(target, **{name.replace(".", "_dot_"): data for name, data in files.items()})


@pytest.mark.parametrize("name", ["cifar-10-binary.tar.gz", "folder"])
def test_cifar10_joins_its_batches_in_order(tmp_path, name):
    batches = {f"data_batch_{i}.bin": records(2, 1, i) for i in (3, 1, 2, 5, 4)}
    test = records(3, 1, 9)
    files = {"test_batch.bin": test[2]} | {key: data for key, (_, _, data) in batches.items()}
    path = save(tmp_path / name, files | {"readme.html": b"<html>"})
    calls = []
    dataset = load_cifar10(str(path), cache_dir=tmp_path / "cache", progress=lambda *counts: calls.append(counts))
    ordered = [batches[f"data_batch_{i}.bin"] for i in range(1, 6)]
    np.testing.assert_array_equal(dataset.train.x, np.concatenate([images for images, _, _ in ordered]))
    np.testing.assert_array_equal(dataset.train.y, np.concatenate([labels[:, 0] for _, labels, _ in ordered]))
    np.testing.assert_array_equal(dataset.test.x, test[0])
    assert dataset.train.y.dtype == np.int64
    assert dataset.classes == CIFAR10_CLASSES
    assert calls == [(k, 6) for k in range(1, 7)]


@pytest.mark.parametrize("name", ["cifar-100-binary.tar.gz", "folder"])
def test_cifar100_has_coarse_and_fine_labels(tmp_path, name):
    images, labels, data = records(4, 2, classes=20)
    names = "\n".join(f"super{i}" for i in range(20))
    files = {"train.bin": data, "test.bin": data, "coarse_label_names.txt": names.encode()}
    path = str(save(tmp_path / name, files))
    fine = load_cifar100(path, cache_dir=tmp_path / "cache")
    coarse = load_cifar100(path, cache_dir=tmp_path / "cache", labels="coarse")
    np.testing.assert_array_equal(fine.train.x, images)
    np.testing.assert_array_equal(coarse.train.y, labels[:, 0])
    np.testing.assert_array_equal(fine.train.y, labels[:, 1])
    assert fine.classes == CIFAR100_CLASSES
    assert coarse.classes == tuple(names.split())


def test_class_names_are_the_official_ones():
    assert len(CIFAR10_CLASSES) == 10
    assert len(set(CIFAR100_CLASSES)) == 100
    assert list(CIFAR100_CLASSES) == sorted(CIFAR100_CLASSES)
    assert (CIFAR100_CLASSES[0], CIFAR100_CLASSES[99]) == ("apple", "worm")


def write_svhn(folder, part, labels, seed=0):
    images = np.random.default_rng(seed).integers(0, 256, (len(labels), 3, 32, 32), dtype=np.uint8)
    content = {"X": images.transpose(2, 3, 1, 0), "y": np.array(labels, np.uint8)[:, None]}
    scipy.io.savemat(folder / f"{part}_32x32.mat", content, do_compression=True)
    return images


def test_ten_is_zero_and_extra_joins_train(tmp_path):
    train, test = write_svhn(tmp_path, "train", [10, 1, 9], 1), write_svhn(tmp_path, "test", [5], 2)
    options = {"cache_dir": tmp_path / "cache"}
    dataset = load_svhn(str(tmp_path), **options)
    np.testing.assert_array_equal(dataset.train.x, train)
    np.testing.assert_array_equal(dataset.train.y, [0, 1, 9])
    np.testing.assert_array_equal(dataset.test.x, test)
    assert dataset.classes == tuple("0123456789")
    with pytest.raises(InputError, match=r"expected extra_32x32.mat in"):
        load_svhn(str(tmp_path), extra=True, **options)
    extra = write_svhn(tmp_path, "extra", [2, 10], 3)
    joined = load_svhn(str(tmp_path / "train_32x32.mat"), extra=True, **options)
    np.testing.assert_array_equal(joined.train.x, np.concatenate([train, extra]))
    np.testing.assert_array_equal(joined.train.y, [0, 1, 9, 2, 0])
