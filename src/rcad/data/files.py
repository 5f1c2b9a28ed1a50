"""Files that are read and written: what the disk or a library says of them becomes one line."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path

from rcad.errors import InputError

# What a full or read-only disk says, as opposed to a damaged source or a lost connection.
DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the file system refuses about `path` into one line."""
    try:
        yield
    except OSError as error:
        raise InputError(f"expected {path} to be readable, but got: {error.strerror}; check the file") from None


def read_bytes(path: Path) -> bytes:
    """A file's bytes, or one line on why they cannot be read."""
    with reading(path):
        if not stat.S_ISREG(path.stat().st_mode):  # a device or a pipe may have no end
            raise InputError(f"expected {path} to be a file, but it is something else; check the path")
        return path.read_bytes()


def reason(error: Exception) -> str:
    """The message of a library's exception, shortened to fit into one line."""
    return " ".join(str(error).split())[:100] or type(error).__name__


@contextlib.contextmanager
def intact(path: Path | str, kind: str, remedy: str) -> Iterator[None]:
    """Turn whatever a library raises on a damaged file into one line: there is no common base for it.

    Args:
        kind: what the file should be, in words.
        remedy: what to do about it.
    """
    try:
        yield
    except (InputError, ImportError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            raise  # not the file's fault
        raise InputError(
            f"expected {path} to be a whole {kind}, but it cannot be read ({reason(error)}); {remedy}"
        ) from None


def digest(path: Path, algorithm: str = "sha256") -> str:
    """The hexadecimal digest of a file's bytes."""
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def check_md5(path: Path, expected: str, remedy: str) -> None:
    """Compare a file with its published md5; `remedy` is what the message tells the user to do when they differ."""
    got = digest(path, "md5")
    if got != expected:
        raise InputError(f"expected md5 {expected} for {path}, but got {got}; {remedy}")


@contextlib.contextmanager
def writing(folder: Path, purpose: str, remedy: str) -> Iterator[None]:
    """Make `folder`, and turn what the file system refuses (no space, no permission) into one line."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        where = f" ({error.filename})" if error.filename else ""
        raise InputError(f"expected to write the {purpose} in {folder}, but got: {reason}{where}; {remedy}") from None


@contextlib.contextmanager
def exclusive_lock(path: Path) -> Iterator[bool]:
    """Hold the lock file `path`; yields whether the system can lock at all.

    The lock only saves double work: correctness rests on atomic renames. It dies with its process, so a killed
    one leaves nothing to clean up.
    """
    try:
        import fcntl
    except ImportError:
        yield False
        return
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # some network file systems have no locks
            yield False
            return
        yield True
