"""SVHN's cropped digits: train_32x32.mat, test_32x32.mat, extra_32x32.mat."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from rcad.data.cache import Described, cached
from rcad.data.dataset import Dataset
from rcad.data.decoding import Progress
from rcad.data.known import KNOWN
from rcad.data.labels import check_labels
from rcad.data.lazy import need
from rcad.errors import InputError

_ADDRESS = KNOWN["svhn"].files[0].url.rsplit("/", 1)[0]


def load(
    name_or_path: str,
    *,
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    extra: bool = False,
    check: bool = True,
) -> Dataset:
    """SVHN from the folder of its .mat files; the file's label 10 is the digit 0.

    Returns:
        uint8 images (73257, 3, 32, 32) and (26032, 3, 32, 32), labels 0..9; train has 604388 with `extra`.

    Args:
        extra: join the 531,131 easier digits of extra_32x32.mat to the training split.
        check: compare the files with their published md5.
    """
    path = Path(name_or_path)
    folder = path if path.is_dir() else path.parent
    splits = {"train": ["train", "extra"] if extra else ["train"], "test": ["test"]}
    files = {part: folder / f"{part}_32x32.mat" for parts in splits.values() for part in parts}
    for file in files.values():
        if not file.is_file():
            raise InputError(f"expected {file.name} in {folder}, but it is missing; download it from {_ADDRESS}")

    def build(target: Path) -> Described:
        done = 0
        for split, parts in splits.items():
            images, targets = [], []
            for part in parts:
                if check:
                    KNOWN["svhn"].check(files[part])
                x, y = _read(files[part])
                images.append(x)
                targets.append(y)
                done += 1
                if progress is not None:
                    progress(done, len(files))
            np.save(target / f"{split}_x.npy", np.concatenate(images))
            np.save(target / f"{split}_y.npy", np.concatenate(targets))
        return Described(KNOWN["svhn"].classes, "SVHN, cropped digits" + (", with extra" if extra else ""))

    return cached("svhn", [*files.values()], folder, {"extra": extra, "check": check}, build, cache_dir)


def _read(file: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """One file: X is (32, 32, 3, N) uint8, y is (N, 1) with labels 1..10."""
    try:
        content = need("scipy.io", "scipy").loadmat(file, variable_names=["X", "y"])
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # scipy raises nearly everything on a damaged file
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        raise InputError(
            f"expected {file} to be a whole MATLAB 5 file, but it cannot be read ({reason}); download it again"
        ) from None
    x, y = (np.asarray(content.get(key, ())) for key in ("X", "y"))
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[2] != 3 or not x.size or y.size != x.shape[3]:
        raise InputError(
            f"expected X (32, 32, 3, N) uint8 and y (N, 1) in {file}, but got X {x.shape} {x.dtype} and y {y.shape}; "
            "use the cropped-digit files"
        )
    labels = check_labels(y.reshape(-1), 10, lambda index: f"{file} image {index}", first=1)
    return np.ascontiguousarray(x.transpose(3, 2, 0, 1)), labels % 10
