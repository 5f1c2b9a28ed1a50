"""Image files in folders, which name their classes, or in one folder beside a table that does.

root/<class>/*.png, or root/train/<class>/*.jpg with root/val or root/test beside it; train/*.jpg with train.csv.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from rcad.data.dataset import Dataset, Split, check_several
from rcad.data.decoding import ImageFiles, ImageSet, Reading, is_image_name
from rcad.data.streams import Stream, read_images
from rcad.data.table_encoder import alike_levels
from rcad.data.table_files import UNNAMED, Table, list_names, read_table
from rcad.data.tables import AnyTask, check_column, image_labels, with_targets
from rcad.errors import InputError, expanded, one_of

MOST_OTHERS = 100_000
"""A class folder with more files than this that are no images, and fewer that are, is none: "/" must not take hours."""
TRAIN_NAMES, TEST_NAMES = ("train", "training"), ("test", "testing", "val", "valid", "validation")
"""How the folders of a split may be called, in capitals too; the first that is there is taken."""
ClassFiles = Mapping[str, Sequence[str]]  # by class name, the image names relative to the root


def load(name_or_path: str, **reading: Any) -> Dataset:
    """Images whose folder names their class; labels follow the sorted class names.

    `test` comes from root/test, else root/val, as the note says; None for a plain root/<class>.
    """
    how, root = Reading(**reading), Path(name_or_path)
    folders = split_folders(root) or {"train": root}
    if folders == {"train": root}:
        _check_beside(root)
    splits = {}
    for split, folder in folders.items():
        splits[split] = {child.name: images_below(root, child) for child in class_folders(folder)}
        if not splits[split]:
            raise InputError(
                f"expected one sub-folder per class in {folder}, but got none; sort the images into folders"
            )
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
    return replace(dataset, note=f"{dataset.note}; not read: {', '.join(unread)}") if unread else dataset


def read(
    root: Path,
    splits: Mapping[str, ClassFiles],
    classes: tuple[str, ...],
    how: Reading,
    kind: str = "folders",
    extra_files: Sequence[Path] = (),
) -> Dataset:
    """Decode image files below `root`, sorted by class; `extra_files` there are part of the cache's key as well."""
    names = {split: [name for c in classes for name in files.get(c, ())] for split, files in splits.items()}
    counts = {split: [len(files.get(name, ())) for name in classes] for split, files in splits.items()}
    labels = {split: np.repeat(np.arange(len(classes), dtype=np.int64), count) for split, count in counts.items()}
    paths = [root / name for files in names.values() for name in files]
    note = f"{len(paths):,} images in {len(classes)} classes from {root.name}"
    images = ImageSet({split: [ImageFiles(str(root), files)] for split, files in names.items()}, labels, classes, note)
    dataset = read_images(kind, [*paths, *extra_files], root, lambda: images, how, classes=classes)
    if isinstance(dataset.train.x, Stream):
        return dataset
    # A copy of a folder finds the cache of the first, with its name.
    return replace(dataset, note="; ".join([note, *dataset.omissions]))


def split_folders(root: Path) -> dict[str, Path] | None:
    """root/train and the first of root/test, root/val, ... with classes; None where root/train is none or a class."""
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


def images_below(root: Path, folder: Path) -> list[str]:
    """Image names relative to `root`, sorted, at any depth; a folder that cannot be a class ends the search."""
    images: list[str] = []
    other_files = 0
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not _leads_back(parent, name)]
        added = [os.path.relpath(os.path.join(parent, name), root) for name in names if is_image_name(name)]
        images += added
        other_files += len(names) + len(folders) - len(added)
        if other_files > max(MOST_OTHERS, len(images)):
            raise InputError(
                f"expected a folder of images for each class, but {folder} has over {MOST_OTHERS:,} other files and "
                f"folders; check that {root} is the right one"
            )
    if not images:
        among = f" among {other_files:,} other files and folders; check that {root} is the right one"
        got = f"none{among if other_files else ''}"
        raise InputError(f"expected images in {folder}, but got {got}; every folder in it names a class")
    return sorted(images)


def _leads_back(parent: str, name: str) -> bool:
    """Whether a link points to a folder above itself: following it would never end."""
    path = os.path.join(parent, name)
    return os.path.islink(path) and Path(os.path.realpath(parent)).is_relative_to(os.path.realpath(path))


IMAGE_FOLDERS = ("images", "train_images", "train", "img", "imgs", "photos")
"""Where the images may lie beside the table; they may also lie right there."""
LABEL_FILES = ("train", "labels", "train_labels", "trainlabels")
LABEL_COLUMNS = ("label", "labels", "class", "category", "target", "y")
_LOOKED_AT = 50


class Labelled(NamedTuple):
    """Images that a table labels: their folder, names with and without suffix, the table, its column of file names."""

    images: Path
    names: Mapping[str, str]
    table: Table
    column: str


