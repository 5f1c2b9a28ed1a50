"""Decoded images on disk: built once, memory-mapped afterwards.

An entry is a folder of .npy files and a manifest. It is built beside its final place and renamed, so it exists whole or
not at all; opening checks the manifest, the file sizes and, once in a process, every byte of an entry of up to 1 GiB.

Its key is what the source files hold, not where they lie: a copied or renamed folder finds its cache again. Up to 256
files of together at most 4 GiB are hashed by content, and the hash is remembered under the files' path, size and times.
Larger trees are hashed by relative name, size and modification time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from rcad.data.dataset import Dataset, Split
from rcad.data.files import REMEDY, check_room, digest, exclusive_lock, extract, reading, writing
from rcad.errors import InputError, expanded

T = TypeVar("T")
Entry = tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]  # what was said of an entry, and its arrays by name
FORMAT = 1
# Part of every key: raised when the same files give other pixels (2: photographs are upright; 3: grey has one channel).
DECODING = 3
MANIFEST = "manifest.json"
CONTENT_FILES = 256
CONTENT_BYTES = 4 << 30
SUMMED = 1 << 30
"""Bytes of an entry that are compared with their sums whenever a process opens it; `verify` reads larger ones."""
_FOLDERS = ("images", "streams", "unpacked", "hub", "fingerprints")
_OWN_NAME = re.compile(r"\.?([a-z0-9-]+-)?([0-9a-f]{32}){1,2}(\.lock|\.json|\.partial-\w+)?")
# A file changed this recently may change again within the clock's tick and keep its size and times.
_SETTLED_SECONDS = 2.0
SPACE = f"free some space there, or {REMEDY}"


def cache_root(cache_dir: Path | str | None = None) -> Path:
    """The cache folder: the argument, else $RCAD_CACHE, else ~/.cache/rcad."""
    return expanded(cache_dir or os.environ.get("RCAD_CACHE") or "~/.cache/rcad")


def cached(
    kind: str,
    files: Sequence[Path],
    root: Path,
    options: Mapping[str, Any],
    build: Callable[[Path], dict[str, Any]],
    cache_dir: Path | str | None = None,
) -> Dataset:
    """The data set that `build` makes from `files`, from the cache where it is there and whole.

    `kind`, what the files below `root` hold and `options` (JSON values) are the key. `build` writes train_x.npy and
    train_y.npy, perhaps test_x.npy and test_y.npy; it returns the set's `classes`, `note` and perhaps `omissions`.
    """
    source = fingerprint(files, root, cache_dir)
    key = hashed(json.dumps([FORMAT, DECODING, kind, source, dict(sorted(options.items()))]))[:32]
    described, arrays = cached_arrays(cache_dir, f"images/{kind}-{key}", build)
    train = Split(arrays["train_x"], arrays["train_y"])
    test = Split(arrays["test_x"], arrays["test_y"]) if "test_x" in arrays else None
    classes, omissions = tuple(described["classes"]), tuple(described.get("omissions", ()))
    return Dataset(kind, "classification", train, test, classes, note=described["note"], omissions=omissions)


def cached_arrays(cache_dir: Path | str | None, name: str, build: Callable[[Path], dict[str, Any]]) -> Entry:
    """The entry of this name: what `build` returned, ready for JSON, and the arrays that it saved in a folder."""
    return build_once(cache_dir, name, lambda folder: _seal(folder, build(folder)), open_entry)


def open_entry(entry: Path, *, sums: bool = True) -> Entry | None:
    """What a cache folder holds, mapped copy-on-write; None where it is missing, damaged or half-written."""
    manifest = _read_manifest(entry)
    if manifest is None:
        return None
    try:
        sizes = {name: stored["bytes"] for name, stored in manifest["arrays"].items()}
        if any((entry / name).stat().st_size != size for name, size in sizes.items()):
            return None
        files = [entry / name for name in sizes if name.endswith(".npy")]
        if sums and sum(sizes[file.name] for file in files) <= SUMMED:
            times = tuple(file.stat().st_mtime_ns for file in (entry / MANIFEST, *files))
            if _changed(entry, times) is not None:
                return None
        # Plain views: indexing a memmap subclass costs more and prints as one.
        return manifest, {file.stem: np.asarray(np.load(file, mmap_mode="c", allow_pickle=False)) for file in files}
    except Exception:  # a damaged header of an array ends in nearly everything
        return None


@lru_cache(maxsize=64)
def _changed(entry: Path, times: tuple[int, ...]) -> Path | None:
    """The first array that is not what was written; the modification times tell one state from another."""
    arrays = (_read_manifest(entry) or {"arrays": {}})["arrays"]
    sums = {entry / name: stored["sha256"] for name, stored in arrays.items() if "sha256" in stored}
    return next((path for path, wanted in sums.items() if digest(path) != wanted), None)


def entries(cache_dir: Path | str | None = None) -> list[Path]:
    """Every entry of the cache, whole or not."""
    return sorted(path for path in (cache_root(cache_dir) / "images").glob("[!.]*") if path.is_dir())


def verify(entry: Path) -> str | None:
    """Read every byte of an entry: None when it is what was written, else one line that says what is wrong."""
    if open_entry(entry, sums=False) is None:
        return (
            f"expected a whole cache in {entry}, but its manifest or sizes do not match; it is rebuilt when next used"
        )
    if path := _changed.__wrapped__(entry, ()):
        return f"expected {path} to match its checksum, but its bytes have changed; {clearing_advice(entry)}"
    return None


def clearing_advice(entry: Path) -> str:
    """Advice for a message: how a damaged entry of the cache is built again."""
    return f"to make it again when next used: rcad data clear --yes --cache-dir {shlex.quote(str(entry.parents[1]))}"


def contents(cache_dir: Path | str | None = None) -> dict[Path, int]:
    """Bytes of every file and folder in the cache that rcad made, including those that killed processes left."""
    root = cache_root(cache_dir)
    found = [path for name in sorted(_FOLDERS) for path in sorted((root / name).glob("*"))]
    paths = [path for path in found if _OWN_NAME.fullmatch(path.name)]
    return {path: sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file()) for path in paths}


def clear(cache_dir: Path | str | None = None) -> None:
    """Delete `contents`; what else lies in the folder stays. Processes that have arrays mapped keep their pages."""
    for path in contents(cache_dir):
        if path.is_dir():
            _discard(path)
        else:
            with contextlib.suppress(OSError):
                path.unlink()


_discard = partial(shutil.rmtree, ignore_errors=True)


def allocate(path: Path, shape: tuple[int, ...]) -> int:
    """Create a uint8 .npy file of `shape` filled with zeros; returns where its data begin."""
    check_room(path.parent, math.prod(shape), "decode the images")
    return int(np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape).offset)


def build_once(
    cache_dir: Path | str | None, name: str, build: Callable[[Path], None], open_folder: Callable[[Path], T | None]
) -> T:
    """Open the folder of this name in the cache with `open_folder`, which returns None where it is missing or damaged.

    The first time `build` fills it, beside its place, once, whoever else tries; it is renamed when it is whole.
    """
    folder = cache_root(cache_dir) / name
    prefix = f".{folder.name}.partial-"
    if (content := open_folder(folder)) is not None:
        return content
    with writing(folder.parent, "cache", SPACE), exclusive_lock(folder.parent / f".{folder.name}.lock") as held:
        if (content := open_folder(folder)) is not None:
            return content
        if held:  # only a killed process can have left these
            for stale in folder.parent.glob(f"{prefix}*"):
                _discard(stale)
        partial_folder = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
        try:
            build(partial_folder)
            try:
                os.rename(partial_folder, folder)
            except OSError:  # another process was faster, or a broken one stands there
                if open_folder(folder) is None:
                    _discard(folder)
                    os.rename(partial_folder, folder)
        finally:
            _discard(partial_folder)
    if (content := open_folder(folder)) is None:
        raise InputError(f"expected the new cache {folder} to open, but it does not; check the disk, or {REMEDY}")
    return content


def holding(*names: str) -> Callable[[Path], Path | None]:
    """Opens a folder that has files of these names, for `build_once`."""
    return lambda folder: folder if folder.is_dir() and all((folder / name).is_file() for name in names) else None


def unpack(archive: Path, cache_dir: Path | str | None = None, check: Callable[[Path], None] | None = None) -> Path:
    """The folder, or its one top folder, of an archive's files, unpacked once into the cache after a `check`."""

    def build(folder: Path) -> None:
        if check is not None:
            check(archive)
        extract(archive, folder)

    name = f"unpacked/{fingerprint([archive], archive.parent, cache_dir)[:32]}"
    target = build_once(cache_dir, name, build, holding())
    inside = [path for path in target.iterdir() if not path.name.startswith((".", "__MACOSX"))]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else target


