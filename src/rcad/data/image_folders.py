"""Images sorted into folders: root/<class>/*.png, or root/train/<class>/*.jpg with root/val or root/test beside it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.data.cache import Described, cached
from rcad.data.dataset import Dataset, Progress, check_several
from rcad.data.decoding import ImageFiles, decode_splits, in_parts
from rcad.data.images import check_size, is_image_name
from rcad.data.streams import streamed, too_large
from rcad.errors import InputError

MOST_OTHERS = 100_000
"""A class folder with more files than this that are no images, and fewer that are, is none: "/" must not take hours."""
TRAIN_NAMES, TEST_NAMES = ("train", "training"), ("test", "testing", "val", "valid", "validation")
"""How the folders of a split may be called, in capitals too; the first that is there is taken."""
# By class name, the image names relative to the root.
ClassFiles = Mapping[str, Sequence[str]]


def load(
    name_or_path: str,
    *,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    size: int | None = None,
    skip_bad: bool = False,
    stream: bool | None = None,
) -> Dataset:
    """Images whose folder names their class; labels follow the sorted class names.

    Returns:
        uint8 images (N, 3, H, W), or (N, 1, H, W) where all are grey. `test` comes from root/test, else root/val; None
        for a plain root/<class>. Of root/test and root/val together only the first is read, and the note says so:
        examples to select by are held out from root/train.

    Args:
        size: resize the shorter side to this many pixels and crop the centre; needed where sizes differ.
        skip_bad: leave out images that cannot be decoded; the note counts them.
        stream: read images from disk as they are needed; None where they would not fit into memory.
    """
    check_size(size)
    root = Path(name_or_path)
    found = split_folders(root) or {"train": root}
    splits = {split: _class_files(root, folder) for split, folder in found.items()}
    classes = tuple(splits["train"])
    check_several(classes, str(found["train"]))
    for name in splits.get("test", ()):
        if name not in classes:
            raise InputError(
                f"expected the classes of {found['train']} in {found['test']}, "
                f"but got {name!r} as well; rename or remove it"
            )
    dataset = read(root, splits, classes, size, cache_dir, progress, kind="folders", skip_bad=skip_bad, stream=stream)
    unread = [one.name for one in _named(root, TEST_NAMES) if _has_folders(one) and one != found.get("test")]
    note = f"{dataset.note}; not read: {', '.join(unread)}" if unread else dataset.note
    return dataclasses.replace(dataset, note=note)


def read(
    root: Path,
    splits: Mapping[str, ClassFiles],
    classes: tuple[str, ...],
    size: int | None,
    cache_dir: Path | None,
    progress: Progress | None,
    *,
    kind: str,
    extra_files: Sequence[Path] = (),
    skip_bad: bool = False,
    stream: bool | None = False,
) -> Dataset:
    """Decode image files below `root` that are already sorted by class.

    Args:
        extra_files: files below `root` that the classes were read from; they are part of the cache's key.
    """
    flat = {split: [name for c in classes for name in files.get(c, ())] for split, files in splits.items()}
    paths = [root / name for names in flat.values() for name in names]
    sources = {split: in_parts(ImageFiles, root, names) for split, names in flat.items()}
    labels = labels_of(splits, classes)
    note = f"{len(paths):,} images in {len(classes)} classes from {root.name}"
    if stream or (stream is None and too_large(sources, size, skip_bad=skip_bad)):
        given: dict[str, Any] = {"size": size, "skip_bad": skip_bad, "cache_dir": cache_dir, "progress": progress}
        return streamed([*paths, *extra_files], root, sources, labels, classes, note, **given)

    def build(folder: Path) -> Described:
        omissions = decode_splits(folder, sources, labels, size, progress, skip_bad=skip_bad)
        return Described(classes, note, omissions)

    options = {"size": size, "classes": classes} | ({"skip_bad": True} if skip_bad else {})
    dataset = cached(kind, [*paths, *extra_files], root, options, build, cache_dir)
    # A copy of a folder finds the cache of the first, with its name.
    return dataclasses.replace(dataset, note="; ".join([note, *dataset.omissions]))


def labels_of(splits: Mapping[str, ClassFiles], classes: tuple[str, ...]) -> dict[str, npt.NDArray[np.int64]]:
    """The labels of images in class order, by split."""
    counts = {split: [len(files.get(name, ())) for name in classes] for split, files in splits.items()}
    return {split: np.repeat(np.arange(len(classes), dtype=np.int64), count) for split, count in counts.items()}


def split_folders(root: Path) -> dict[str, Path] | None:
    """root/train and the first of root/test, root/val, ... that is there; None without root/train.

    A folder "train" without folders in it, and with no test set beside it, is a class: the one of trains.
    """
    train, tests = _named(root, TRAIN_NAMES)[:1], _named(root, TEST_NAMES)
    if not train or not (tests or _has_folders(train[0])):
        return None
    # ImageNet's test folder has no labels, hence no class folders: its validation folder serves.
    labelled = [folder for folder in tests if _has_folders(folder)]
    return {"train": train[0]} | ({"test": labelled[0]} if labelled else {})


def class_folders(folder: Path) -> list[Path]:
    """The sub-folders that name classes, sorted; hidden ones are not."""
    return sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith((".", "__")))


def _named(root: Path, names: Sequence[str]) -> list[Path]:
    """The folders in `root` that have one of these names, in the order of the names."""
    folders = {child.name.lower(): child for child in class_folders(root)}
    return [folders[name] for name in names if name in folders]


def _has_folders(folder: Path) -> bool:
    return bool(class_folders(folder))


def _class_files(root: Path, folder: Path) -> dict[str, list[str]]:
    classes = {child.name: _images_below(root, child) for child in class_folders(folder)}
    if not classes:
        raise InputError(f"expected one sub-folder per class in {folder}, but got none; sort the images into folders")
    return classes


def _images_below(root: Path, folder: Path) -> list[str]:
    """Image names relative to `root`, sorted, at any depth; a folder that cannot be a class ends the search."""
    found: list[str] = []
    others = 0
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not _leads_back(parent, name)]
        images = [os.path.relpath(os.path.join(parent, name), root) for name in names if is_image_name(name)]
        found += images
        others += len(names) + len(folders) - len(images)
        if others > max(MOST_OTHERS, len(found)):
            raise InputError(
                f"expected a folder of images for each class, but {folder} has over {MOST_OTHERS:,} other files and "
                f"folders; check that {root} is the right one"
            )
    if not found:
        what = (
            f"none among {others:,} other files and folders; check that {root} is the right one" if others else "none"
        )
        raise InputError(f"expected images in {folder}, but got {what}; every folder in it names a class")
    return sorted(found)


def _leads_back(parent: str, name: str) -> bool:
    """Whether a link goes to a folder that it lies in: following it would have no end."""
    path = os.path.join(parent, name)
    return os.path.islink(path) and Path(os.path.realpath(parent)).is_relative_to(os.path.realpath(path))
