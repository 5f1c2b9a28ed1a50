"""SVHN's .mat files."""

import numpy as np
import pytest
import scipy.io

from rcad.data.official_readers import load_svhn as load
from rcad.errors import InputError


def write(folder, part, labels, seed=0):
    images = np.random.default_rng(seed).integers(0, 256, (len(labels), 3, 32, 32), dtype=np.uint8)
    content = {"X": images.transpose(2, 3, 1, 0), "y": np.array(labels, np.uint8)[:, None]}
    scipy.io.savemat(folder / f"{part}_32x32.mat", content, do_compression=True)
    return images


def test_ten_is_zero_and_extra_joins_train(tmp_path):
    train, test = write(tmp_path, "train", [10, 1, 9], 1), write(tmp_path, "test", [5], 2)
    options = {"cache_dir": tmp_path / "cache", "check": False}
    dataset = load(str(tmp_path), **options)
    np.testing.assert_array_equal(dataset.train.x, train)
    np.testing.assert_array_equal(dataset.train.y, [0, 1, 9])
    np.testing.assert_array_equal(dataset.test.x, test)
    assert dataset.classes == tuple("0123456789")
    with pytest.raises(InputError, match=r"expected extra_32x32.mat in"):
        load(str(tmp_path), extra=True, **options)
    extra = write(tmp_path, "extra", [2, 10], 3)
    joined = load(str(tmp_path / "train_32x32.mat"), extra=True, **options)
    np.testing.assert_array_equal(joined.train.x, np.concatenate([train, extra]))
    np.testing.assert_array_equal(joined.train.y, [0, 1, 9, 2, 0])


def test_the_published_md5_is_checked(tmp_path):
    write(tmp_path, "train", [1, 2])
    write(tmp_path, "test", [1])
    with pytest.raises(InputError, match="expected md5 e26dedcc434d2e4c54c9b2d4a06d8373"):
        load(str(tmp_path), cache_dir=tmp_path / "cache")
