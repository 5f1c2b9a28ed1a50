"""The real images, where they are: $RCAD_DATA, else ../shared/data beside the repository."""

import os
from pathlib import Path

import pytest
import torch

from rcad.data.registry import available
from rcad.runs.configure import configure
from rcad.train.progress import Silent
from rcad.train.task import prepare, read

DATA = Path(os.environ.get("RCAD_DATA") or Path(__file__).parents[3] / "shared" / "data")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


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
    if {line.name: line.where for line in available(DATA)}[name] is None:
        pytest.skip(f"no {name} in {DATA}")
    dataset = read(config.data, DATA, cache, Silent())
    assert prepare(config, dataset, torch.device("cpu")).fingerprint.startswith(expected)
