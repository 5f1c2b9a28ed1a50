"""The key of a cache entry: what the source files hold, not where they lie.

Up to 256 files of together at most 4 GiB (archives, Parquet shards, small folders) are hashed by content, so a copied
or renamed folder finds its cache again. Larger trees are hashed by relative name, size and modification time: reading
ImageNet's 150 GB to learn that nothing changed would cost more than it saves.

A content hash is remembered under the files' path, size and times, so that opening a cache reads no source file.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from rcad.data.files import digest, write_atomic
from rcad.errors import InputError

CONTENT_FILES = 256
CONTENT_BYTES = 4 << 30
# A file changed this recently may change again within the clock's tick and keep its size and times.
_SETTLED_SECONDS = 2.0


def fingerprint(files: Sequence[Path], root: Path, memory: Path) -> str:
    """A sha256 that changes when the data does.

    Args:
        files: every file the reader will read, in any order.
        root: the names hashed are relative to this folder, because readers take splits and classes from them.
        memory: folder that remembers content hashes.
    """
    stats = [(file, _stat(file)) for file in sorted(files)]
    total = sum(stat.st_size for _, stat in stats)
    if len(stats) > CONTENT_FILES or total > CONTENT_BYTES:
        return _hash("tree", *(f"{_name(f, root)}\0{s.st_size}\0{s.st_mtime_ns}" for f, s in stats))
    remembered = memory / _hash("memory", str(root), *(_identity(f, s) for f, s in stats))
    try:
        known = remembered.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        known = ""
    if len(known) == 64:
        return known
    content = _hash("content", *(f"{_name(f, root)}\0{digest(f)}" for f, _ in stats))
    newest = max((stat.st_mtime for _, stat in stats), default=0.0)
    if newest < time.time() - _SETTLED_SECONDS:
        write_atomic(remembered, content + "\n")
    return content


def _stat(file: Path) -> os.stat_result:
    try:
        return file.stat()
    except OSError as error:
        raise InputError(f"expected {file} to be readable, but got: {error.strerror}; check the file") from None


def _identity(file: Path, stat: os.stat_result) -> str:
    # The change time also catches a file replaced by one whose modification time was copied along.
    return f"{file.absolute()}\0{stat.st_size}\0{stat.st_mtime_ns}\0{stat.st_ctime_ns}\0{stat.st_ino}"


def _name(file: Path, root: Path) -> str:
    return file.relative_to(root).as_posix()


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
