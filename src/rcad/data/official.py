"""The image sets as their authors distribute them: downloaded, checked, and read, archives as the folders they hold.

CIFAR-10 and CIFAR-100: the binary version, records of label bytes and 3072 pixel bytes (the Python version holds
pickles, which can run code when read). SVHN: the cropped digits. Tiny ImageNet: training images lie in
train/<wnid>/images/; the validation images, which serve as test split, have their classes in val_annotations.txt.
"""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.data.cache import cached, unpack
from rcad.data.dataset import Dataset, Progress, check_labels, check_several, no_progress
from rcad.data.decoding import Reading
from rcad.data.files import DISK_ERRORS, check_md5, exclusive_lock, intact, read_bytes, writing
from rcad.data.image_folders import images_below, read
from rcad.data.registry import OFFICIAL, Remote
from rcad.errors import InputError, need, one_of

Examples = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]  # images (N, 3, 32, 32) and labels (N,)
PIXELS = 3 * 32 * 32
_CIFAR_FILES: dict[str, dict[str, tuple[str, ...]]] = {
    "cifar10": {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
    "cifar100": {"train": ("train.bin",), "test": ("test.bin",)},
}
_CIFAR_NAMES = {("cifar10", "fine"): "batches.meta.txt"} | {
    ("cifar100", kind): f"{kind}_label_names.txt" for kind in ("fine", "coarse")
}
_ANNOTATIONS = "val/val_annotations.txt"
_BLOCK = 1 << 18
_ATTEMPTS = 4  # how often a lost connection is taken up again before giving up
_PATIENCE = 30.0  # seconds without a byte that count as a lost connection


def load_cifar10(name_or_path: str, *, cache_dir: Path | None = None, progress: Progress = no_progress) -> Dataset:
    """CIFAR-10 from cifar-10-binary.tar.gz or the folder of its .bin files: uint8 images of 3x32x32, labels 0..9."""
    return _load_cifar("cifar10", Path(name_or_path), "fine", cache_dir, progress)


def load_cifar100(
    name_or_path: str, *, cache_dir: Path | None = None, progress: Progress = no_progress, labels: str = "fine"
) -> Dataset:
    """CIFAR-100 alike; `labels` are "fine", 0..99, or "coarse", 0..19."""
    one_of("labels", labels, ("fine", "coarse"))
    return _load_cifar("cifar100", Path(name_or_path), labels, cache_dir, progress)


def _load_cifar(name: str, path: Path, labels: str, cache_dir: Path | None, progress: Progress) -> Dataset:
    root = _folder(name, path, cache_dir)
    files = {split: _check_there(root, names, path) for split, names in _CIFAR_FILES[name].items()}
    names = root / _CIFAR_NAMES[name, labels]
    classes = {"fine": OFFICIAL[name].classes, "coarse": tuple(f"superclass {i}" for i in range(20))}[labels]
    if names.is_file():
        text = names.read_text(encoding="utf-8", errors="replace").split()
        classes = tuple(text) if len(text) == len(classes) else classes

    def read_part(file: Path) -> Examples:
        """A record is the label, of CIFAR-100 the coarse one before the fine one, and the pixels."""
        data, origin, label_bytes = read_bytes(file), f"{path}:{file.name}", 1 if name == "cifar10" else 2
        record = label_bytes + PIXELS
        if not data or len(data) % record:
            raise InputError(
                f"expected {origin} to hold records of {record} bytes, but got {len(data)} bytes; download it again"
            )
        table = np.frombuffer(data, np.uint8).reshape(-1, record)
        column = table[:, label_bytes - 1 if labels == "fine" else 0]
        y = check_labels(column, len(classes), lambda index: f"{origin} image {index}")
        return table[:, label_bytes:].reshape(-1, 3, 32, 32), y

    def build(folder: Path) -> dict[str, Any]:
        _save_parts(folder, files, read_part, progress)
        return {"classes": classes, "note": f"{name}, binary version, from {path.name}"}

    return cached(name, [*chain(*files.values())], root, {"labels": labels, "classes": classes}, build, cache_dir)


def _folder(name: str, path: Path, cache_dir: Path | None) -> Path:
    """The folder of an official set; its archive is unpacked into the cache."""
    return path if path.is_dir() else unpack(path, cache_dir, OFFICIAL[name].check)


def _check_there(root: Path, names: Sequence[str], origin: Path) -> list[Path]:
    """The files of these names in `root`, which messages call `origin`."""
    for file in (root / name for name in names):
        if not file.is_file():
            raise InputError(f"expected {file.name} in {origin}, but it is missing; download or unpack it again")
    return [root / name for name in names]


def _save_parts(
    folder: Path, files: Mapping[str, Sequence[Path]], read_part: Callable[[Path], Examples], progress: Progress
) -> None:
    """Write the images and labels of each split, which come file by file; `progress` counts those."""
    done, total = 0, sum(map(len, files.values()))
    for split, parts in files.items():
        examples = []
        for file in parts:
            examples.append(read_part(file))
            done += 1
            progress(done, total)
        for letter, arrays in zip("xy", zip(*examples, strict=True), strict=True):
            np.save(folder / f"{split}_{letter}.npy", np.concatenate(arrays))


def load_svhn(
    name_or_path: str, *, cache_dir: Path | None = None, progress: Progress = no_progress, extra: bool = False
) -> Dataset:
    """SVHN from the folder of its .mat files, with the 531,131 easier `extra` digits or without; label 10 is 0."""
    path = Path(name_or_path)
    folder = path if path.is_dir() else path.parent
    parts = {"train": ["train", "extra"] if extra else ["train"], "test": ["test"]}
    files = {
        split: _check_there(folder, [f"{part}_32x32.mat" for part in names], folder) for split, names in parts.items()
    }

    def build(target: Path) -> dict[str, Any]:
        _save_parts(target, files, _read_svhn, progress)
        return {"classes": OFFICIAL["svhn"].classes, "note": "SVHN, cropped digits" + (", with extra" if extra else "")}

    return cached("svhn", [*chain(*files.values())], folder, {"extra": extra, "check": True}, build, cache_dir)


def _read_svhn(file: Path) -> Examples:
    """One file: X is (32, 32, 3, N) uint8, y is (N, 1) with labels 1..10."""
    OFFICIAL["svhn"].check(file)
    with intact(file, "MATLAB 5 file", "download it again"):
        content = need("scipy.io", "scipy").loadmat(file, variable_names=["X", "y"])
    x, y = (np.asarray(content.get(key, ())) for key in ("X", "y"))
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[2] != 3 or not x.size or y.size != x.shape[3]:
        raise InputError(
            f"expected X (32, 32, 3, N) uint8 and y (N, 1) in {file}, but got X {x.shape} {x.dtype} and y {y.shape}; "
            "use the cropped-digit files"
        )
    labels = check_labels(y.reshape(-1), 10, lambda index: f"{file} image {index}", first=1)
    return np.ascontiguousarray(x.transpose(3, 2, 0, 1)), labels % 10


def load_tiny_imagenet(name_or_path: str, **reading: Any) -> Dataset:
    """Tiny ImageNet from its zip or the unpacked folder: uint8 images of 3x64x64, labels 0..199 by the sorted wnids."""
    how, path = Reading(**reading), Path(name_or_path)
    root = _folder("tiny-imagenet", path, how.cache_dir)
    texts = _check_there(root, ("wnids.txt", _ANNOTATIONS), path)
    wnids, annotations = (text.read_text(encoding="utf-8", errors="replace") for text in texts)
    classes = tuple(sorted(wnids.split()))
    check_several(classes, f"{path} (wnids.txt)")
    train = {wnid: images_below(root, root / "train" / wnid) for wnid in classes}
    test: dict[str, list[str]] = {wnid: [] for wnid in classes}
    by_name = {PurePosixPath(name).name: name for name in images_below(root, root / "val")}
    for number, line in enumerate(annotations.splitlines(), 1):
        name, wnid, *_ = (*line.split("\t"), "")
        if wnid not in test or name not in by_name:
            raise InputError(
                f"expected an image of val/ and a class of wnids.txt in {path}:{_ANNOTATIONS} line {number}, but got "
                f"{line[:40]!r}; download it again"
            )
        test[wnid].append(by_name[name])
    splits = {"train": train, "test": {wnid: sorted(names) for wnid, names in test.items()}}
    return read(root, splits, classes, how, "tiny-imagenet", texts)


def fetch(name: str, data_dir: Path | str, *, extra: bool = False, progress: Progress = no_progress) -> list[Path]:
    """Download a known image set's files, and `extra` ones, to data_dir/<name>/; those already there are checked."""
    if name not in OFFICIAL:
        raise InputError(f"expected a data set that can be fetched ({', '.join(OFFICIAL)}), but got {name!r}")
    remotes = (*OFFICIAL[name].files, *(OFFICIAL[name].optional if extra else ()))
    return [fetch_file(remote, Path(data_dir) / name, progress=progress) for remote in remotes]


def fetch_file(remote: Remote, folder: Path, *, progress: Progress = no_progress) -> Path:
    """Download one file into `folder`, continuing a `.part` file that an earlier attempt left there."""
    if not remote.url.startswith(("http://", "https://")):
        raise InputError(f"expected an http or https address, but got {remote.url!r}")
    target = folder / remote.filename

    remedy = "free some space there, or pass another data_dir= (--data-dir)"
    with writing(folder, "download", remedy), exclusive_lock(folder / f".{target.name}.lock"):
        if target.exists():
            check_md5(target, remote.md5, "delete it and fetch it again")
            return target
        part = target.with_name(f"{target.name}.part")
        _receive_all(remote.url, part, target, progress)
        try:
            check_md5(part, remote.md5, f"fetch it again; the server's file may have changed ({remote.url})")
        except InputError:
            part.unlink()  # continuing a wrong file could never succeed
            raise
        os.replace(part, target)
    return target


def _receive_all(url: str, part: Path, target: Path, progress: Progress) -> None:
    reason = "the connection was lost"
    for attempt in range(_ATTEMPTS):
        try:
            if _receive(url, part, progress):
                return
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code} {error.reason}"
            if error.code < 500:  # asking again changes nothing
                break
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "errno", None) in DISK_ERRORS:
                raise
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        if attempt + 1 < _ATTEMPTS:
            time.sleep(min(0.1 * 4**attempt, 5.0))
    raise InputError(
        f"expected to download {url}, but got: {reason}; try again to continue, or put the file at {target} by hand"
    )


def _receive(url: str, part: Path, progress: Progress) -> bool:
    """One connection; returns whether the file is complete."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "rcad"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=_PATIENCE)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        # Nothing is left to send: the part is whole, or longer than the file and useless.
        whole = error.headers.get("Content-Range", "") == f"bytes */{have}"
        if not whole:
            part.unlink()
        return whole
    with response:
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if response.status == 206 and not resumed:
            part.unlink()
            return False
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else 0
        with part.open("ab" if resumed else "wb") as out:
            while block := response.read(_BLOCK):
                out.write(block)
                have += len(block)
                progress(have, total)
    # A server that cuts the connection ends the stream like one that is done; only the length tells them apart.
    return total == 0 or have == total
