"""Images in class folders, in Tiny ImageNet's own arrangement, beside a table of labels, and in Parquet shards."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data.conftest import red, reds, shard, write
from one_line import fails_in_one_line
from rcad.data import image_folders, image_parquet, registry
from rcad.data.official import load_tiny_imagenet
from rcad.errors import InputError


def load(root, **options):
    return registry.load(root, cache_dir=root.parent / "cache", **options)


def both(train, test):
    return {f"{train}__cat__a": 1, f"{train}__dog__b": 2, f"{test}__cat__a": 5, f"{test}__dog__b": 6}


PETS, TRAINS = ("cat", "dog"), ("bus", "train")


@pytest.mark.parametrize(
    ("images", "classes", "train", "test"),
    [
        ({"dog__b": 3, "cat__z": 2, "cat__deep__a": 1}, PETS, {1: 0, 2: 0, 3: 1}, None),
        ({"train__dog__a": 1, "train__cat__b": 2, "train__cat__c": 3, "val__cat__d": 9}, PETS, {2: 0, 3: 0, 1: 1}, [9]),
        (both("Train", "Test"), PETS, {1: 0, 2: 1}, [5, 6]),
        # A test folder without class folders has no labels: the validation folder serves.
        (both("train", "val") | {"test__a": 9}, PETS, {1: 0, 2: 1}, [5, 6]),
        (both("train", "test") | {"val__cat__a": 9}, PETS, {1: 0, 2: 1}, [5, 6]),
        ({"bus__a": 1, "train__b": 2, "train__.thumbnails__c": 3}, TRAINS, {3: 1, 2: 1, 1: 0}, None),
    ],
)
def test_layouts(tmp_path, images, classes, train, test):
    root = write(tmp_path / "pets", **images)
    (root / ".git").mkdir()
    (root / "notes.txt").write_text("not an image")
    next(root.glob("[!.]*/")).joinpath("._z.png").write_text("left by a Mac")
    dataset = load(root)
    assert dataset.classes == classes
    assert dict(zip(reds(dataset.train), dataset.train.y.tolist(), strict=True)) == train
    assert dataset.train.x.shape[1:] == (3, 4, 4)
    assert reds(dataset.test) == test
    unread = ["not read: val"] if "val__cat__a" in images and "test__cat__a" in images else []
    assert dataset.note.endswith("; ".join(["from pets", *dataset.omissions, *unread]))
    copy = shutil.copytree(root, tmp_path / "copy")  # which finds the cache of the first
    assert "classes from copy" in load(copy).note


def tiny(folder, wnids=("n02", "n01")):
    """Tiny ImageNet in small: two classes, two training images and one validation image each."""
    files = {"wnids_dot_txt": "\n".join(wnids).encode(), "test__images__test_0_dot_JPEG": red(9)}
    for i, wnid in enumerate(wnids):
        files |= {f"train__{wnid}__images__{wnid}_{j}_dot_JPEG": red(100 * i + 50 * j) for j in range(2)}
        files |= {f"train__{wnid}__{wnid}_boxes_dot_txt": b"boxes", f"val__images__val_{i}_dot_JPEG": red(200 + i)}
    lines = [f"val_{i}.JPEG\t{wnid}\t0\t0\t7\t7\n" for i, wnid in enumerate(wnids)]
    return write(folder / "tiny-imagenet-200", **files, val__val_annotations_dot_txt="".join(lines).encode())


def test_tiny_imagenet_zip_and_folder_agree(tmp_path, unchecked):
    root = tiny(tmp_path)
    for path in (root, shutil.make_archive(root, "zip", tmp_path, root.name)):
        dataset = load_tiny_imagenet(str(path), cache_dir=tmp_path / "cache")
        assert dataset.classes == ("n01", "n02")
        # The second wnid listed sorts first: its images, 100 and 150, are class 0.
        assert (reds(dataset.train), reds(dataset.test)) == ([100, 150, 0, 50], [201, 200])
        assert (dataset.train.y.tolist(), dataset.test.y.tolist()) == ([0, 0, 1, 1], [0, 1])
    text = root / "val" / "val_annotations.txt"
    text.write_text(text.read_text().replace("val_0.JPEG\tn02", "val_0.JPEG\tn01"))
    again = load_tiny_imagenet(str(root), cache_dir=tmp_path / "cache")
    assert again.test.y.tolist() == [0, 0], "the annotations are part of the cache's key"


TABLE = "file,label\nb.png,dog\na.png,cat\nc.png,dog\n"
HERE = {"labels": "train.csv"}
LONE = "classes with only one image, too few to learn and to test: 'cat'"


@pytest.fixture
def kaggle(tmp_path):
    """Three images in a folder of their own, beside the table that names them."""

    def make(table=TABLE, folder="images", file="train.csv", names=("a.png", "b.png", "c.png")):
        root = tmp_path / "kaggle"
        write(root / folder, **{name.replace(".", "_dot_"): red(10 * i % 256) for i, name in enumerate(names, 1)})
        (root / file).write_text(table)
        return root

    return make


@pytest.mark.parametrize("folder", ["images", "train", "train_images", "."])
@pytest.mark.parametrize(
    "table", [TABLE, TABLE.replace(".png", ""), TABLE.replace(",", "\t"), "i," + TABLE.replace("\n", "\n1,", 3)]
)
def test_the_plain_layout_is_found(kaggle, folder, table):
    root = kaggle(table, folder)
    (root / "test.csv").write_text("file\nd.png\ne.png\n")
    dataset = load(root)
    assert (reds(dataset.train), dataset.train.y.tolist()) == ([20, 10, 30], [1, 0, 1])
    assert dataset.note.endswith(f", labels in train.csv; {LONE}")
    assert (dataset.classes, dataset.omissions, dataset.test) == (("cat", "dog"), (LONE,), None)


def test_everything_can_be_named(kaggle, tmp_path):
    root = kaggle()
    (root / "train.csv").unlink()
    table = tmp_path / "elsewhere.csv"
    table.write_text("picture,kind,label\na.png,10,x\nb.png,9,y\nc.png,10,y\n")
    options = {"labels": str(table), "file_column": "picture"}
    for place in (root, root / "images"):
        dataset = load(place, label_column="kind", **options)
        assert (dataset.classes, dataset.train.y.tolist()) == (("9", "10"), [1, 0, 1])
    assert load(root, **options).classes == ("x", "y")  # called label
    assert load(root, labels=str(table), size=2).train.x.shape == (3, 3, 2, 2)


def test_an_index_beside_the_names_is_no_name(kaggle):
    """Rows are counted as the images are: the count must not be taken for their names."""
    names = ("0.png", "1.png", "2.png")
    dataset = load(kaggle(",id,breed\n0,2,dog\n1,0,cat\n2,1,dog\n", names=names))
    assert (reds(dataset.train), dataset.train.y.tolist()) == ([30, 10, 20], [1, 0, 1])
    assert load(kaggle(",breed\n2.png,dog\n0,cat\n1,dog\n", names=names)).train.y.tolist() == [1, 0, 1]


@pytest.mark.parametrize("stream", [False, True])
def test_a_column_of_scores_may_be_the_target(kaggle, stream):
    root = kaggle("file,score\nb.png,0.5\na.png,-2\nc.png,0.25\n")
    with fails_in_one_line(match=r"got 3 values in 3 rows; give another target, or pass .* \(--task regression\)$"):
        load(root, stream=stream)
    for _ in range(2):  # decoded, and from the cache
        dataset = load(root, stream=stream, task="regression")
        assert (dataset.task, dataset.classes, dataset.train.y.tolist()) == ("regression", (), [0.5, -2, 0.25])
        assert dataset.note.startswith("3 images with 3 target values from images, labels in train.csv")
    (root / "train.csv").write_text("file,score\nb.png,0.5\na.png,2\nc.png,0.5\n")
    assert load(root, stream=stream).classes == ("0.5", "2")  # of the same files, kept apart
    assert load(root, stream=stream, task="regression").classes == ()
    (root / "train.csv").write_text("file,score\nb.png,0.5\nb.png,0.5\na.png,1\na.png,2\nc.png,1\n")
    with fails_in_one_line(match="one label for the image 'a.png' .* it is '1' in line 4 and '2' in line 5"):
        load(root, stream=stream, task="regression")


def test_images_that_the_table_does_not_list_are_counted(kaggle):
    root = kaggle(names=("a.png", "b.png", "c.png", "d.png", "e.png"))
    for sentence in load(root).omissions[-1], load(root).note.rpartition("; ")[2]:
        assert sentence == "2 of 5 images not read: train.csv does not list them"
    (root / "images" / "d.png").unlink()
    assert load(root).omissions[-1].startswith("1 of 4 images not read"), "the cache must not remember"
    (root / "train.csv").write_text(TABLE.replace("cat", "Dog"))
    assert load(root).omissions[-1].startswith("column 'label': 'Dog' and 'dog' differ by case ")


def test_bad_rows_and_images_are_named_or_skipped_with_a_count(kaggle):
    root = kaggle(TABLE + "gone.png,cat\nlost.png,dog\nd.png,\n", names=("a.png", "b.png", "c.png", "d.png"))
    with pytest.raises(InputError, match=r"a target in line 7, column 'label' of .*train.csv, but it is missing"):
        load(root)
    (root / "images" / "c.png").write_bytes(b"no image")
    dataset = load(root, skip_bad=True)
    assert (reds(dataset.train), dataset.train.y.tolist()) == ([20, 10], [1, 0])
    assert dataset.omissions[:2] == ("1 row without a label skipped", "2 rows without an image skipped")
    assert dataset.omissions[2].startswith("1 of 3 images skipped, e.g.: expected ")
    assert load(root, skip_bad=True).omissions == dataset.omissions, "the cache remembers"
    assert all(sentence in dataset.note for sentence in dataset.omissions)
    (root / "train.csv").write_text(TABLE + "gone.png,owl\nd.png,\n")
    assert load(root, skip_bad=True).omissions[2] == "no image is left of 'owl'"


@pytest.mark.parametrize("stream", [False, True])
def test_an_image_that_is_listed_twice_is_taken_once(kaggle, stream, monkeypatch):
    root = kaggle(TABLE + "b.png,dog\nb,dog\n")
    with monkeypatch.context() as patched:  # what an earlier version left in the cache
        patched.setattr(image_folders, "_listed_once", lambda table, target, task, names, skip_bad: ([*range(5)], 0, 0))
        assert len(load(root, stream=stream).train) == 5
    dataset = load(root, stream=stream)
    assert (len(dataset.train.x), dataset.train.y.tolist()) == (3, [1, 0, 1])
    assert not stream or dataset.train.x.image_moments.shape[1] == 3
    assert dataset.omissions == ("1 image listed more than once, with one label, taken once", LONE)
    (root / "train.csv").write_text(TABLE.replace("b.png", "b.png,owl\na.png,cat\nb.png"))
    dataset = load(root, stream=stream, skip_bad=True)
    assert (len(dataset.train.x), dataset.train.y.tolist(), dataset.classes) == (2, [0, 1], ("cat", "dog"))
    assert dataset.omissions[0] == "1 image with different labels skipped"


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (TABLE + "b,cat\n", {}, "image 'b.png' in .*train.csv, but it is 'dog' in line 2 and 'cat' in line 5; "),
        (TABLE + "gone.png,cat\nlost.png,cat\n", {}, "'gone.png' of line 5, .* missing, as are 1 more of 5; "),
        ("file,a,b\na.png,1,2\nb.png,2,1\n", HERE, r"one column of classes in .*, but got a, b; pass"),
        ("name,label\nx,1\ny,2\n", HERE, r"that names .* none \(first: 'x'; first image: 'a.png'\); pass labels= and"),
        (TABLE, {"labels": "other.csv"}, "a table of labels at other.csv, but there is none"),
        (TABLE, {"target": "label"}, r"expected label_column \(--label-column\) for .*, but got 'target', for tables$"),
        (TABLE, {**HERE, "label_column": "lable"}, r"label_column to be a column .* did you mean 'label'\?"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(kaggle, table, options, message):
    with fails_in_one_line(match=message):
        load(kaggle(table), **options)


def test_images_without_their_table_and_a_table_without_its_images(kaggle):
    root = kaggle(file="u.csv")
    with fails_in_one_line(match="beside the images in .*images, but got u.csv, v.csv; pass labels="):
        load(kaggle(file="v.csv"))
    for table in root.glob("*.csv"):
        table.unlink()
    with fails_in_one_line(match="a table of labels beside the images in .*images, but got none; pass labels="):
        load(root)
    shutil.rmtree(root / "images")
    with fails_in_one_line(match="images in .*images, but got none; put those there that train.csv lists$"):
        load(kaggle(names=()))


def test_class_folders_stay_what_they_are(kaggle, tmp_path):
    root = kaggle(folder="train", table="a,b\n1,2\n3,4\n")  # a class of trains, and a table about something else
    write(root, bus__x=1)
    assert registry.recognise(root).layout == "folders"
    assert load(root).classes == ("bus", "train")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "shards"


@pytest.mark.parametrize(
    ("names", "options"), [(("img", "fine_label"), {}), (("image", "label"), {}), (("img", "x"), {"label_column": "x"})]
)
@pytest.mark.parametrize("struct", [True, False])
def test_shards_keep_their_order(folder, names, options, struct, monkeypatch):
    columns = {"names": names, "struct": struct}
    shard(folder / "train-00005-of-00006.parquet", [5, 6], [1, 0], **columns)
    shard(folder / "train-00000-of-00006.parquet", [1, 2, 3, 4, 9], [0, 1, 2, 2, 1], group=4, **columns)
    for k in (3, 1, 4, 2):
        shard(folder / f"train-0000{k}-of-00006.parquet", [20 + k], [0], **columns)
    shard(folder / "test-00000-of-00001.parquet", [7], [2], **columns)
    monkeypatch.setattr("rcad.data.decoding.SOURCE_LENGTH", 3)  # longer groups of rows are cut
    dataset = load(folder, **options)
    assert reds(dataset.train) == [1, 2, 3, 4, 9, 21, 22, 23, 24, 5, 6]
    assert dataset.train.y.tolist() == [0, 1, 2, 2, 1, 0, 0, 0, 0, 1, 0]
    assert (reds(dataset.test), dataset.test.y.tolist()) == ([7], [2])
    assert dataset.classes == ("0", "1", "2")
    named = load(folder, classes=("a", "b", "c"), size=2, **options)
    assert (named.classes, named.train.x.shape) == (("a", "b", "c"), (11, 3, 2, 2))


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


def test_one_file_is_a_training_split(folder):
    file = shard(folder / "anything.parquet", [1, 2], pa.array([0, 1], pa.uint8()))
    dataset = registry.load(file, cache_dir=folder / "cache")
    assert (dataset.test, dataset.train.y.dtype) == (None, np.int64)
    assert image_parquet.has_images(file)
    pq.write_table(pa.table({"image": ["a.png"], "age": [3]}), folder / "table.parquet")
    assert not image_parquet.has_images(folder / "table.parquet")
