"""Small data sets known by name: UCI's regression sets with their standard splits, and those inside scikit-learn."""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.data.cache import build_once, hashed, holding
from rcad.data.dataset import Dataset, Progress, Split, no_progress
from rcad.data.files import read_bytes, reason
from rcad.errors import InputError, need

Index = npt.NDArray[np.int64]

UCI = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "wine": "wine-quality-red",
    "yacht": "yacht",
}
"""The folder of each data set below DATA_DIR/uci, with the 20 splits 90/10 of Gal and Ghahramani's experiments."""


def find_uci(name: str, data_dir: Path) -> Path | None:
    """The folder that holds a data set, or None."""
    folder = data_dir / "uci" / UCI[name]
    return folder if (folder / "data.txt").is_file() else None


def load_uci(name_or_path: str, *, data_dir: Path) -> Dataset:
    """Read one of `UCI` below data_dir/uci: its rows as float32, unscaled, and its standard splits, all checked."""
    folder = find_uci(name_or_path, data_dir)
    if folder is None:
        file = data_dir / "uci" / UCI[name_or_path] / "data.txt"
        raise InputError(f"expected {name_or_path} at {file}, but there is no such file; put its folder there")
    rows = _numbers(folder / "data.txt")
    inputs = _index(folder / "index_features.txt", rows.shape[1])
    target = _index(folder / "index_target.txt", rows.shape[1])
    if len(target) != 1 or target[0] in inputs:
        raise InputError(
            f"expected one column that is no feature in {folder / 'index_target.txt'}, but got {target.tolist()}"
        )
    x, y = rows[:, inputs].astype(np.float32), rows[:, target[0]].astype(np.float32)
    if len(rows) < 2 or y.min() == y.max():
        raise InputError(f"expected rows with targets that differ in {folder / 'data.txt'}, but got {len(rows)} alike")
    (count, *more) = _numbers(folder / "n_splits.txt").ravel().tolist()
    if more or count not in range(1, 1001):
        raise InputError(f"expected the number of splits in {folder / 'n_splits.txt'}, but got {count:g}")
    splits = tuple(_split(folder, k, len(rows)) for k in range(int(count)))
    note = f"UCI {folder.name}: {len(y)} rows, {x.shape[1]} features, {len(splits)} standard splits"
    names = tuple(f"x{j}" for j in inputs)
    return Dataset(name_or_path, "regression", Split(x, y), columns=names, standard_splits=splits, note=note)


def _split(folder: Path, k: int, n: int) -> tuple[Index, Index]:
    train, test = (_index(folder / f"index_{part}_{k}.txt", n) for part in ("train", "test"))
    times = np.bincount(np.concatenate([train, test]), minlength=n)
    if (times != 1).any():
        row = int(np.argmax(times != 1))
        raise InputError(
            f"expected each of {n} rows once in split {k} of {folder}, but row {row} is there {times[row]} times"
        )
    return train, test


def _index(file: Path, size: int) -> Index:
    """Whole numbers in 0..size-1, in the file's order."""
    numbers = _numbers(file).ravel()
    wrong = numbers[(numbers != np.rint(numbers)) | (numbers < 0) | (numbers >= size)]
    if len(wrong):
        raise InputError(f"expected whole numbers from 0 to {size - 1} in {file}, but got {wrong[0]:g}")
    return numbers.astype(np.int64)


def _numbers(file: Path) -> npt.NDArray[np.float64]:
    """Rows of finite numbers, all as long as the first."""
    lines = [line for line in read_bytes(file).decode("utf-8", "replace").splitlines() if line.strip()]
    if not lines:
        raise InputError(f"expected rows of numbers in {file}, but the file is empty; restore it")
    try:
        rows = np.loadtxt(lines, ndmin=2, comments=None)
    except ValueError as error:
        raise InputError(f"expected rows of numbers in {file}, but got: {reason(error)}; restore it") from None
    if not np.isfinite(rows).all():
        row = int(np.argmin(np.isfinite(rows).all(axis=1)))
        raise InputError(f"expected finite numbers in {file}, but got {lines[row].strip()!r} in row {row + 1}")
    return rows


_LOADERS = {
    "digits": "load_digits",
    "breast_cancer": "load_breast_cancer",
    "wine_recognition": "load_wine",
    "diabetes": "load_diabetes",
}
EMBEDDED = tuple(_LOADERS)
AS_FOLDERS = "digit_folders"  # the digits as ImageNet is laid out, for trials of what streams images from disk


def load_embedded(name_or_path: str) -> Dataset:
    """Read one of `EMBEDDED`; none has a test set of its own.

    "digits" are images, uint8 (1797, 1, 8, 8); the others are tables, float32 and unscaled. "diabetes" is regression.
    """
    bunch = _read_embedded(name_or_path, need("sklearn.datasets", "scikit-learn", "sklearn"))
    about, y = f"scikit-learn's {name_or_path}: {len(bunch.data)}", bunch.target.astype(np.int64)
    if name_or_path == "digits":
        pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
        note, classes = f"{about} images of 8x8, their levels 0..16 rounded to 0..255", tuple("0123456789")
        return Dataset(name_or_path, "classification", Split(pixels, y), classes=classes, note=note)
    x, columns = bunch.data.astype(np.float32), tuple(map(str, bunch.feature_names))
    if name_or_path == "diabetes":
        split, note = Split(x, bunch.target.astype(np.float32)), f"{about} rows, unscaled, progression after a year"
        return Dataset(name_or_path, "regression", split, columns=columns, note=note)
    classes, note = tuple(map(str, bunch.target_names)), f"{about} rows, {len(columns)} columns"
    return Dataset(name_or_path, "classification", Split(x, y), classes=classes, columns=columns, note=note)


def load_folders(name_or_path: str, *, cache_dir: Path | None = None, progress: Progress = no_progress) -> Dataset:
    """The digits as class folders of PNG files in the cache, every fifth in val/; streamed from there."""
    from rcad.data import image_folders

    digits = load_embedded("digits").train

    def write(folder: Path) -> None:
        pillow = need("PIL.Image", "pillow")
        for k, (pixels, label) in enumerate(zip(digits.x, digits.y.tolist(), strict=True)):
            home = folder / ("val" if k % 5 == 4 else "train") / str(label)
            home.mkdir(parents=True, exist_ok=True)
            pillow.fromarray(pixels[0]).save(home / f"{k:04}.png")

    folder = build_once(cache_dir, f"unpacked/{hashed(name_or_path)[:32]}", write, holding())
    return image_folders.load(str(folder), cache_dir=cache_dir, progress=progress, stream=True)


@functools.cache
def _read_embedded(name: str, sources: ModuleType) -> Any:
    """scikit-learn's data, cached: reading takes longer than a short run's training. Data sets are copies of it."""
    # By default diabetes is scaled with the statistics of all rows, test rows among them.
    options = {"scaled": False} if name == "diabetes" else {}
    return getattr(sources, _LOADERS[name])(**options)
