"""Images sorted into folders, and Tiny ImageNet's own arrangement of them."""

import zipfile

import numpy as np
import pytest
from PIL import Image

from rcad.data import decoding, image_folders
from rcad.data.official_readers import load_tiny_imagenet
from rcad.errors import InputError


def save(path, colour, size=(8, 8)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (colour, 0, 0)).save(path)


def reds(split):
    return split.x[:, 0, 0, 0].tolist()


def test_plain_folders(tmp_path):
    root = tmp_path / "pets"
    save(root / "dog" / "b.png", 3)
    save(root / "cat" / "z.PNG", 2)
    save(root / "cat" / "deep" / "a.bmp", 1)
    (root / "cat" / "notes.txt").write_text("not an image")
    (root / "cat" / "._z.png").write_text("left by a Mac")
    (root / ".git").mkdir()
    dataset = image_folders.load(str(root), cache_dir=tmp_path / "cache")
    assert dataset.classes == ("cat", "dog")
    assert reds(dataset.train) == [1, 2, 3]
    assert dataset.train.y.tolist() == [0, 0, 1]
    assert dataset.train.x.shape == (3, 3, 8, 8)
    assert dataset.test is None


def test_a_link_that_leads_back_is_not_followed(tmp_path):
    root = tmp_path / "pets"
    save(root / "cat" / "a.png", 1)
    save(root / "dog" / "b.png", 2)
    save(tmp_path / "elsewhere" / "c.png", 3)
    (root / "cat" / "again").symlink_to(root / "cat")
    (root / "dog" / "deep").mkdir()
    (root / "dog" / "deep" / "up").symlink_to(tmp_path)
    (root / "dog" / "more").symlink_to(tmp_path / "elsewhere")
    dataset = image_folders.load(str(root), cache_dir=tmp_path / "cache")
    assert (reds(dataset.train), dataset.train.y.tolist()) == ([1, 2, 3], [0, 1, 1])


def test_a_folder_that_cannot_be_a_class_ends_the_search(tmp_path, monkeypatch):
    root = tmp_path / "disk"
    save(root / "cat" / "a.png", 1)
    for i in range(6):
        (root / "etc" / f"{i}" / "conf").mkdir(parents=True)
    save(root / "usr" / "b.png", 2)
    looked = []
    walk = image_folders.os.walk
    monkeypatch.setattr(image_folders.os, "walk", lambda path, **kw: (looked.append(path.name), walk(path, **kw))[1])
    with pytest.raises(InputError, match=r"^expected images in .*etc, but got none among 12 other files and folders; "):
        image_folders.load(str(root), cache_dir=tmp_path / "cache")
    assert looked == ["cat", "etc"]  # what comes after it is not even looked at
    monkeypatch.setattr(image_folders, "MOST_OTHERS", 5)
    with pytest.raises(InputError, match=r"but .*etc has over 5 other files and folders; check that .*disk is"):
        image_folders.load(str(root), cache_dir=tmp_path / "cache")


def test_many_images_may_have_many_files_beside_them(tmp_path, monkeypatch):
    monkeypatch.setattr(image_folders, "MOST_OTHERS", 2)
    for name in ("cat", "dog"):
        for i in range(4):
            save(tmp_path / "pets" / name / f"{i}.png", i)
            (tmp_path / "pets" / name / f"{i}.txt").write_text("about it")
    assert len(image_folders.load(str(tmp_path / "pets"), cache_dir=tmp_path / "cache").train) == 8


@pytest.mark.parametrize("test_name", ["val", "test", "validation"])
def test_imagenet_style(tmp_path, test_name):
    root = tmp_path / "imagenet"
    for i, wnid in enumerate(("n02", "n01", "n03")):
        save(root / "train" / wnid / "a.png", i)
        save(root / "train" / wnid / "b.png", 10 + i)
    save(root / test_name / "n01" / "c.png", 42)
    dataset = image_folders.load(str(root), cache_dir=tmp_path / "cache")
    assert reds(dataset.train) == [1, 11, 0, 10, 2, 12]
    assert dataset.train.y.tolist() == [0, 0, 1, 1, 2, 2]
    assert (reds(dataset.test), dataset.test.y.tolist()) == ([42], [0])


@pytest.mark.parametrize(("train", "test"), [("Train", "Test"), ("training", "Validation"), ("TRAINING", "testing")])
def test_splits_by_other_names_are_no_classes(tmp_path, train, test):
    root = tmp_path / "pets"
    for folder, colour in ((train, 1), (test, 5)):
        save(root / folder / "cat" / "a.png", colour)
        save(root / folder / "dog" / "b.png", colour + 1)
    dataset = image_folders.load(str(root), cache_dir=tmp_path / "cache")
    assert dataset.classes == ("cat", "dog")
    assert (reds(dataset.train), reds(dataset.test)) == ([1, 2], [5, 6])


def test_trains_are_a_class(tmp_path):
    root = tmp_path / "vehicles"
    save(root / "bus" / "a.png", 1)
    save(root / "train" / "b.png", 2)
    (root / "train" / ".thumbnails").mkdir()
    dataset = image_folders.load(str(root), cache_dir=tmp_path / "cache")
    assert (dataset.classes, reds(dataset.train)) == (("bus", "train"), [1, 2])
    save(root / "test" / "c.png", 3)  # images that nobody sorted
    with pytest.raises(InputError, match=r"^expected one sub-folder per class in .*train, but got none"):
        image_folders.load(str(root), cache_dir=tmp_path / "cache")


