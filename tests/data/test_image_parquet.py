"""Parquet shards of images."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.conftest import red, reds, shard
from rcad.data import image_parquet
from rcad.errors import InputError


def load(folder, **options):
    return image_parquet.load(str(folder), cache_dir=folder.parent / "cache", **options)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "shards"


@pytest.mark.parametrize("names", [("img", "fine_label"), ("image", "label")])
@pytest.mark.parametrize("struct", [True, False])
def test_shards_keep_their_order(folder, names, struct):
    columns = {"names": names, "struct": struct}
    shard(folder / "train-00005-of-00006.parquet", [5, 6], [1, 0], **columns)
    shard(folder / "train-00000-of-00006.parquet", [1, 2, 3, 4, 9], [0, 1, 2, 2, 1], **columns)
    for k in (3, 1, 4, 2):
        shard(folder / f"train-0000{k}-of-00006.parquet", [20 + k], [0], **columns)
    shard(folder / "test-00000-of-00001.parquet", [7], [2], **columns)
    dataset = load(folder)
    assert reds(dataset.train) == [1, 2, 3, 4, 9, 21, 22, 23, 24, 5, 6]
    assert dataset.train.y.tolist() == [0, 1, 2, 2, 1, 0, 0, 0, 0, 1, 0]
    assert (reds(dataset.test), dataset.test.y.tolist()) == ([7], [2])
    assert dataset.classes == ("0", "1", "2")


def test_row_groups_longer_than_a_run_are_cut(folder, monkeypatch):
    monkeypatch.setattr("rcad.data.decoding.SOURCE_LENGTH", 3)
    shard(folder / "train.parquet", list(range(10)), [0, 1] * 5, group=7)
    assert reds(load(folder).train) == list(range(10))


@pytest.mark.parametrize("name", ["valid-00000-of-00001", "validation-00000-of-00001", "val", "valid_clean-0"])
def test_valid_serves_as_test_unless_there_is_one_with_labels(folder, name):
    shard(folder / "train.parquet", [1, 2], [0, 1])
    shard(folder / f"{name}.parquet", [3], [1])
    assert reds(load(folder).test) == [3]
    for labels, test in (([0, 1], [4, 4]), ([-1, -1], [3])):
        shard(folder / "test.parquet", [4, 4], labels)
        assert reds(load(folder).test) == test


NAMED = json.dumps({"info": {"features": {"label": {"names": ["cat", "dog", "owl"], "_type": "ClassLabel"}}}})


@pytest.mark.parametrize("text", [NAMED, "[" * 100_000, "[]", '{"info": 3}', "{"])
def test_metadata_in_its_own_form_names_the_classes_of_shards_in_a_data_folder(folder, text):
    shard(folder / "data" / "train.parquet", [1, 2], [0, 1], metadata={"huggingface": text})
    assert load(folder).classes == (("cat", "dog", "owl") if text == NAMED else ("0", "1"))


def test_named_columns_classes_and_size(folder):
    shard(folder / "train.parquet", [red(1, 9, 5), red(2, 6, 8)], [0, 1], names=("img", "kind"))
    dataset = load(folder, label_column="kind", classes=("a", "b", "c"), size=4)
    assert dataset.classes == ("a", "b", "c")
    assert dataset.train.x.shape == (2, 3, 4, 4)


def test_one_file_is_a_training_split(folder):
    file = shard(folder / "anything.parquet", [1, 2], pa.array([0, 1], pa.uint8()))
    dataset = image_parquet.load(str(file), cache_dir=folder / "cache")
    assert (dataset.test, dataset.train.y.dtype) == (None, np.int64)
    assert image_parquet.has_images(file)
    pq.write_table(pa.table({"image": ["a.png"], "age": [3]}), folder / "table.parquet")
    assert not image_parquet.has_images(folder / "table.parquet")


def test_errors_name_the_row_of_the_shard(folder):
    shard(folder / "train-00000-of-00002.parquet", [1, 2], [0, 1])
    second = shard(folder / "train-00001-of-00002.parquet", [1, 2, 3, 4, b"broken"], [0, 1, 0, 1, 0])
    with pytest.raises(InputError, match=r"train-00001-of-00002.parquet row 4 to be an image"):
        load(folder)
    shard(second, [1, 2, 3, 4, 5], [0, 1, 0, -3, 0])
    with pytest.raises(InputError, match=r"from 0, but got -3 in .*train-00001-of-00002.parquet row 3"):
        load(folder)
