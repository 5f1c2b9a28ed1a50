"""One process at a time on one run. The lock dies with its process, so a killed one leaves nothing to clean up."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

from rcad.errors import InputError

try:
    import fcntl
except ImportError:  # no such locks on this system: then nothing keeps two processes apart
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

PATIENCE_S = 0.5
"""A glance at a lock (`is_locked`) holds it for an instant; whoever wants it waits that out."""


class BusyError(InputError):
    """Another process works on the run.

    Args:
        run: its id.
        owner: the process, in words.
    """

    def __init__(self, run: str, owner: str) -> None:
        super().__init__(f"expected run {run} to be free, but {owner} is working on it; wait for it or stop it")
        self.run, self.owner = run, owner


class RunLock:
    """The lock of one run, held from construction until `release` or the end of the process.

    Args:
        path: the lock file; its folder must exist.
        run: the run's name in the message to a second process.
    """

    def __init__(self, path: Path, run: str) -> None:
        self.path, self.run = path, run
        self._handle: int | None = _acquire(path, run)
        _held[path.resolve()] = self

    def release(self) -> None:
        """Let others have it; a second call does nothing. The file stays: removing it would race with a newcomer."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, 0)
            self._close()

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def _close(self) -> None:
        if self._handle is not None:
            _held.pop(self.path.resolve(), None)
            os.close(self._handle)
            self._handle = None


_held: dict[Path, RunLock] = {}


def held_here(path: Path) -> bool:
    """Whether this process holds the lock."""
    return path.resolve() in _held


def is_locked(path: Path) -> bool:
    """Whether any process, this one included, holds the lock."""
    if held_here(path):
        return True
    if not HAS_LOCKS or not path.exists():
        return False
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return False  # a folder that can only be read has no run in it
    try:
        return not _try(handle)
    finally:
        os.close(handle)


def _acquire(path: Path, run: str) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise InputError(f"expected {path} to be writable, but got: {error.strerror or error}") from None
        if _try(handle) and _is_current(handle, path):
            _sign(handle, path)
            return handle
        owner = _owner(handle)
        os.close(handle)
        if time.monotonic() >= deadline:
            raise BusyError(run, owner)
        time.sleep(0.02)


def _sign(handle: int, path: Path) -> None:
    """Says who holds the lock."""
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
    except OSError as error:
        os.close(handle)
        raise InputError(
            f"expected {path} to be writable, but got: {error.strerror or error}; check the folder and the disk"
        ) from None


def _try(handle: int) -> bool:
    if not HAS_LOCKS:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_current(handle: int, path: Path) -> bool:
    """False where the run's folder was removed between opening the file and locking it."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


def _owner(handle: int) -> str:
    words = os.pread(handle, 200, 0).decode(errors="replace").split()
    return f"process {words[0]} on {words[1]}" if len(words) == 2 else "another process"


def _drop_in_child() -> None:
    """A forked worker shares the open file, and would keep the lock after its parent was killed."""
    for lock in list(_held.values()):
        lock._close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_in_child)
