"""Names and paths lead to the right reader, and mistakes get a hint. UCI's and scikit-learn's sets; hashes of data."""

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from data.conftest import shard, write
from one_line import fails_in_one_line
from rcad.data import decoding, registry
from rcad.data.registry import available, recognise
from rcad.data.small_sets import EMBEDDED, find_uci, load_embedded, load_uci
from rcad.errors import InputError, MissingExtraError
from rcad.runs.configure import configure
from rcad.train.progress import Silent
from rcad.train.task import prepare, read


@pytest.fixture
def pets(tmp_path):
    return write(tmp_path / "pets", cat__a=0, dog__a=1)


def test_a_path_or_an_archive_is_found_here_and_below_the_data_folder(pets, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    archives = [shutil.make_archive(str(pets), kind, tmp_path, "pets") for kind in ("zip", "gztar")]
    for path in (pets, *archives):
        dataset = registry.load(path, cache_dir=cache)
        assert (dataset.classes, dataset.train.y.tolist()) == (("cat", "dog"), [0, 1])
    assert registry.load("pets", data_dir=pets.parent, cache_dir=cache).name == "pets"
    monkeypatch.setenv("RCAD_DATA", str(pets.parent))
    monkeypatch.setenv("RCAD_CACHE", str(cache))
    assert registry.load("pets").train.x.shape == (2, 3, 4, 4)
    monkeypatch.delenv("RCAD_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert registry.cache.cache_root() == tmp_path / ".cache" / "rcad"


def test_names_are_looked_for_in_the_data_folder(tmp_path):
    write(tmp_path / "cifar10", **{"cifar-10-binary_dot_tar_dot_gz": b""})
    write(tmp_path / "cifar-100-binary", train_dot_bin=b"")
    write(tmp_path / "tiny-imagenet", wnids_dot_txt=b"")
    where = {line.name: line.where for line in registry.available(tmp_path)}
    assert where["cifar10"] == str(tmp_path / "cifar10" / "cifar-10-binary.tar.gz")
    assert where["cifar100"] == str(tmp_path / "cifar-100-binary")
    assert where["tiny-imagenet"] == str(tmp_path / "tiny-imagenet")
    assert where["svhn"] is None
    assert recognise(write(tmp_path / "mats", train_32x32_dot_mat=b"")).layout == "svhn"
    assert list(where) == list(registry.READERS)
    assert {line.where for line in registry.available(tmp_path / "nothing") if line.name in registry.OFFICIAL} == {None}


def test_a_known_name_in_parquet_has_its_classes(tmp_path):
    path = tmp_path / "cifar100" / "train-00000-of-00001.parquet"
    shard(path, [1, 2], [0, 99], names=("img", "fine_label"))
    dataset = registry.load("cifar100", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert dataset.name == "cifar100"
    assert (dataset.classes[0], dataset.classes[99]) == ("apple", "worm")
    shard(path, [1, 2], [0, 100], names=("img", "fine_label"))
    with pytest.raises(InputError, match="from 0 to 99, but got 100"):
        registry.load("cifar100", data_dir=tmp_path, cache_dir=tmp_path / "cache")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar-100", r"did you mean 'cifar100'\?"),
        ("phots", r"did you mean 'Photos'\?$"),
        ("Photos/trian.csv", r"did you mean 'Photos/train.csv'\?$"),
        ("", "expected a path or one of"),
        ("sales.xlsx", r"sales.xlsx; save it as CSV \(UTF-8\)$"),
    ],
)
def test_unknown_names_and_slips(tmp_path, name, message, monkeypatch):
    monkeypatch.delenv("RCAD_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    write(tmp_path, Photos__train_dot_csv=b"a,b\n", sales_dot_xlsx=b"PK")
    with pytest.raises(InputError, match=message):
        registry.load(name)


def test_a_missing_package_names_the_extra(pets, monkeypatch):
    (pets.parent / "a.parquet").touch()
    decoding._pillow.cache_clear()
    for module, path in (("PIL.Image", pets), ("pyarrow.parquet", pets.parent / "a.parquet")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingExtraError, match=r"'\.\[data\]'"):
            registry.load(path, cache_dir=pets.parent / "cache")


def uci(root, **changes):
    """A yacht of six rows with two splits, written as the originals are; other texts for some files."""
    folder = root / "uci" / "yacht"
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
    for name, text in (files | changes).items():
        (folder / f"{name}.txt").write_text(text)
    return load_uci("yacht", data_dir=root)


def test_reads_rows_and_splits(tmp_path):
    data = uci(tmp_path)
    assert data.task == "regression"
    assert data.train.x.dtype == data.train.y.dtype == np.float32
    assert data.train.x.tolist() == [[i + 0.5, i * i] for i in range(6)]
    assert data.train.y.tolist() == [10, 9, 8, 7, 6, 5]
    assert data.columns == ("x0", "x1")
    splits = [[part.tolist() for part in split] for split in data.standard_splits]
    assert splits == [[[3, 0, 1, 2, 4], [5]], [[5, 1, 2, 3], [0, 4]]]
    assert find_uci("yacht", tmp_path) == tmp_path / "uci" / "yacht"
    assert find_uci("boston", tmp_path) is None


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("data", "", "rows of numbers in .*data.txt, but the file is empty"),
        ("data", "1 2 3\n1 2\n", "rows of numbers in .*data.txt, but got: .* from 3 to 2"),
        ("data", "1 2 3\n1 nan 2\n", "finite numbers in .*data.txt, but got '1 nan 2' in row 2"),
        ("index_target", "0\n", "one column that is no feature in .*index_target.txt"),
        ("index_features", "0\n3\n", "whole numbers from 0 to 2 in .*index_features.txt, but got 3"),
        ("n_splits", "3", "index_train_2.txt to be readable, but got: No such file"),
        ("index_train_1", "5\n1\n2\n4\n", "each of 6 rows once in split 1 of .*, but row 3 is there 0 times"),
    ],
)
def test_broken_files(tmp_path, file, content, message):
    with fails_in_one_line(match=message):
        uci(tmp_path, **{file: content})


@pytest.mark.parametrize("name", EMBEDDED)
def test_whoever_writes_into_the_arrays_changes_no_later_reading(name):
    first = load_embedded(name)
    assert name != "breast_cancer" or first.classes == ("malignant", "benign")
    x, y = first.train.x.copy(), first.train.y.copy()
    first.train.x[:], first.train.y[:] = 7, 1
    again = load_embedded(name)
    assert np.array_equal(again.train.x, x)
    assert np.array_equal(again.train.y, y)


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
