"""Decoded images on disk: built once, memory-mapped afterwards.

An entry is a folder of .npy files and a manifest. It is built beside its final place and renamed, so it exists whole or
not at all; opening checks the manifest and the file sizes (milliseconds), `verify` checks every byte.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.data.dataset import Dataset, Split
from rcad.data.files import digest, exclusive_lock, make_folder, writing
from rcad.data.fingerprint import fingerprint
from rcad.errors import InputError

FORMAT = 1
# Part of every key: raised when the same files give other pixels (2: photographs are turned upright).
DECODING = 2
MANIFEST = "manifest.json"
_REMEDY = "pass cache_dir= (--cache-dir) or set RCAD_CACHE"


@dataclass(frozen=True)
class Described:
    """What a builder says about the arrays it wrote: class names in label order and a line for people."""

    classes: tuple[str, ...]
    note: str


def cache_root(cache_dir: Path | str | None = None) -> Path:
    """The cache folder: the argument, else $RCAD_CACHE, else ~/.cache/rcad."""
    return Path(cache_dir or os.environ.get("RCAD_CACHE") or Path.home() / ".cache" / "rcad").expanduser()


def cached(
    kind: str,
    files: Sequence[Path],
    root: Path,
    options: Mapping[str, Any],
    build: Callable[[Path], Described],
    cache_dir: Path | str | None = None,
) -> Dataset:
    """The data set that `build` makes from `files`, from the cache where it is there and whole.

    Args:
        kind: the reader; with the files' fingerprint and `options` (JSON values) it is the entry's key.
        files: every file that the arrays depend on, below `root`.
        build: writes train_x.npy, train_y.npy and, where there is a test split, test_x.npy and test_y.npy.
    """
    top = cache_root(cache_dir)
    for folder in (top / "images", top / "fingerprints"):
        make_folder(folder, "cache", _REMEDY)
    with writing(top, "cache", f"free some space there, or {_REMEDY}"):
        source = fingerprint(files, root, top / "fingerprints")
        key = json.dumps([FORMAT, DECODING, kind, source, dict(sorted(options.items()))])
        entry = top / "images" / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
        return open_entry(entry) or _build(entry, build)


def open_entry(entry: Path) -> Dataset | None:
    """The data set in a cache folder, or None where it is missing, broken or half-written.

    Images are mapped copy-on-write: they can be given to torch without a copy, and no write reaches the file.
    """
    manifest = _read_manifest(entry)
    if manifest is None:
        return None
    try:
        arrays = {name: _open_array(entry / name, described) for name, described in manifest["arrays"].items()}
    except (OSError, ValueError, KeyError, EOFError):
        return None
    test = Split(arrays["test_x.npy"], arrays["test_y.npy"]) if "test_x.npy" in arrays else None
    return Dataset(
        name=entry.name,
        task="classification",
        train=Split(arrays["train_x.npy"], arrays["train_y.npy"]),
        test=test,
        classes=tuple(manifest["classes"]),
        note=manifest["note"],
    )


def entries(cache_dir: Path | str | None = None) -> list[Path]:
    """Every entry of the cache, whole or not."""
    folder = cache_root(cache_dir) / "images"
    return sorted(p for p in folder.glob("[!.]*") if p.is_dir()) if folder.is_dir() else []


def verify(entry: Path) -> str | None:
    """Read every byte of an entry: None when it is what was written, else one line that says what is wrong."""
    manifest = _read_manifest(entry)
    if manifest is None or open_entry(entry) is None:
        return (
            f"expected a whole cache in {entry}, but its manifest or sizes do not match; it is rebuilt when next used"
        )
    for name, described in manifest["arrays"].items():
        if digest(entry / name) != described["sha256"]:
            return f"expected {entry / name} to match its checksum, but its bytes have changed; delete the folder"
    return None


def discard(entry: Path) -> None:
    """Delete an entry; processes that have it mapped keep their pages."""
    shutil.rmtree(entry, ignore_errors=True)


def allocate(path: Path, shape: tuple[int, ...]) -> int:
    """Create a uint8 .npy file of `shape` filled with zeros; returns where its data begin."""
    required, free = math.prod(shape), shutil.disk_usage(path.parent).free
    if required > free:
        raise InputError(
            f"expected {required / 1e6:,.1f} MB free for the cache in {path.parent.parent}, "
            f"but got {free / 1e6:,.1f} MB; {_REMEDY}"
        )
    return int(np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape).offset)


def _build(entry: Path, build: Callable[[Path], Described]) -> Dataset:
    prefix = f".{entry.name}.partial-"
    with exclusive_lock(entry.parent / f".{entry.name}.lock") as held:
        if dataset := open_entry(entry):
            return dataset
        if held:  # only a killed process can have left these
            for stale in entry.parent.glob(f"{prefix}*"):
                discard(stale)
        partial = Path(tempfile.mkdtemp(prefix=prefix, dir=entry.parent))
        try:
            _seal(partial, build(partial))
            _publish(partial, entry)
        finally:
            discard(partial)
    dataset = open_entry(entry)
    if dataset is None:
        raise InputError(f"expected the new cache {entry} to open, but it does not; check the disk, or {_REMEDY}")
    return dataset


def _seal(folder: Path, described: Described) -> None:
    """Write the manifest. Everything reaches the disk first: after a power cut, a name must not outlive its data."""
    arrays = {}
    for path in sorted(folder.glob("*.npy")):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        arrays[path.name] = {
            "shape": array.shape,
            "dtype": str(array.dtype),
            "bytes": path.stat().st_size,
            "sha256": digest(path),
        }
    manifest = {"format": FORMAT, "classes": described.classes, "note": described.note, "arrays": arrays}
    with (folder / MANIFEST).open("w", encoding="utf-8") as out:
        json.dump({**manifest, "checksum": _checksum(manifest)}, out, indent=1)
        out.flush()
        os.fsync(out.fileno())


def _publish(partial: Path, entry: Path) -> None:
    """Rename into place. Where another process was faster its entry stays, unless that one is broken."""
    try:
        os.rename(partial, entry)
    except OSError:
        if open_entry(entry) is not None:
            return
        broken = Path(tempfile.mkdtemp(prefix=f".{entry.name}.partial-", dir=entry.parent))
        with contextlib.suppress(FileNotFoundError):
            os.rename(entry, broken / "broken")
        discard(broken)
        os.rename(partial, entry)


def _read_manifest(entry: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((entry / MANIFEST).read_text(encoding="utf-8"))
        checksum = manifest.pop("checksum")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # absent, cut short, or not an object
        return None
    whole = checksum == _checksum(manifest) and manifest.get("format") == FORMAT
    return manifest if whole else None


def _checksum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _open_array(path: Path, described: Mapping[str, Any]) -> npt.NDArray[Any]:
    if path.stat().st_size != described["bytes"]:
        raise ValueError("size differs from the manifest")
    mapped = np.load(path, mmap_mode="c", allow_pickle=False)
    if list(mapped.shape) != described["shape"] or str(mapped.dtype) != described["dtype"]:
        raise ValueError("header differs from the manifest")
    # A plain view: indexing a memmap subclass costs more and prints as one.
    return np.asarray(mapped)
