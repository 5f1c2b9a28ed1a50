"""Kaggle's layout: images in one folder, labels in a table."""

import numpy as np
import pytest
from PIL import Image

from rcad.data.registry import load, recognise
from rcad.errors import InputError

TABLE = "file,label\nb.png,dog\na.png,cat\nc.png,dog\n"
MORE = "age,id,label\n1,b,dog\n2,a,cat\n2,c,dog\n"
HERE = {"labels": "train.csv"}


@pytest.fixture
def kaggle(tmp_path):
    """Three images in a folder of their own, beside the table that names them."""

    def make(table=TABLE, folder="images", file="train.csv", names=("a.png", "b.png", "c.png")):
        root = tmp_path / "kaggle"
        (root / folder).mkdir(parents=True, exist_ok=True)
        for i, name in enumerate(names):
            Image.new("RGB", (4, 4), (10 * (i + 1), 0, 0)).save(root / folder / name)
        (root / file).write_text(table)
        return root

    return make


def read(root, **options):
    return load(root, cache_dir=root.parent / "cache", **options)


def reds(dataset):
    return dataset.train.x[:, 0, 0, 0].tolist()


@pytest.mark.parametrize("folder", ["images", "train", "train_images", "."])
@pytest.mark.parametrize(
    "table", [TABLE, TABLE.replace(".png", ""), TABLE.replace(",", "\t"), "i," + TABLE.replace("\n", "\n1,", 3)]
)
def test_the_plain_layout_is_found(kaggle, folder, table):
    root = kaggle(table, folder)
    (root / "test.csv").write_text("file\nd.png\ne.png\n")
    assert recognise(root).layout == "labels"
    dataset = read(root)
    assert dataset.classes == ("cat", "dog")
    assert (reds(dataset), dataset.train.y.tolist()) == ([20, 10, 30], [1, 0, 1])
    assert dataset.note.endswith(", labels in train.csv")
    assert dataset.omissions == ()
    assert dataset.test is None


def test_everything_can_be_named(kaggle, tmp_path):
    root = kaggle()
    (root / "train.csv").unlink()
    table = tmp_path / "elsewhere.csv"
    table.write_text("picture,kind,label\na.png,10,x\nb.png,9,y\nc.png,10,y\n")
    options = {"labels": str(table), "file_column": "picture"}
    for place in (root, root / "images"):
        dataset = read(place, label_column="kind", **options)
        assert (dataset.classes, dataset.train.y.tolist()) == (("9", "10"), [1, 0, 1])
    assert read(root, **options).classes == ("x", "y")  # called label
    assert read(root, labels=str(table), size=2).train.x.shape == (3, 3, 2, 2)


def test_bad_rows_and_images_are_named_or_skipped_with_a_count(kaggle):
    root = kaggle(TABLE + "gone.png,cat\nlost.png,dog\nd.png,\n", names=("a.png", "b.png", "c.png", "d.png"))
    with pytest.raises(InputError, match=r"a target in line 7, column 'label' of .*train.csv, but it is missing"):
        read(root)
    (root / "images" / "c.png").write_bytes(b"no image")
    dataset = read(root, skip_bad=True)
    assert (reds(dataset), dataset.train.y.tolist()) == ([20, 10], [1, 0])
    assert dataset.omissions[:2] == ("1 rows without a label skipped", "2 rows without an image skipped")
    assert dataset.omissions[2].startswith("1 of 3 images skipped, e.g.: expected ")
    assert read(root, skip_bad=True).omissions == dataset.omissions, "the cache remembers"
    assert all(sentence in dataset.note for sentence in dataset.omissions)


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (TABLE + "gone.png,cat\nlost.png,cat\n", {}, "'gone.png' of line 5, .* missing, as are 1 more of 5; "),
        ("file,a,b\na.png,1,2\nb.png,2,1\n", HERE, r"one column of classes in .*, but got a, b; pass"),
        ("name,label\nx,1\ny,2\n", HERE, "that names the images in .*; pass file_column="),
        (TABLE, {"labels": "other.csv"}, "a table of labels at other.csv, but there is none"),
        (TABLE, {**HERE, "label_column": "lable"}, r"label_column to be a column .* did you mean 'label'\?"),
        (TABLE, {**HERE, "file_column": "fil"}, r"file_column to be a column .* did you mean 'file'\?"),
        ("file,label\na.png,1\nb.png,1\n", HERE, "at least 2 classes"),
        (TABLE, {"label_colum": "x"}, "label_column"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(kaggle, table, options, message):
    with pytest.raises(InputError, match=message) as caught:
        read(kaggle(table), **options)
    assert "\n" not in str(caught.value)


def test_class_folders_stay_what_they_are(kaggle, tmp_path):
    root = kaggle(folder="train", table="a,b\n1,2\n3,4\n")  # a class of trains, and a table about something else
    (root / "bus").mkdir()
    Image.new("RGB", (4, 4)).save(root / "bus" / "x.png")
    assert recognise(root).layout == "folders"
    assert read(root).classes == ("bus", "train")


def test_the_table_is_part_of_the_cache_s_key(kaggle):
    root = kaggle()
    before = read(root)
    (root / "train.csv").write_text(TABLE.replace("a.png,cat", "a.png,owl"))
    assert (before.classes, read(root).classes) == (("cat", "dog"), ("dog", "owl"))
    np.testing.assert_array_equal(before.train.x, read(root).train.x[:])