def test_an_unlabelled_test_folder_gives_way_to_val(tmp_path):
    root = tmp_path / "imagenet"
    for split, wnid, colour in (("train", "n1", 1), ("train", "n2", 2), ("val", "n1", 3)):
        save(root / split / wnid / "a.png", colour)
    save(root / "test" / "a.png", 9)
    assert reds(image_folders.load(str(root), cache_dir=tmp_path / "cache").test) == [3]


def test_size_makes_differing_images_alike(tmp_path):
    root = tmp_path / "pets"
    save(root / "cat" / "a.png", 1, (8, 12))
    save(root / "dog" / "b.png", 2, (20, 10))
    with pytest.raises(InputError, match="size="):
        image_folders.load(str(root), cache_dir=tmp_path / "cache")
    dataset = image_folders.load(str(root), cache_dir=tmp_path / "cache", size=6)
    assert dataset.train.x.shape == (2, 3, 6, 6)
    assert reds(dataset.train) == [1, 2]


def test_long_lists_keep_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "SOURCE_LENGTH", 3)
    for i in range(10):
        save(tmp_path / "set" / "ab"[i % 2] / f"{i}.png", i)
    dataset = image_folders.load(str(tmp_path / "set"), cache_dir=tmp_path / "cache")
    assert reds(dataset.train) == [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]


def tiny(folder, wnids=("n02", "n01")):
    """Tiny ImageNet in small: two classes, two training images and one validation image each."""
    root = folder / "tiny-imagenet-200"
    for i, wnid in enumerate(wnids):
        for j in range(2):
            save(root / "train" / wnid / "images" / f"{wnid}_{j}.JPEG", 100 * i + 50 * j)
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("boxes")
        save(root / "val" / "images" / f"val_{i}.JPEG", 200 + i)
    save(root / "test" / "images" / "test_0.JPEG", 9)
    (root / "wnids.txt").write_text("\n".join(wnids))
    lines = [f"val_{i}.JPEG\t{wnid}\t0\t0\t7\t7\n" for i, wnid in enumerate(wnids)]
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    return root


def zipped(root):
    path = root.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(root.rglob("*")):
            archive.write(file, file.relative_to(root.parent))
    return path


def test_tiny_imagenet_zip_and_folder_agree(tmp_path):
    root = tiny(tmp_path)
    options = {"cache_dir": tmp_path / "cache", "check": False}
    from_folder = load_tiny_imagenet(str(root), **options)
    from_zip = load_tiny_imagenet(str(zipped(root)), **options)
    assert from_folder.classes == ("n01", "n02")
    # The second wnid listed sorts first: its images, 100 and 150, are class 0.
    np.testing.assert_allclose(reds(from_folder.train), [100, 150, 0, 50], atol=3)
    np.testing.assert_allclose(reds(from_folder.test), [201, 200], atol=3)
    assert from_folder.train.y.tolist() == [0, 0, 1, 1]
    assert from_folder.test.y.tolist() == [0, 1]
    for split in ("train", "test"):
        for field in ("x", "y"):
            np.testing.assert_array_equal(
                getattr(getattr(from_folder, split), field), getattr(getattr(from_zip, split), field)
            )


def test_tiny_imagenet_annotations_are_part_of_the_key(tmp_path):
    root = tiny(tmp_path)
    options = {"cache_dir": tmp_path / "cache"}
    before = load_tiny_imagenet(str(root), **options)
    text = root / "val" / "val_annotations.txt"
    text.write_text(text.read_text().replace("val_0.JPEG\tn02", "val_0.JPEG\tn01"))
    assert before.test.y.tolist() == [0, 1]
    assert load_tiny_imagenet(str(root), **options).test.y.tolist() == [0, 0]


def test_tiny_imagenet_md5_is_checked(tmp_path):
    with pytest.raises(InputError, match="expected md5 90528d7ca1a48142e341f4ef8d21d0de"):
        load_tiny_imagenet(str(zipped(tiny(tmp_path))), cache_dir=tmp_path / "cache")


def test_a_copy_has_its_own_name_in_the_note(tmp_path):
    for root in ("first", "second"):
        save(tmp_path / root / "cat" / "a.png", 1)
        save(tmp_path / root / "dog" / "b.png", 2)
    notes = [
        image_folders.load(str(tmp_path / root), cache_dir=tmp_path / "cache").note for root in ("first", "second")
    ]
    assert notes == ["2 images in 2 classes from first", "2 images in 2 classes from second"]


def test_the_note_names_a_split_that_is_not_read(tmp_path):
    for split, colour in (("train", 1), ("val", 2), ("test", 3)):
        save(tmp_path / "set" / split / "cat" / "a.png", colour)
        save(tmp_path / "set" / split / "dog" / "b.png", colour)
    dataset = image_folders.load(str(tmp_path / "set"), cache_dir=tmp_path / "cache")
    assert reds(dataset.test) == [3, 3]
    assert dataset.note.endswith("from set; not read: val")