def load_labelled(
    name_or_path: str,
    *,
    data_dir: Path | None = None,
    labels: str | None = None,
    file_column: str | None = None,
    label_column: str | None = None,
    task: AnyTask = "auto",
    **reading: Any,
) -> Dataset:
    """Images of one folder, labelled by a table; in the order of the table.

    Args:
        name_or_path: the folder of the images, or one that holds it and the table.
        labels: the table: a path, or a name in that folder or below `data_dir`; by default found.
        file_column: the column of file names, with or without suffix; by default found.
        label_column: the column of classes; by default the only other one, or one called label, class, ...
        task: "regression" takes the column's numbers as targets; else they are classes.
    """
    one_of("task", task, get_args(AnyTask))
    how = Reading(**reading)
    images, names, table, column = _located(Path(name_or_path), labels, data_dir, file_column)
    check_column(table, column, "file_column")
    target = _label_column(table, column, label_column)
    listed = {names.get(text or "") for text in table.text(column).texts()}
    table, unlabelled = with_targets(table, target, how.skip_bad)
    texts, found = table.text(column).texts(), {*table.text(target).levels}
    chosen = [None if text is None else names.get(text) for text in texts]
    missing = [row for row, name in enumerate(chosen) if name is None]
    if missing and not (how.skip_bad and len(missing) < len(chosen) - 1):
        got, more = texts[missing[0]] or "", f", as are {len(missing) - 1} more of {len(chosen)}"
        raise InputError(
            f"expected the image {got[:80]!r} of {table.where(missing[0], column)} in {images}, but it is "
            f"missing{more if len(missing) > 1 else ''}; correct the table, or pass --skip-bad"
        )
    table = table.take(np.flatnonzero([name is not None for name in chosen]))
    present = [name for name in chosen if name is not None]
    first, contradictory, repeated = _listed_once(table, target, task, present, how.skip_bad)
    if len(first) < len(present):
        table, present = table.take(np.asarray(first)), [present[row] for row in first]
    y, levels, values = image_labels(table, target, task)
    classes = levels if values is None else ()
    counts = (
        (unlabelled, "row", "without a label skipped"),
        (len(missing), "row", "without an image skipped"),
        (contradictory, "image", "with different labels skipped"),
        (repeated, "image", "listed more than once, with one label, taken once"),
    )
    skipped = tuple(f"{count} {noun}{'s' if count > 1 else ''} {how_so}" for count, noun, how_so in counts if count)
    if values is None and (gone := sorted(found - {*table.text(target).texts()})):
        skipped += (f"no image is left of {list_names([repr(name) for name in gone])}",)
    top = Path(os.path.commonpath([images.absolute(), table.path.parent.absolute()]))
    kind = f"in {len(classes)} classes" if values is None else f"with {len(levels)} target values"
    note = f"{len(present):,} images {kind} from {images.name}, labels in {table.path.name}"
    image_set = ImageSet({"train": [ImageFiles(str(images), present)]}, {"train": y}, classes, note, skipped)
    paths = [images.absolute() / name for name in sorted(present)] + [table.path.absolute()]
    key = {"file": column, "label": target} | ({"once": True} if contradictory or repeated else {})
    key |= {} if values is None else {"task": task}
    dataset = read_images("labels", paths, top, lambda: image_set, how, **key)
    if values is not None:
        dataset = replace(dataset, task="regression", train=Split(dataset.train.x, values[dataset.train.y]))
    there, alike = {*names.values()}, alike_levels(table, target)
    unlisted = len(there - listed)  # no part of the cache's key: they may come and go
    told = f"{unlisted:,} of {len(there):,} images not read: {table.path.name} does not list them" if unlisted else ""
    added = [sentence for sentence in (told, alike) if sentence]
    return replace(dataset, note="; ".join([dataset.note, *added]), omissions=(*dataset.omissions, *added))


def _listed_once(
    table: Table, target: str, task: AnyTask, names: Sequence[str], skip_bad: bool
) -> tuple[list[int], int, int]:
    """The first row of each image, so that none is in two splits; how many had two labels, how many more repeat."""
    labels, classes, _ = image_labels(table, target, task)
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        rows.setdefault(name, []).append(row)
    repeated = [places for places in rows.values() if len(places) > 1]
    pairs = {places[0]: row for places in repeated for row in reversed(places) if labels[row] != labels[places[0]]}
    if pairs and not (skip_bad and len(pairs) < len(rows) - 1):
        got = " and ".join(f"{classes[labels[row]][:40]!r} in {table.line(row)}" for row in next(iter(pairs.items())))
        more = f", like {len(pairs) - 1} more of {len(rows)} images" if len(pairs) > 1 else ""
        raise InputError(
            f"expected one label for the image {names[next(iter(pairs))]!r} in {table.path}, but it is {got}{more}; "
            "correct the table, or pass --skip-bad"
        )
    first = [places[0] for places in rows.values() if places[0] not in pairs]
    return first, len(pairs), len(repeated) - len(pairs)