def _seal(folder: Path, described: Mapping[str, Any]) -> None:
    """Write the manifest. All else reaches the disk first: after a power cut, a name must not outlive its data."""
    arrays = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            os.fsync(file.fileno())
        arrays[path.name] = {"bytes": path.stat().st_size} | ({"sha256": digest(path)} if path.suffix == ".npy" else {})
    manifest = {"format": FORMAT, **described, "arrays": arrays}
    with (folder / MANIFEST).open("w", encoding="utf-8") as out:
        json.dump({**manifest, "checksum": _checksum(manifest)}, out, indent=1)
        out.flush()
        os.fsync(out.fileno())


def _read_manifest(entry: Path) -> dict[str, Any] | None:
    """The manifest as it was written; None where it is missing or changed."""
    try:
        manifest: dict[str, Any] = json.loads((entry / MANIFEST).read_text(encoding="utf-8"))
        checksum = manifest.pop("checksum")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):  # absent, cut short, no object
        return None
    return manifest if checksum == _checksum(manifest) and manifest["format"] == FORMAT else None


def _checksum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def fingerprint(files: Sequence[Path], root: Path, cache_dir: Path | str | None = None) -> str:
    """A sha256 of `files`, in any order, that changes when they do or their names relative to `root`."""
    rows = []
    for file in sorted(files):
        with reading(file):
            rows.append((file.relative_to(root).as_posix(), file, file.stat()))
    if len(rows) > CONTENT_FILES or sum(s.st_size for _, _, s in rows) > CONTENT_BYTES:
        return hashed("tree", *(f"{name}\0{s.st_size}\0{s.st_mtime_ns}" for name, _, s in rows))
    # The change time also catches a file replaced by one whose modification time was copied along.
    identities = (f"{f.absolute()}\0{s.st_size}\0{s.st_mtime_ns}\0{s.st_ctime_ns}\0{s.st_ino}" for _, f, s in rows)
    memory = cache_root(cache_dir) / "fingerprints" / hashed("memory", str(root), *identities)
    try:
        remembered = memory.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        remembered = ""
    if re.fullmatch("[0-9a-f]{64}", remembered):
        return remembered
    content = hashed("content", *(f"{name}\0{digest(file)}" for name, file, _ in rows))
    if max((s.st_mtime for _, _, s in rows), default=0.0) < time.time() - _SETTLED_SECONDS:
        with writing(memory.parent, "cache", SPACE):
            memory.write_text(f"{content}\n", encoding="ascii")
    return content


def hashed(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
