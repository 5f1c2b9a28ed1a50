from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import filelock
import pytest

from one_line import one_line
from rcad.errors import InputError
from rcad.runs import locks
from rcad.runs.locks import BusyError, RunLock, held_here, is_locked

TAKE = """
import os, sys, time
from pathlib import Path
from rcad.runs.locks import RunLock
lock = RunLock(Path(sys.argv[1]), "r")
"""
HOLD = TAKE + "print('held', flush=True); time.sleep(60)"
HOLD_WITH_WORKER = f"""{TAKE}
worker = os.fork()
if worker == 0:
    time.sleep(20)
    os._exit(0)
time.sleep(0.1)
print(worker, flush=True)
time.sleep(60)
"""
WITHOUT_LOCKS = """
import errno, fcntl
def no_locks(*words):
    raise OSError(errno.ENOSYS, "Function not implemented")
fcntl.flock = no_locks
"""


def no_locks(*words: object) -> None:
    raise OSError(errno.ENOSYS, "Function not implemented")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(locks, "PATIENCE_S", 0.05)
    return tmp_path / "lock"


def start(program: str, path: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def test_a_second_process_is_told_who_holds_it_until_that_is_killed(path: Path) -> None:
    process, _ = start(HOLD, path)
    try:
        assert is_locked(path)
        assert not held_here(path)
        with one_line(f"expected run 0123 to be free, but process {process.pid} on "):
            RunLock(path, "0123")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not is_locked(path)
    RunLock(path, "0123").release()


def test_one_process_cannot_hold_it_twice(path: Path) -> None:
    with RunLock(path, "r"):
        assert held_here(path)
        assert is_locked(path)
        with pytest.raises(InputError, match=f"process {os.getpid()} on "):
            RunLock(path, "r")
        assert held_here(path)
    assert not held_here(path)
    assert not is_locked(path)


def test_releasing_twice_does_not_release_anothers(path: Path) -> None:
    first = RunLock(path, "r")
    first.release()
    with RunLock(path, "r"):
        first.release()
        assert is_locked(path)


def test_a_forked_worker_does_not_keep_it(path: Path) -> None:
    process, worker = start(HOLD_WITH_WORKER, path)
    try:
        assert is_locked(path)
        process.kill()
        process.wait()
        assert not is_locked(path)
    finally:
        os.kill(int(worker), signal.SIGKILL)


def test_waits_out_a_glance(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "PATIENCE_S", 60.0)
    first = RunLock(path, "r")
    threading.Timer(0.2, first.release).start()
    with RunLock(path, "r"):
        assert held_here(path)


def test_a_lock_on_a_removed_file_does_not_count(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer who opened the file just before its run was pruned must lock the new file, not the old."""
    attempt, calls = filelock.FileLock.acquire, []

    def remove_first(self: filelock.FileLock, *words: Any, **options: Any) -> Any:
        found = attempt(self, *words, **options)
        if not calls:
            path.unlink()
        calls.append(path)
        return found

    monkeypatch.setattr(filelock.FileLock, "acquire", remove_first)
    with RunLock(path, "r"):
        assert len(calls) == 2
        assert path.exists()


def test_a_full_disk_is_told_and_nothing_stays_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **options: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(InputError, match="to be writable, but got: No space left on device; check"):
            RunLock(path, "r")
    RunLock(path, "r").release()


def test_where_the_system_has_no_locks_a_file_stands_for_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RunLock(path, "r").release()  # such a file may have been copied here
    process, _ = start(WITHOUT_LOCKS + HOLD, path)
    try:
        with monkeypatch.context() as patch:
            patch.setattr("fcntl.flock", no_locks)
            assert is_locked(path)
            with pytest.raises(BusyError, match=f"process {process.pid} on "):
                RunLock(path, "0123")
            process.kill()
            process.wait()
            if not hasattr(filelock.FileLock, "fallback_to_soft"):  # older versions leave it to us to remove the file
                path.with_name("lock.soft").unlink()
            assert not is_locked(path)
            with RunLock(path, "0123"):
                assert is_locked(path)
                with pytest.raises(BusyError, match=f"process {os.getpid()} on "):
                    RunLock(path, "0123")
            assert not is_locked(path)
    finally:
        process.kill()


def test_a_folder_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(InputError, match="to be writable, but got: No such file"):
        RunLock(path / "lock", "r")
