"""The UCI regression sets with the 20 standard 90/10 splits of Gal and Ghahramani's experiments."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rcad.data.dataset import Dataset, Split
from rcad.errors import InputError

Index = npt.NDArray[np.int64]

FOLDERS = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "wine": "wine-quality-red",
    "yacht": "yacht",
}
"""The folder of each data set below DATA_DIR/uci."""


def find(name: str, data_dir: Path) -> Path | None:
    """The folder that holds a data set, or None."""
    folder = data_dir / "uci" / FOLDERS[name]
    return folder if (folder / "data.txt").is_file() else None


def load(name_or_path: str, *, data_dir: Path | None = None) -> Dataset:
    """Read one of `FOLDERS`.

    Args:
        name_or_path: boston, concrete, energy, wine or yacht.
        data_dir: the folder with uci/ in it; by default $RCAD_DATA.

    Returns:
        x float32 (N, D) and y float32 (N,), both unscaled, with the standard splits as indices into them.
    """
    if name_or_path not in FOLDERS:
        raise InputError(f"expected one of {', '.join(FOLDERS)}, but got {name_or_path!r}")
    root = data_dir or (Path(os.environ["RCAD_DATA"]) if os.environ.get("RCAD_DATA") else None)
    if root is None:
        raise InputError(
            f"expected a data folder for {name_or_path}, but got none; pass data_dir= (--data-dir) or set RCAD_DATA"
        )
    folder = find(name_or_path, root)
    if folder is None:
        wanted = root / "uci" / FOLDERS[name_or_path] / "data.txt"
        raise InputError(f"expected {name_or_path} at {wanted}, but there is no such file; put its folder there")
    return read_folder(name_or_path, folder)


def read_folder(name: str, folder: Path) -> Dataset:
    """Read data.txt, its column indices and its splits; every index is checked."""
    rows = _read_rows(folder / "data.txt")
    inputs = _read_index(folder / "index_features.txt", rows.shape[1])
    target = _read_index(folder / "index_target.txt", rows.shape[1])
    if len(target) != 1 or target[0] in inputs:
        raise InputError(
            f"expected one column that is no feature in {folder / 'index_target.txt'}, but got {target.tolist()}"
        )
    x, y = rows[:, inputs].astype(np.float32), rows[:, target[0]].astype(np.float32)
    if len(rows) < 2 or y.min() == y.max():
        raise InputError(f"expected rows with targets that differ in {folder / 'data.txt'}, but got {len(rows)} alike")
    splits = _read_splits(folder, len(rows))
    note = f"UCI {folder.name}: {len(y)} rows, {x.shape[1]} features, {len(splits)} standard splits"
    names = tuple(f"x{j}" for j in inputs)
    return Dataset(name, "regression", Split(x, y), columns=names, standard_splits=splits, note=note)


def _read_splits(folder: Path, n: int) -> tuple[tuple[Index, Index], ...]:
    file = folder / "n_splits.txt"
    count = _read_numbers(file)
    if len(count) != 1 or len(count[0]) != 1 or not count[0][0].is_integer() or not 1 <= count[0][0] <= 1000:
        raise InputError(f"expected the number of splits in {file}, but got {str(count)[:40]}")
    pairs = []
    for k in range(int(count[0][0])):
        test_file = folder / f"index_test_{k}.txt"
        train = _read_index(folder / f"index_train_{k}.txt", n)
        test = _read_index(test_file, n)
        shared = np.intersect1d(train, test)
        if len(shared):
            raise InputError(f"expected rows to train or to test in {test_file}, but row {shared[0]} does both")
        if len(train) + len(test) != n:
            raise InputError(
                f"expected split {k} of {folder} to cover {n} rows, but got {len(train)} to train and "
                f"{len(test)} to test"
            )
        pairs.append((train, test))
    return tuple(pairs)


def _read_index(file: Path, size: int) -> Index:
    """Whole numbers in 0..size-1, each once, in the file's order."""
    numbers = [number for line in _read_numbers(file) for number in line]
    for number in numbers:
        if not number.is_integer() or not 0 <= number < size:
            raise InputError(f"expected whole numbers from 0 to {size - 1} in {file}, but got {number:g}")
    index = np.asarray(numbers, dtype=np.int64)
    if not len(index) or len(np.unique(index)) != len(index):
        raise InputError(f"expected indices, each once, in {file}, but got {'one twice' if len(index) else 'none'}")
    return index


def _read_rows(file: Path) -> npt.NDArray[np.float64]:
    lines = _read_numbers(file)
    if not lines:
        raise InputError(f"expected rows of numbers in {file}, but the file is empty")
    for k, line in enumerate(lines):
        if len(line) != len(lines[0]):
            raise InputError(f"expected {len(lines[0])} numbers in row {k + 1} of {file}, but got {len(line)}")
    return np.asarray(lines)


def _read_numbers(file: Path) -> list[list[float]]:
    """The numbers of each line that has any."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"expected {file} to be readable, but got: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"expected numbers in {file}, but it is no text; restore the file") from None
    lines = []
    for k, line in enumerate(text.splitlines()):
        try:
            numbers = [float(word) for word in line.split()]
        except ValueError as error:
            raise InputError(f"expected numbers in line {k + 1} of {file}, but got: {error}") from None
        if not np.isfinite(numbers).all():
            raise InputError(f"expected finite numbers in line {k + 1} of {file}, but got {line.strip()!r}")
        if numbers:
            lines.append(numbers)
    return lines
