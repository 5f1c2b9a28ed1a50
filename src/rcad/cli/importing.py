"""Own data: what was found in it, and keeping it under a name."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from rcad.cli.options import Reading
from rcad.cli.screen import fields, say, table
from rcad.data.dataset import Dataset
from rcad.data.decoding import is_image_name
from rcad.data.registry import OFFICIAL, READERS, Available, data_root, recognise
from rcad.errors import InputError, MissingExtraError, command
from rcad.runs.words import number, own_words, plural

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_CLASSES_SHOWN = 12
_KINDS = {"tabular": "tabular", "npz": "arrays", "archive": "archive"}  # of all other layouts images
_FOLDERS_SEEN = 1000


def describe(dataset: Dataset) -> dict[str, Any]:
    """The contents of a data set as plain data, for --json."""
    return {
        "name": dataset.name,
        "task": dataset.task,
        "kind": "images" if dataset.is_image else "table",
        "shape": list(dataset.train.x.shape[1:]),
        "train": len(dataset.train),
        "test": None if dataset.test is None else len(dataset.test),
        "columns": list(dataset.columns),
        "classes": _counts(dataset),
        "standard_splits": len(dataset.standard_splits),
        "note": dataset.note,
    }


def show(dataset: Dataset) -> None:
    """Print the contents of a data set for people."""
    plain = describe(dataset)
    shape = " x ".join(map(str, plain["shape"]))
    kind = f"images of {shape} (channels, height, width)" if dataset.is_image else f"table, {_features(dataset)}"
    test = "none of its own: a part is held out when training" if dataset.test is None else f"{len(dataset.test):,}"
    rows = [("data", dataset.name), ("kind", kind), ("task", dataset.task)]
    rows += [("train", f"{len(dataset.train):,}"), ("test", test)]
    if dataset.columns:
        more = len(dataset.columns) - 8
        rows.append(("features", ", ".join(dataset.columns[:8]) + (f", and {more} more" if more > 0 else "")))
    if dataset.task == "regression":
        y = dataset.train.y
        rows.append(("target", f"{number(float(y.min()))} to {number(float(y.max()))}, mean {number(float(y.mean()))}"))
    note = dataset.note
    for finding in dataset.omissions:  # a line each, below what else the note says
        note = note.replace(f"; {finding}", "", 1)
    rows += [("note", note)] if note else []
    fields([*rows, *(("", finding) for finding in dataset.omissions)])
    if counts := plain["classes"]:
        say(f"\n{plural(len(counts), 'class')}")
        shown = list(counts.items())[:_CLASSES_SHOWN]
        cells = [[name, *("-" if count is None else str(count) for count in some.values())] for name, some in shown]
        table(["class", "train", "test"], cells)
        if len(counts) > _CLASSES_SHOWN:
            say(f"and {len(counts) - _CLASSES_SHOWN} more")


def train_line(name: str, reading: Reading) -> str:
    """The `rcad train` command for data that was read; folders that the environment names are left out."""
    words = ["rcad", "train", "--data", name, "--method", "rcad"]
    for key, value in reading.main.items():
        words += [f"--{key}", str(value)]
    words += own_words(reading.own)
    for option, variable, folder in (
        ("--data-dir", "RCAD_DATA", reading.data_dir),
        ("--cache-dir", "RCAD_CACHE", reading.cache_dir),
    ):
        if folder is not None and os.environ.get(variable) != str(folder):
            words += [option, str(folder)]
    return command(*words)


def own_sets(data_dir: Path | None) -> list[Available]:
    """The user's own data sets in the data folder, which --data finds by their names."""
    root = data_root(data_dir)
    if root is None or not root.is_dir():
        return []
    official = {*READERS, *(data.folder for data in OFFICIAL.values())}
    official |= {remote.filename for data in OFFICIAL.values() for remote in (*data.files, *data.optional)}
    paths = [path for path in sorted(root.iterdir()) if not path.name.startswith(".") and path.name not in official]
    return [Available(path.name, kind, str(path), "your own") for path in paths if (kind := _kind(path))]


def _kind(path: Path) -> str | None:
    """The kind of data in a file or folder, by a quick look; None if it is no data."""
    try:
        data = recognise(path)
    except (InputError, MissingExtraError, OSError):  # a list is no place to complain of a file that nobody asked for
        return None
    if data is not None and data.layout == "folders":  # as any folder of folders, it could be one of classes
        walk = itertools.islice(os.walk(path, followlinks=True), _FOLDERS_SEEN)
        return "images" if any(is_image_name(name) for _, _, names in walk for name in names) else None
    return None if data is None else _KINDS.get(data.layout, "images")


def check_name(name: str, source: Path, data_dir: Path | None) -> Path:
    """The path to copy data to under `name`; raises an InputError before anything is read or copied."""
    root = data_root(data_dir)
    if root is None:
        raise InputError("expected a data folder for --name, but got none; pass --data-dir or set RCAD_DATA")
    if not _NAME.fullmatch(name):
        raise InputError(f"expected --name to be letters, digits, '_', '-' and '.', but got {name!r}")
    if name in READERS:
        raise InputError(f"expected a name of your own, but {name!r} is a known data set; choose another")
    suffix = "".join(source.suffixes[-2:]) if source.suffixes[-2:-1] == [".tar"] else source.suffix
    place = root / (name if source.is_dir() or name.endswith(suffix) else name + suffix)
    if place.exists():
        raise InputError(f"expected {place} to be free, but it is there already; choose another name or remove it")
    return place


def copy_to(source: Path, place: Path) -> None:
    """Copy a file or folder, whole or not at all."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as scratch:
            copy = shutil.copytree if source.is_dir() else shutil.copy2
            os.rename(copy(source, Path(scratch) / place.name), place)
    except OSError as error:
        reason = error.strerror or "some files could not be copied"
        told = f"expected to copy {source} to {place}, but got: {reason}; check the folder and the disk"
        raise InputError(told) from None


def _counts(dataset: Dataset) -> dict[str, dict[str, int | None]]:
    """By class, how many training and test examples there are; None without a test set."""
    parts = {"train": dataset.train, "test": dataset.test}
    found = {part: None if split is None else Counter(split.y.tolist()) for part, split in parts.items()}
    return {
        name: {part: None if counts is None else counts[number] for part, counts in found.items()}
        for number, name in enumerate(dataset.classes)
    }


def _features(dataset: Dataset) -> str:
    """The number of features, and of the columns they are made of: text columns are one-hot."""
    features = plural(dataset.train.x.shape[1], "feature")
    columns = 0 if dataset.encoder is None else len(dataset.encoder.codes)
    return f"{features} made of {plural(columns, 'column')}" if 0 < columns < dataset.train.x.shape[1] else features
