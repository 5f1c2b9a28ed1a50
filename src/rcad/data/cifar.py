"""CIFAR-10 and CIFAR-100 in their official binary version: records of label bytes and 3072 pixel bytes.

The Python version of these archives holds pickles, which can run code when read; it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from rcad.data.archives import tar_files
from rcad.data.cache import Described, cached
from rcad.data.dataset import Dataset
from rcad.data.decoding import Progress
from rcad.data.known import KNOWN
from rcad.data.labels import check_labels
from rcad.errors import InputError

PIXELS = 3 * 32 * 32
_FILES: dict[str, dict[str, tuple[str, ...]]] = {
    "cifar10": {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
    "cifar100": {"train": ("train.bin",), "test": ("test.bin",)},
}
_NAME_FILES = {("cifar10", "fine"): "batches.meta.txt"} | {
    ("cifar100", kind): f"{kind}_label_names.txt" for kind in ("fine", "coarse")
}


def load_cifar10(
    name_or_path: str,
    *,
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    check: bool = True,
) -> Dataset:
    """CIFAR-10 from cifar-10-binary.tar.gz or the folder of its .bin files.

    Returns:
        uint8 images (50000, 3, 32, 32) and (10000, 3, 32, 32), labels 0..9.

    Args:
        check: compare the archive with its published md5.
    """
    return _load("cifar10", Path(name_or_path), "fine", check, cache_dir, progress)


def load_cifar100(
    name_or_path: str,
    *,
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    check: bool = True,
    labels: str = "fine",
) -> Dataset:
    """CIFAR-100 from cifar-100-binary.tar.gz or the folder of its .bin files.

    Returns:
        uint8 images (50000, 3, 32, 32) and (10000, 3, 32, 32), labels 0..99, or 0..19 for the coarse ones.

    Args:
        check: compare the archive with its published md5.
        labels: "fine" (100 classes) or "coarse" (20 superclasses).
    """
    if labels not in ("fine", "coarse"):
        raise InputError(f"expected labels to be 'fine' or 'coarse', but got {labels!r}")
    return _load("cifar100", Path(name_or_path), labels, check, cache_dir, progress)


def _load(
    name: str, path: Path, labels: str, check: bool, cache_dir: Path | None, progress: Progress | None
) -> Dataset:
    wanted = [file for split in _FILES[name].values() for file in split]
    if path.is_dir():
        missing = [file for file in wanted if not (path / file).is_file()]
        if missing:
            raise InputError(f"expected {missing[0]} in {path}, but it is missing; unpack the archive again")
        names = [path / file for file in wanted]
        text = path / _NAME_FILES[name, labels]
        files = [*names, text] if text.is_file() else names
        root = path
    else:
        files, root = [path], path.parent

    def build(folder: Path) -> Described:
        if check and path.is_file():
            KNOWN[name].check(path)
        members = _members(path, (*wanted, _NAME_FILES[name, labels]))
        classes = _class_names(name, labels, members)
        done, total = 0, sum(len(data) // PIXELS for data in members.values())
        for split, parts in _FILES[name].items():
            images, targets = [], []
            for part in parts:
                if part not in members:
                    raise InputError(f"expected {part} in {path}, but it is missing; download the archive again")
                x, y = _records(members[part], f"{path}:{part}", name, labels, len(classes))
                images.append(x)
                targets.append(y)
                done += len(y)
                if progress is not None:
                    progress(done, total)
            np.save(folder / f"{split}_x.npy", np.concatenate(images))
            np.save(folder / f"{split}_y.npy", np.concatenate(targets))
        return Described(classes, f"{name}, binary version, from {path.name}")

    return cached(name, files, root, {"labels": labels, "check": check}, build, cache_dir)


def _members(path: Path, wanted: tuple[str, ...]) -> dict[str, bytes]:
    """The wanted files by base name: the archives keep them one folder down."""
    if path.is_dir():
        return {file: (path / file).read_bytes() for file in wanted if (path / file).is_file()}
    return {PurePosixPath(member).name: data for member, data in tar_files(path, wanted)}


def _records(
    data: bytes, origin: str, name: str, labels: str, n_classes: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Split one file into images (N, 3, 32, 32) and labels (N,). CIFAR-100 puts the coarse label first."""
    label_bytes = 1 if name == "cifar10" else 2
    record = label_bytes + PIXELS
    if not data or len(data) % record:
        raise InputError(
            f"expected {origin} to hold records of {record} bytes, but got {len(data)} bytes; download it again"
        )
    table = np.frombuffer(data, np.uint8).reshape(-1, record)
    column = 1 if name == "cifar100" and labels == "fine" else 0
    checked = check_labels(table[:, column], n_classes, lambda index: f"{origin} image {index}")
    return table[:, label_bytes:].reshape(-1, 3, 32, 32), checked


def _class_names(name: str, labels: str, members: Mapping[str, bytes]) -> tuple[str, ...]:
    known = {"fine": KNOWN[name].classes, "coarse": tuple(f"superclass {i}" for i in range(20))}[labels]
    text = members.get(_NAME_FILES[name, labels], b"").decode("utf-8", "replace").split()
    return tuple(text) if len(text) == len(known) else known