def find_labels(folder: Path) -> Labelled | None:
    """The table beside a flat folder of images that names them; None unless exactly one fits."""
    usual = _tables(folder)
    if len(usual) != 1:
        return None
    for images, names in _image_folders(folder):
        try:
            table = read_table(usual[0])
        except InputError:
            return None
        if column := _file_column(table, names):
            return Labelled(images, names, table, column)
    return None


def _tables(folder: Path) -> list[Path]:
    """The text tables of a folder, sorted; those alone that are called as tables of labels are, where there are any."""
    tables = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".csv", ".tsv") and path.is_file())
    return [path for path in tables if path.stem.lower() in LABEL_FILES] or tables


def _check_beside(root: Path) -> None:
    """Say what is amiss with images beside a table, which has not been found to name them, in place of class folders.

    Such is a root with one folder alone, called as those of images are.
    """
    folders, tables = class_folders(root), _tables(root)
    if len(folders) != 1 or folders[0].name not in IMAGE_FOLDERS:
        return
    images, names = next(_image_folders(root), (folders[0], {}))
    if not names and tables and not any(folders[0].iterdir()):
        raise InputError(f"expected images in {images}, but got none; put those there that {tables[0].name} lists")
    if names and len(tables) != 1:
        got = list_names([path.name for path in tables]) or "none"
        raise InputError(
            f"expected a table of labels beside the images in {images}, but got {got}; pass labels= (--labels), or "
            "make a folder for each class"
        )
    if names:
        raise _names_none(read_table(tables[0]), images, names)


def _names_none(table: Table, images: Path, names: Mapping[str, str]) -> InputError:
    column = min(table.names, key=lambda name: UNNAMED.fullmatch(name) is not None)
    first = (table.text(column).levels or [""])[0]
    return InputError(
        f"expected a column of {table.path} that names the images in {images}, but found none (first: {first[:40]!r}; "
        f"first image: {min(names.values())[:40]!r}); pass labels= and file_column= (--labels, --file-column)"
    )


def _located(folder: Path, labels: str | None, data_dir: Path | None, file_column: str | None) -> Labelled:
    if labels is None:
        labelled = find_labels(folder)
        assert labelled is not None, "the layout was recognised by it"
        return labelled if file_column is None else labelled._replace(column=file_column)
    path = expanded(labels)
    places = [path, folder / path, folder.parent / path, *([data_dir / path] if data_dir else [])]
    file = next((place for place in places if place.is_file()), None)
    if file is None:
        raise InputError(f"expected a table of labels at {labels}, but there is none, nor in {folder}; check the path")
    images, names = next(_image_folders(folder), (None, {}))
    if images is None:
        if any(is_image_name(path.name) for pattern in ("*/*", "*/*/*") for path in folder.glob(pattern)):
            raise InputError(
                f"expected images in {folder} itself, but they lie in folders there; if those are the classes, "
                "--labels is not needed: leave it out"
            )
        raise InputError(f"expected images in {folder}, but got none; name their folder (--images)")
    table = read_table(file)
    column = file_column or _file_column(table, names)
    if column is None:
        raise _names_none(table, images, names)
    return Labelled(images, names, table, column)


def _image_folders(folder: Path) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Folders at or in `folder` that hold images, and their images by name, and without suffix where that is unique."""
    for place in (folder, *(folder / name for name in IMAGE_FOLDERS)):
        entries = os.scandir(place) if place.is_dir() else ()
        names = [entry.name for entry in entries if is_image_name(entry.name) and entry.is_file()]
        stems = [name.rpartition(".")[0] for name in names]
        count = Counter(stems)
        if names:
            yield place, {s: n for s, n in zip(stems, names, strict=True) if count[s] == 1} | {n: n for n in names}


def _file_column(table: Table, names: Mapping[str, str]) -> str | None:
    """The first column in which most of the first rows name images; an index, which counts, comes last."""
    for column in sorted(table.names, key=lambda name: UNNAMED.fullmatch(name) is not None):
        first = table.text(column).texts(slice(_LOOKED_AT))
        if sum(text in names for text in first) > len(first) / 2:
            return column
    return None


def _label_column(table: Table, file_column: str, chosen: str | None) -> str:
    if chosen is not None:
        check_column(table, chosen, "label_column")
        return chosen
    columns = [name for name in table.names if name != file_column and not UNNAMED.fullmatch(name)]
    usual = columns if len(columns) == 1 else [name for name in columns if name.lower() in LABEL_COLUMNS]
    if len(usual) != 1:
        raise InputError(
            f"expected one column of classes in {table.path}, but got {list_names(columns) or 'none'}; pass "
            "label_column= (--label-column)"
        )
    return usual[0]
