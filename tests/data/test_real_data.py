"""The real images, where they are: $RCAD_DATA, else ../shared/data beside the repository."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from rcad.data.registry import available, load
from rcad.runs.configure import configure
from rcad.train.progress import Silent
from rcad.train.task import prepare, read

DATA = Path(os.environ.get("RCAD_DATA") or Path(__file__).parents[3] / "shared" / "data")


def real(name):
    where = {line.name: line.where for line in available(DATA)}[name]
    if where is None:
        pytest.skip(f"no {name} in {DATA}")
    return name


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def test_tiny_imagenet_with_its_grey_images(cache):
    dataset = load(real("tiny-imagenet"), data_dir=DATA, cache_dir=cache)
    assert dataset.train.x.shape[1:] == (3, 64, 64)
    assert len(dataset.classes) == 200
    assert set(np.unique(dataset.train.y)) == set(range(200))
    x = dataset.train.x
    grey = (x[:, 0] == x[:, 1]).all((1, 2)) & (x[:, 1] == x[:, 2]).all((1, 2))
    assert 0 < grey.sum() < 0.1 * len(x)


@pytest.mark.parametrize(
    ("fields", "seed", "expected"),
    [
        ({"name": "digits"}, 0, "253a05c17d2a08b964832cb3819fe3bc"),
        ({"name": "digits[:100]"}, 3, "45f8fcddefc9de5ccfe03851c9667088"),
        ({"name": "breast_cancer"}, 0, "b55fe8c73362117d77a822f74ed04526"),
        ({"name": "wine_recognition"}, 0, "7a16a8b62aa2a9d034ed0b71bd95d303"),
        ({"name": "diabetes"}, 0, "7cb337777ea7818c3c03e3bf9384d558"),
        ({"name": "boston", "split": 3}, 0, "17752bd7bb2707eb9714f9f7f0a87644"),
        ({"name": "wine", "split": 19}, 3, "9aac2f0eabe64701b0d2f3476581335b"),
        ({"name": "yacht"}, 0, "3c94f2637800ddefd21203a7d11c59b0"),
        ({"name": "cifar100[:500]"}, 0, "f4fe735b5cc00a0d8f53dd7c7182a5ff"),
        ({"name": "cifar100[:2000]", "seed": 0}, 3, "360c5f764e186e0e6e6ff5a0bc1e0986"),
    ],
)
def test_hashes_of_the_data_never_change(cache, fields, seed, expected):
    """A record names its data by this hash: data that change it are refused, and committed results lose theirs."""
    name = fields["name"].partition("[")[0]
    config = configure(fields, [("erm", ())], recipe="small", epochs=1, seed=seed)
    assert name == real(name)
    dataset = read(config.data, DATA, cache, Silent())
    assert prepare(config, dataset, torch.device("cpu")).fingerprint.startswith(expected)
