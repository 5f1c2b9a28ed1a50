"""Arrays in NumPy's files, never with pickles; of an .npz: x_train, y_train [, x_test, y_test], or x, y."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.data.dataset import Dataset, Split, Task, check_labels, check_several, count_classes
from rcad.data.files import intact
from rcad.data.scaling import compact
from rcad.errors import InputError

Array = npt.NDArray[Any]


def load(name_or_path: str) -> Dataset:
    """Images or features from an .npz; read into memory, since they are already decoded.

    Images (N, H, W), (N, C, H, W) or (N, H, W, C), floats in [0, 1] or whole numbers up to 255, become uint8 (N, C, H,
    W); features (N, D) float32. Integer or text targets are classes; float targets are regression.
    """
    path = Path(name_or_path)
    arrays = read_arrays(path)
    if "x_train" in arrays or "y_train" in arrays:
        names = [("x_train", "y_train")]
        names += [("x_test", "y_test")] if {"x_test", "y_test"} & arrays.keys() else []
    else:
        names = [("x", "y")]
    pairs = [_pair(arrays, x, y, path) for x, y in names]
    if len(pairs) == 2 and pairs[0][0].shape[1:] != pairs[1][0].shape[1:]:
        shapes = " and ".join(str(x.shape[1:]) for x, _ in pairs)
        raise InputError(f"expected x_train and x_test of {path} to agree in shape, but got {shapes}; store them alike")
    task, classes, targets = _targets([y for _, y in pairs], path)
    why = "regression, since the targets are floats (store integers or text for classes)"
    if task == "classification":
        empty = np.setdiff1d(np.arange(targets[0].max()), targets[0])
        why = "classification, since the targets are integers or text"
        why += f"; no training example of class {empty[0]}" if len(empty) else ""
    splits = [Split(x, y) for (x, _), y in zip(pairs, targets, strict=True)]
    return Dataset(
        name=path.stem,
        task=task,
        train=splits[0],
        test=splits[1] if len(splits) == 2 else None,
        classes=classes,
        note=f"arrays from {path.name}; {why}",
    )


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an .npz by name, or the one of an .npy under ""; never with pickles, which may run code."""
    with intact(path, "NumPy file", "save plain arrays again"):
        loaded = np.load(path, allow_pickle=False)
        arrays = {"": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
        for array in arrays.values():
            if array.dtype.kind == "U":  # not every four bytes are a character; found here and not later
                "".join(array.ravel().tolist()).encode()
    return arrays


def _pair(arrays: dict[str, Array], x_name: str, y_name: str, path: Path) -> tuple[Array, Array]:
    for name in (x_name, y_name):
        if name not in arrays:
            got = ", ".join(arrays) or "nothing"
            raise InputError(
                f"expected arrays x_train, y_train[, x_test, y_test] or x, y in {path}, "
                f"but {name} is missing among {got}; rename them"
            )
    x, y = arrays[x_name], arrays[y_name]
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if not x.size:
        raise InputError(f"expected examples in {path}, but got {x_name} {x.shape}; save some")
    if y.ndim != 1 or x.ndim < 2 or len(x) != len(y):
        raise InputError(
            f"expected one target per example in {path}, but got {x_name} {x.shape} and {y_name} {y.shape}; "
            "store (N, ...) and (N,)"
        )
    origin = f"{path}:{x_name}"
    if x.ndim > 2:
        return _images(x, origin), y
    if x.dtype.kind not in "biuf":
        raise InputError(f"expected numeric features in {origin}, but got dtype {x.dtype}; encode them as numbers")
    _check_finite(x, origin)
    return compact(x), y


def _images(x: Array, origin: str) -> npt.NDArray[np.uint8]:
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim != 4:
        raise InputError(f"expected images of 3 or 4 dimensions in {origin}, but got {x.shape}; store (N, C, H, W)")
    else:
        first, last = (x.shape[axis] in (1, 3) for axis in (1, 3))
        if first == last:
            got = "both" if first else "neither"
            raise InputError(
                f"expected 1 or 3 channels, first or last, in {origin}, but got {got} in shape {x.shape}; "
                "store (N, C, H, W), wider than 3 pixels"
            )
        x = x if first else x.transpose(0, 3, 1, 2)
    if x.dtype.kind not in "iuf":
        raise InputError(f"expected uint8 or float images in {origin}, but got dtype {x.dtype}; store pixels")
    _check_finite(x, origin)
    is_float = x.dtype.kind == "f"
    high = 1.0 if is_float else 255
    if x.min() < 0 or x.max() > high:
        raise InputError(
            f"expected {x.dtype} pixels in [0, {high}] in {origin}, but got [{x.min():.6g}, {x.max():.6g}]; "
            "rescale them, without normalising"
        )
    if not is_float and x.max() == 1:
        raise InputError(
            f"expected {x.dtype} pixels up to 255 in {origin}, but the largest is 1, all but black; "
            "store 0 and 255, or floats in [0, 1]"
        )
    return np.ascontiguousarray(np.rint(x * 255) if is_float else x, dtype=np.uint8)


def _check_finite(x: Array, origin: str) -> None:
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        row = int(np.argmax(~np.isfinite(x.reshape(len(x), -1)).all(axis=1)))
        raise InputError(f"expected finite numbers in {origin}, but got NaN or infinity in row {row}; clean the data")


def _targets(ys: list[Array], path: Path) -> tuple[Task, tuple[str, ...], list[Array]]:
    """The task, the class names, and the targets of each split as int64 labels or float32 values."""
    kind = ys[0].dtype.kind
    if any(y.dtype.kind not in ("iu" if kind in "iu" else kind) for y in ys) or kind not in "iufU":
        got = " and ".join(str(y.dtype) for y in ys)
        raise InputError(f"expected integer, text or float targets in {path}, but got {got}; store one of them")
    if kind == "f":
        for y in ys:
            _check_finite(y, f"{path} (targets)")
        return "regression", (), [compact(y) for y in ys]
    origin = partial("{} example {}".format, path)
    if kind == "U":
        names = np.unique(ys[0])
        for y in ys:
            if unknown := sorted(set(y.tolist()) - set(names.tolist())):
                raise InputError(
                    f"expected the classes of y_train in {path}, but got {unknown[0]!r} in y_test; correct it"
                )
        classes = tuple(map(str, names))
        ys = [np.searchsorted(names, y) for y in ys]
    else:
        classes = tuple(map(str, range(count_classes(ys[0], origin))))
    check_several(classes, str(path))
    return "classification", classes, [check_labels(y, len(classes), origin) for y in ys]
