"""The real images, where they are: $RCAD_DATA, else ../shared/data beside the repository."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from rcad.data.registry import available, load

DATA = Path(os.environ.get("RCAD_DATA") or Path(__file__).parents[3] / "shared" / "data")


def real(name):
    where = {line.name: line.where for line in available(DATA)}[name]
    if where is None:
        pytest.skip(f"no {name} in {DATA}")
    return name


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def cifar100(cache):
    calls = []
    dataset = load(real("cifar100"), data_dir=DATA, cache_dir=cache, progress=lambda *counts: calls.append(counts))
    assert calls[-1] == (60_000, 60_000)
    return dataset


def test_cifar100_has_the_published_statistics(cifar100):
    assert cifar100.train.x.shape == (50_000, 3, 32, 32)
    assert cifar100.test.x.shape == (10_000, 3, 32, 32)
    # Histograms give exact moments without a float copy of 150 million pixels.
    counts = np.stack([np.bincount(cifar100.train.x[:, c].ravel(), minlength=256) for c in range(3)])
    levels, n = np.arange(256) / 255, 50_000 * 32 * 32
    mean = counts @ levels / n
    std = np.sqrt(counts @ levels**2 / n - mean**2)
    np.testing.assert_allclose(mean, [0.50707516, 0.48654887, 0.44091784], atol=1e-6)
    np.testing.assert_allclose(std, [0.26733429, 0.25643846, 0.27615047], atol=1e-6)


def test_cifar100_has_balanced_classes_with_names(cifar100):
    assert (cifar100.classes[0], cifar100.classes[99]) == ("apple", "worm")
    assert np.bincount(cifar100.train.y).tolist() == [500] * 100
    assert np.bincount(cifar100.test.y).tolist() == [100] * 100


def test_cifar100_has_its_ten_images_in_both_splits(cifar100):
    train = {image.tobytes() for image in cifar100.train.x}
    assert sum(image.tobytes() in train for image in cifar100.test.x) == 10


def test_cifar100_opens_in_no_time(cifar100, cache):
    began = time.perf_counter()
    again = load("cifar100", data_dir=DATA, cache_dir=cache)
    assert time.perf_counter() - began < 0.2
    np.testing.assert_array_equal(again.train.y, cifar100.train.y)


def test_tiny_imagenet_with_its_grey_images(cache):
    dataset = load(real("tiny-imagenet"), data_dir=DATA, cache_dir=cache)
    assert dataset.train.x.shape[1:] == (3, 64, 64)
    assert len(dataset.classes) == 200
    assert set(np.unique(dataset.train.y)) == set(range(200))
    x = dataset.train.x
    grey = (x[:, 0] == x[:, 1]).all((1, 2)) & (x[:, 1] == x[:, 2]).all((1, 2))
    assert 0 < grey.sum() < 0.1 * len(x)
