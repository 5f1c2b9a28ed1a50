"""Image files in folders, which name their classes, or in one folder beside a table that does.

root/<class>/*.png, or root/train/<class>/*.jpg with root/val or root/test beside it; train/*.jpg with train.csv.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rcad.data.dataset import Dataset, check_several
from rcad.data.decoding import ImageSet, Reading, in_parts
from rcad.data.images import is_image_name
from rcad.data.streams import Stream, read_images
from rcad.data.table_encoder import as_text
from rcad.data.table_files import Table, read_table
from rcad.data.tables import class_labels, column_position, some_names, with_targets
from rcad.errors import InputError, expanded

MOST_OTHERS = 100_000
"""A class folder with more files than this that are no images, and fewer that are, is none: "/" must not take hours."""
TRAIN_NAMES, TEST_NAMES = ("train", "training"), ("test", "testing", "val", "valid", "validation")
"""How the folders of a split may be called, in capitals too; the first that is there is taken."""
# By class name, the image names relative to the root.
ClassFiles = Mapping[str, Sequence[str]]


def load(name_or_path: str, **reading: Any) -> Dataset:
    """Images whose folder names their class; labels follow the sorted class names.

    Returns:
        uint8 images (N, 3, H, W), or (N, 1, H, W) where all are grey. `test` comes from root/test, else root/val; None
        for a plain root/<class>. Of root/test and root/val together only the first is read, and the note says so:
        examples to select by are held out from root/train.
    """
    how, root = Reading(**reading), Path(name_or_path)
    folders = split_folders(root) or {"train": root}
    splits = {split: _class_files(root, folder) for split, folder in folders.items()}
    classes = tuple(splits["train"])
    check_several(classes, str(folders["train"]))
    for name in splits.get("test", ()):
        if name not in classes:
            raise InputError(
                f"expected the classes of {folders['train']} in {folders['test']}, "
                f"but got {name!r} as well; rename or remove it"
            )
    dataset = read(root, splits, classes, how)
    tests = [folder for folder in _named(root, TEST_NAMES) if class_folders(folder)]
    unread = [folder.name for folder in tests if folder != folders.get("test")]
    note = f"{dataset.note}; not read: {', '.join(unread)}" if unread else dataset.note
    return replace(dataset, note=note)


def read(
    root: Path,
    splits: Mapping[str, ClassFiles],
    classes: tuple[str, ...],
    how: Reading,
    kind: str = "folders",
    extra_files: Sequence[Path] = (),
) -> Dataset:
    """Decode image files below `root` that are already sorted by class.

    Args:
        extra_files: files below `root` that the classes were read from; they are part of the cache's key.
    """
    names = {split: [name for c in classes for name in files.get(c, ())] for split, files in splits.items()}
    counts = {split: [len(files.get(name, ())) for name in classes] for split, files in splits.items()}
    labels = {split: np.repeat(np.arange(len(classes), dtype=np.int64), count) for split, count in counts.items()}
    paths = [root / name for files in names.values() for name in files]
    note = f"{len(paths):,} images in {len(classes)} classes from {root.name}"
    images = ImageSet({split: in_parts(root, files) for split, files in names.items()}, labels, classes, note)
    dataset = read_images(kind, [*paths, *extra_files], root, lambda: images, how, classes=classes)
    if isinstance(dataset.train.x, Stream):
        return dataset
    # A copy of a folder finds the cache of the first, with its name.
    return replace(dataset, note="; ".join([note, *dataset.omissions]))


def split_folders(root: Path) -> dict[str, Path] | None:
    """root/train and the first of root/test, root/val, ... that is there; None without root/train.

    A folder "train" without folders in it, and with no test set beside it, is a class: the one of trains.
    """
    train, tests = _named(root, TRAIN_NAMES)[:1], _named(root, TEST_NAMES)
    if not train or not (tests or class_folders(train[0])):
        return None
    # ImageNet's test folder has no labels, hence no class folders: its validation folder serves.
    labelled = [folder for folder in tests if class_folders(folder)]
    return {"train": train[0]} | ({"test": labelled[0]} if labelled else {})


def class_folders(folder: Path) -> list[Path]:
    """The sub-folders that name classes, sorted; hidden ones are not."""
    return sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith((".", "__")))


def _named(root: Path, names: Sequence[str]) -> list[Path]:
    """The folders in `root` that have one of these names, in the order of the names."""
    folders = {child.name.lower(): child for child in class_folders(root)}
    return [folders[name] for name in names if name in folders]


def _class_files(root: Path, folder: Path) -> dict[str, list[str]]:
    classes = {child.name: _images_below(root, child) for child in class_folders(folder)}
    if not classes:
        raise InputError(f"expected one sub-folder per class in {folder}, but got none; sort the images into folders")
    return classes


def _images_below(root: Path, folder: Path) -> list[str]:
    """Image names relative to `root`, sorted, at any depth; a folder that cannot be a class ends the search."""
    images: list[str] = []
    others = 0
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not _leads_back(parent, name)]
        here = [os.path.relpath(os.path.join(parent, name), root) for name in names if is_image_name(name)]
        images += here
        others += len(names) + len(folders) - len(here)
        if others > max(MOST_OTHERS, len(images)):
            raise InputError(
                f"expected a folder of images for each class, but {folder} has over {MOST_OTHERS:,} other files and "
                f"folders; check that {root} is the right one"
            )
    if not images:
        among = f" among {others:,} other files and folders; check that {root} is the right one" if others else ""
        raise InputError(f"expected images in {folder}, but got none{among}; every folder in it names a class")
    return sorted(images)


def _leads_back(parent: str, name: str) -> bool:
    """Whether a link goes to a folder that it lies in: following it would have no end."""
    path = os.path.join(parent, name)
    return os.path.islink(path) and Path(os.path.realpath(parent)).is_relative_to(os.path.realpath(path))


IMAGE_FOLDERS = ("images", "train_images", "train", "img", "imgs", "photos")
"""Where the images may lie beside the table; they may also lie right there."""
LABEL_FILES = ("train", "labels", "train_labels", "trainlabels")
LABEL_COLUMNS = ("label", "labels", "class", "category", "target", "y")
_LOOKED_AT = 50


class Found(NamedTuple):
    """Where the images and the table are, and which column names the files."""

    images: Path
    file: Path
    column: str


def load_labelled(
    name_or_path: str,
    *,
    data_dir: Path | None = None,
    labels: str | None = None,
    file_column: str | None = None,
    label_column: str | None = None,
    **reading: Any,
) -> Dataset:
    """Images of one folder, labelled by a table; in the order of the table.

    Args:
        name_or_path: the folder of the images, or one that holds it and the table.
        labels: the table: a path, or a name in that folder or below `data_dir`; by default found.
        file_column: the column of file names, with or without suffix; by default found.
        label_column: the column of classes; by default the only other one, or one called label, class, ...
        reading: as of `Reading`; `skip_bad` leaves out rows without a label or an image too.
    """
    how = Reading(**reading)
    root = Path(name_or_path)
    found = _located(root, labels, data_dir, file_column)
    table = read_table(found.file)
    files, target = column_position(table, found.column, "file_column"), _label_column(table, found, label_column)
    table, unlabelled = with_targets(table, target, how.skip_bad)
    known = _by_name(found.images)
    text = as_text(table, files)
    names = [None if code < 0 else known.get(text.levels[code]) for code in text.codes.tolist()]
    missing = [row for row, name in enumerate(names) if name is None]
    if missing and not (how.skip_bad and len(missing) < len(names) - 1):
        got = text.levels[text.codes[missing[0]]] if text.codes[missing[0]] >= 0 else ""
        more = f", as are {len(missing) - 1} more of {len(names)}" if len(missing) > 1 else ""
        raise InputError(
            f"expected the image {got[:80]!r} of {table.where(missing[0], files)} in {found.images}, but it is "
            f"missing{more}; correct the table, or pass --skip-bad"
        )
    y, classes = class_labels(table.take(np.flatnonzero([name is not None for name in names])), target)
    chosen = [name for name in names if name is not None]
    counts = ((unlabelled, "a label"), (len(missing), "an image"))
    skipped = tuple(f"{count} row{'s' if count > 1 else ''} without {what} skipped" for count, what in counts if count)
    top = Path(os.path.commonpath([found.images.absolute(), found.file.parent.absolute()]))
    note = f"{len(chosen):,} images in {len(classes)} classes from {found.images.name}, labels in {found.file.name}"

    images = ImageSet({"train": in_parts(found.images, chosen)}, {"train": y}, classes, note, skipped)
    paths = [found.images.absolute() / name for name in sorted(set(chosen))] + [found.file.absolute()]
    return read_images("labels", paths, top, lambda: images, how, file=found.column, label=table.names[target])


def find_labels(folder: Path) -> Found | None:
    """The one table beside a flat folder of images whose every name it holds; None where it is not that plain."""
    tables = [path for path in folder.iterdir() if path.suffix.lower() in (".csv", ".tsv") and path.is_file()]
    named = [path for path in tables if path.stem.lower() in LABEL_FILES] or tables
    if len(named) != 1:
        return None
    for images in [folder / name for name in IMAGE_FOLDERS] + [folder]:
        if not images.is_dir() or not (known := _by_name(images)):
            continue
        try:
            table = read_table(named[0])
        except InputError:
            return None
        column = _file_column(table, known)
        if column is not None:
            return Found(images, named[0], column)
    return None


def _located(folder: Path, labels: str | None, data_dir: Path | None, file_column: str | None) -> Found:
    if labels is None:
        found = find_labels(folder)
        assert found is not None, "the layout was recognised by it"
        return found if file_column is None else found._replace(column=file_column)
    given = expanded(labels)
    places = [given, folder / given, folder.parent / given, *([data_dir / given] if data_dir else [])]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise InputError(f"expected a table of labels at {labels}, but there is none, nor in {folder}; check the path")
    inside = [folder / name for name in IMAGE_FOLDERS]
    images = next((place for place in (folder, *inside) if place.is_dir() and _by_name(place)), None)
    if images is None:
        raise InputError(f"expected images in {folder}, but got none; name their folder (--images)")
    column = file_column or _file_column(read_table(file), _by_name(images))
    if column is None:
        raise InputError(
            f"expected a column of {file} that names the images in {images}, but found none; pass file_column= "
            "(--file-column)"
        )
    return Found(images, file, column)


def _by_name(folder: Path) -> Mapping[str, str]:
    """The images right in a folder by name, and by name without suffix where that names one."""
    names = [entry.name for entry in os.scandir(folder) if is_image_name(entry.name) and entry.is_file()]
    stems: dict[str, str] = {}
    for name in names:
        stem = name.rpartition(".")[0]
        stems[stem] = "" if stem in stems else name
    return {stem: name for stem, name in stems.items() if name} | {name: name for name in names}


def _file_column(table: Table, known: Mapping[str, str]) -> str | None:
    """The first column of which the first rows all name images."""
    for j, name in enumerate(table.names):
        text = as_text(table, j)
        first = text.codes[:_LOOKED_AT].tolist()
        if sum(code >= 0 and text.levels[code] in known for code in first) > len(first) / 2:
            return name
    return None


def _label_column(table: Table, found: Found, asked: str | None) -> int:
    if asked is not None:
        return column_position(table, asked, "label_column")
    others = [name for name in table.names if name != found.column]
    usual = [name for name in others if name.lower() in LABEL_COLUMNS]
    chosen = others if len(others) == 1 else usual
    if len(chosen) != 1:
        raise InputError(
            f"expected one column of classes in {found.file}, but got {some_names(others) or 'none'}; pass "
            "label_column= (--label-column)"
        )
    return table.names.index(chosen[0])
