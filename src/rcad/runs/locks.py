"""One process at a time on one run: a lock of filelock, which torch brings, that dies with its process."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rcad.errors import InputError
from rcad.runs.files import WRITABLE, expecting

if TYPE_CHECKING:
    from filelock import BaseFileLock

PATIENCE_S = 0.5  # a glance at a lock (`is_locked`) holds it for an instant; whoever wants it waits that out
_POLL_S = 0.02
_NO_LOCKS_HERE = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


class BusyError(InputError):
    """Another process, `owner` in words, works on the run."""

    def __init__(self, run: str, owner: str) -> None:
        super().__init__(f"expected run {run} to be free, but {owner} is working on it; wait for it or stop it")
        self.run, self.owner = run, owner


class RunLock(contextlib.AbstractContextManager["RunLock"]):
    """The lock of one run, held from construction until `release` or the end of the process; its folder must exist."""

    def __init__(self, path: Path, run: str) -> None:
        self.path, self.run = path, run
        self._lock: BaseFileLock | None = None
        try:
            with expecting(path, WRITABLE):
                if not path.parent.is_dir():  # filelock would make it
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                self._lock = _acquired(path, PATIENCE_S)
                if self._lock is None:
                    raise BusyError(run, _owner(path))
                _neighbour(path, "owner").write_text(f"{os.getpid()} {socket.gethostname()}\n", encoding="utf-8")
        except InputError:
            self.release()
            raise
        _held[path.resolve()] = self

    def release(self) -> None:
        """Let others have it; a second call does nothing. The file stays: removing it would race with a newcomer."""
        lock, self._lock = self._lock, None
        if lock is not None:
            _held.pop(self.path.resolve(), None)
            with contextlib.suppress(OSError):
                _neighbour(self.path, "owner").unlink()
            lock.release()

    def __exit__(self, *error: object) -> None:
        self.release()


_held: dict[Path, RunLock] = {}


def held_here(path: Path) -> bool:
    return path.resolve() in _held


def is_locked(path: Path) -> bool:
    """Whether any process, this one included, holds the lock."""
    if held_here(path):
        return True
    if not path.exists() and not _neighbour(path, "soft").exists():
        return False
    try:
        lock = _acquired(path, 0)
    except OSError:
        return False  # a folder that can only be read has no run in it
    if lock is not None:
        lock.release()
    return lock is None


def abandoned(path: Path) -> bool:
    """Whether the last holder of the lock was killed."""
    return _neighbour(path, "owner").exists() and not is_locked(path)


def _acquired(path: Path, patience: float) -> BaseFileLock | None:
    """The lock, held; None where another has it. A lock on a file that was removed meanwhile does not count."""
    from filelock import SoftFileLock, Timeout

    deadline = time.monotonic() + patience
    while True:
        try:
            lock = _of_system(path)
            try:
                lock.acquire(timeout=max(deadline - time.monotonic(), 0), poll_interval=_POLL_S)
            except (OSError, NotImplementedError) as error:
                if isinstance(error, Timeout) or getattr(error, "errno", errno.ENOSYS) not in _NO_LOCKS_HERE:
                    raise
                lock = SoftFileLock(_neighbour(path, "soft"), thread_local=False)
                lock.acquire(timeout=max(deadline - time.monotonic(), 0), poll_interval=_POLL_S)
        except Timeout:
            return None
        if Path(lock.lock_file).exists():
            return lock
        lock.release()


def _of_system(path: Path) -> BaseFileLock:
    from filelock import FileLock

    try:
        # Later versions would turn to a file under the same name, where an earlier lock of the system may lie.
        return FileLock(path, thread_local=False, fallback_to_soft=False)
    except TypeError:
        return FileLock(path, thread_local=False)


def _neighbour(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}.{suffix}")


def _owner(path: Path) -> str:
    words: list[str] = []
    with contextlib.suppress(OSError):
        words = _neighbour(path, "owner").read_bytes()[:200].decode(errors="replace").split()
    return f"process {words[0]} on {words[1]}" if len(words) == 2 else "another process"


def _drop_in_child() -> None:
    """A forked worker shares the open file, and would keep the lock after its parent was killed."""
    for held in list(_held.values()):
        context = getattr(held._lock, "_context", None)
        if context is not None and not hasattr(held._lock, "_creator_pid"):  # later versions of filelock see to it
            with contextlib.suppress(OSError, TypeError):
                os.close(context.lock_file_fd)
            context.lock_file_fd = None
        held._lock = None
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_in_child)
