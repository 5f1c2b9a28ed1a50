from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rcad.errors import InputError
from rcad.runs import locks
from rcad.runs.locks import RunLock, held_here, is_locked

HOLD = """
import sys, time
from pathlib import Path
from rcad.runs.locks import RunLock
lock = RunLock(Path(sys.argv[1]), "r")
print("held", flush=True)
time.sleep(60)
"""

HOLD_WITH_WORKER = """
import os, sys, time
from pathlib import Path
from rcad.runs.locks import RunLock
lock = RunLock(Path(sys.argv[1]), "r")
worker = os.fork()
if worker == 0:
    time.sleep(20)
    os._exit(0)
time.sleep(0.1)
print(worker, flush=True)
time.sleep(60)
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(locks, "PATIENCE_S", 0.05)
    return tmp_path / "lock"


def start(program: str, path: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_a_second_process_is_told_who_holds_it_until_that_is_killed(path: Path) -> None:
    process, _ = start(HOLD, path)
    try:
        assert is_locked(path)
        assert not held_here(path)
        with pytest.raises(InputError) as caught:
            RunLock(path, "0123")
        assert f"expected run 0123 to be free, but process {process.pid} on " in str(caught.value)
        assert "\n" not in str(caught.value)
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
    monkeypatch.setattr(locks, "PATIENCE_S", 5.0)
    first = RunLock(path, "r")
    monkeypatch.setattr(time, "sleep", lambda seconds: first.release())
    with RunLock(path, "r"):
        assert held_here(path)


def test_a_lock_on_a_removed_file_does_not_count(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer who opened the file just before its run was pruned must lock the new file, not the old."""
    attempt, calls = locks._try, []

    def remove_first(handle: int) -> bool:
        if not calls:
            path.unlink()
        calls.append(handle)
        return attempt(handle)

    monkeypatch.setattr(locks, "_try", remove_first)
    with RunLock(path, "r"):
        assert len(calls) == 2
        assert path.read_text().split()[0] == str(os.getpid())


def test_a_full_disk_is_told_and_nothing_stays_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(InputError, match="to be writable, but got: No space left on device; check"):
            RunLock(path, "r")
    RunLock(path, "r").release()


def test_a_folder_that_is_not_there_is_named(path: Path) -> None:
    with pytest.raises(InputError, match="to be writable, but got: No such file"):
        RunLock(path / "lock", "r")
