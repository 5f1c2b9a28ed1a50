"""Parquet shards of images."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from rcad.data import image_parquet
from rcad.errors import InputError


def png(colour, mode="RGB", size=(4, 4)):
    buffer = io.BytesIO()
    Image.new(mode, size, colour if mode == "L" else (colour, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def write(path, colours, labels, image="img", label="label", metadata=None, struct=True, group=2):
    images = [png(c) if isinstance(c, int) else c for c in colours]
    column = pa.array([{"bytes": i, "path": None} for i in images]) if struct else pa.array(images, pa.binary())
    table = pa.table({image: column, label: pa.array(labels, pa.int64())})
    pq.write_table(table.replace_schema_metadata(metadata), path, row_group_size=group)
    return path


def load(folder, **options):
    return image_parquet.load(str(folder), cache_dir=folder.parent / "cache", **options)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    return folder


def reds(split):
    return split.x[:, 0, 0, 0].tolist()


@pytest.mark.parametrize(("image", "label"), [("img", "fine_label"), ("image", "label")])
@pytest.mark.parametrize("struct", [True, False])
def test_shards_keep_their_order(folder, image, label, struct):
    names = {"image": image, "label": label, "struct": struct}
    write(folder / "train-00005-of-00006.parquet", [5, 6], [1, 0], **names)
    write(folder / "train-00000-of-00006.parquet", [1, 2, 3, 4, 9], [0, 1, 2, 2, 1], **names)
    for shard in (3, 1, 4, 2):
        write(folder / f"train-0000{shard}-of-00006.parquet", [20 + shard], [0], **names)
    write(folder / "test-00000-of-00001.parquet", [7], [2], **names)
    dataset = load(folder)
    assert reds(dataset.train) == [1, 2, 3, 4, 9, 21, 22, 23, 24, 5, 6]
    assert dataset.train.y.tolist() == [0, 1, 2, 2, 1, 0, 0, 0, 0, 1, 0]
    assert (reds(dataset.test), dataset.test.y.tolist()) == ([7], [2])
    assert dataset.classes == ("0", "1", "2")


def test_row_groups_longer_than_a_run_are_cut(folder, monkeypatch):
    monkeypatch.setattr("rcad.data.decoding.SOURCE_LENGTH", 3)
    write(folder / "train.parquet", list(range(10)), [0, 1] * 5, group=7)
    assert reds(load(folder).train) == list(range(10))


@pytest.mark.parametrize("name", ["valid-00000-of-00001", "validation-00000-of-00001", "val", "valid_clean-0"])
def test_valid_serves_as_test(folder, name):
    write(folder / "train.parquet", [1, 2], [0, 1])
    write(folder / f"{name}.parquet", [3], [1])
    assert reds(load(folder).test) == [3]


def test_test_comes_before_valid_unless_it_has_no_labels(folder):
    write(folder / "train.parquet", [1, 2], [0, 1])
    write(folder / "validation.parquet", [3], [1])
    write(folder / "test.parquet", [4, 4], [0, 1])
    assert reds(load(folder).test) == [4, 4]
    write(folder / "test.parquet", [4, 4], [-1, -1])
    assert reds(load(folder).test) == [3]


def test_shards_in_a_data_folder_and_names_in_the_metadata(folder):
    (folder / "data").mkdir()
    features = {"label": {"names": ["cat", "dog", "owl"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    write(folder / "data" / "train.parquet", [1, 2], [0, 1], metadata=metadata)
    assert load(folder).classes == ("cat", "dog", "owl")


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", '{"info": 3}', "{"])
def test_metadata_of_another_form_names_no_classes(folder, text):
    write(folder / "train.parquet", [1, 2], [0, 1], metadata={"huggingface": text})
    assert load(folder).classes == ("0", "1")


def test_named_columns_classes_and_size(folder):
    write(folder / "train.parquet", [png(1, size=(9, 5)), png(2, size=(6, 8))], [0, 1], label="kind")
    dataset = load(folder, label_column="kind", classes=("a", "b", "c"), size=4)
    assert dataset.classes == ("a", "b", "c")
    assert dataset.train.x.shape == (2, 3, 4, 4)


def test_grey_becomes_rgb(folder):
    write(folder / "train.parquet", [png(7, "L"), 2], [0, 1])
    assert load(folder).train.x[0, :, 0, 0].tolist() == [7, 7, 7]


def test_one_file_is_a_training_split(folder):
    file = write(folder / "anything.parquet", [1, 2], [0, 1])
    dataset = image_parquet.load(str(file), cache_dir=folder / "cache")
    assert dataset.test is None
    assert image_parquet.has_images(file)
    pq.write_table(pa.table({"image": ["a.png"], "age": [3]}), folder / "table.parquet")
    assert not image_parquet.has_images(folder / "table.parquet")


def test_errors_name_the_row_of_the_shard(folder):
    write(folder / "train-00000-of-00002.parquet", [1, 2], [0, 1])
    second = write(folder / "train-00001-of-00002.parquet", [1, 2, 3, 4, b"broken"], [0, 1, 0, 1, 0])
    with pytest.raises(InputError, match=r"train-00001-of-00002.parquet row 4 to be an image"):
        load(folder)
    write(second, [1, 2, 3, 4, 5], [0, 1, 0, -3, 0])
    with pytest.raises(InputError, match=r"from 0, but got -3 in .*train-00001-of-00002.parquet row 3"):
        load(folder)


def test_labels_of_every_integer_width(folder):
    column = pa.array([{"bytes": png(1)}, {"bytes": png(2)}])
    pq.write_table(pa.table({"img": column, "label": pa.array([0, 1], pa.uint8())}), folder / "train.parquet")
    dataset = load(folder)
    assert dataset.train.y.dtype == np.int64
