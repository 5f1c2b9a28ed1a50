"""Files that are whole, logs, records; locks."""

import errno
import json
import os
import signal
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import filelock
import pytest

from one_line import fails_in_one_line, refusals
from rcad.runs import files, locks
from rcad.runs.locks import BusyError, RunLock, held_here, is_locked
from runs.conftest import HOLD, TAKE, started


def test_the_whole_file_is_replaced_or_none_of_it(tmp_path):
    path = tmp_path / "a.txt"
    files.write_text(path, "a longer text\n")
    files.write_text(path, "é\n")

    with pytest.raises(RuntimeError), files.replacing(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        assert files.leftovers(path.parent) == [temporary]
        raise RuntimeError
    assert path.read_bytes() == "é\n".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_writer_left_is_swept_by_the_next(tmp_path):
    child = os.fork()
    if not child:
        with files.replacing(tmp_path / "a.txt") as temporary:
            temporary.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (left,) = tmp_path.iterdir()
    at_work = left.with_name(left.name.replace(f"{child:06x}", f"{os.getpid():06x}"))
    other = "fff" if left.name.split(".")[-2][:3] != "fff" else "eee"  # another machine
    elsewhere, old = (tmp_path / f".{name}.{other}{'0' * 9}.partial" for name in ("b", "c"))
    mine = tmp_path / ".film.partial"
    for path in (at_work, elsewhere, old, mine):
        path.write_text("x")
    os.utime(old, (0, 0))
    files.write_text(tmp_path / "b.txt", "b")
    assert {path.name for path in tmp_path.iterdir()} == {"b.txt", at_work.name, elsewhere.name, mine.name}


def test_the_new_file_is_on_disk_before_it_has_the_name(tmp_path, monkeypatch):
    calls = []
    fsync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append("fsync"), fsync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("replace"), rename(*names))[1])
    previous = os.umask(0o022)
    files.write_text(tmp_path / "a.txt", "x")
    os.umask(previous)
    assert calls == ["fsync", "replace", "fsync"]
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o644, "others may read what the umask allows"


FULL = Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))


def test_a_folder_is_tried_before_long_work(tmp_path, monkeypatch):
    files.check_folder(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []  # it looks, and leaves the making to others
    (tmp_path / "file").write_text("")
    with fails_in_one_line(f"expected {tmp_path}/file/a.txt to be writable, but got: Not a directory"):
        files.write_text(tmp_path / "file" / "a.txt", "x")
    with fails_in_one_line("file/x/y to be a folder that can be written, but got: Not a dir"):
        files.check_folder(tmp_path / "file" / "x" / "y")
    files.ready_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    monkeypatch.setattr(tempfile, "TemporaryFile", FULL)
    with fails_in_one_line("b to be a folder that can be written, but got: No space left"):
        files.ready_folder(tmp_path / "a" / "b")


def test_events_come_back_in_order_without_a_torn_last_line_and_a_bad_one_within_is_named(tmp_path):
    path = tmp_path / "log.jsonl"
    assert files.read_log(path) == []
    files.write_log(path, [{"epoch": 0, "loss": 0.5, "text": "a\nb"}])
    files.append_log(path, {"epoch": 1, "loss": float("nan")})
    whole = path.read_text()
    for torn in ("", "{", '{"epoch": 1', '{"epoch": 1}', "\ufffd"):
        path.write_text(whole + torn)
        assert files.read_log(path) == [{"epoch": 0, "loss": 0.5, "text": "a\nb"}, {"epoch": 1, "loss": None}]
    for line, says in (("{", "line 2 to be valid JSON"), ("3", "line 2, but got 3"), ('{"a": NaN}', "constant NaN")):
        path.write_text(f"{{}}\n{line}\n{{}}\n")
        with fails_in_one_line(says):
            files.read_log(path)


@dataclass(frozen=True)
class Colour:
    name: str


COLOUR = files.Kind("colour", 2, lambda plain, schema: Colour(plain["name"] if schema == 2 else plain["colour"]))


def test_a_record_says_its_kind_and_schema(tmp_path):
    path = tmp_path / "colour.json"
    files.write_text(path, files.dumps(COLOUR.stamp({"name": "red"})))
    assert json.loads(path.read_text()) == {"kind": "colour", "schema": 2, "name": "red"}
    assert COLOUR.read(path) == Colour("red")
    assert COLOUR.parse({"schema": 1, "colour": "red"}, "old.json") == Colour("red")  # from before there were kinds


test_what_is_no_such_record_is_named_in_one_line = refusals(
    ("{", "to be valid JSON"),
    ("[1]", "expected a record to be an object, but got [1]"),
    ('{"kind": "rcad run", "schema": 1}', "expected a record of kind 'colour', but got 'rcad run'"),
    ('{"kind": "colour", "schema": 3}', "expected a record of schema 2, but got 3; read it with the version of rcad"),
    of=lambda content: COLOUR.parse(files.loads(content, "x.json"), "x.json"),
)


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
import errno, fcntl, unittest.mock
fcntl.flock = unittest.mock.Mock(side_effect=OSError(errno.ENOSYS, "Function not implemented"))
"""


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE_S", 0.05)
    return tmp_path / "lock"


def test_a_second_process_is_told_who_holds_it_until_that_is_killed(path):
    with started(HOLD, path) as (process, _):
        assert is_locked(path)
        assert not held_here(path)
        with fails_in_one_line(f"expected run 0123 to be free, but process {process.pid} on "):
            RunLock(path, "0123")
    assert not is_locked(path)
    RunLock(path, "0123").release()


def test_one_process_cannot_hold_it_twice(path):
    first = RunLock(path, "r")
    first.release()
    with RunLock(path, "r"):
        first.release()  # again: it does not release another's
        with fails_in_one_line(f"process {os.getpid()} on "):
            RunLock(path, "r")
        assert held_here(path)
        assert is_locked(path)
    assert not held_here(path)
    assert not is_locked(path)


def test_a_forked_worker_does_not_keep_it(path):
    with started(HOLD_WITH_WORKER, path) as (process, worker):
        assert is_locked(path)
        process.kill()
        process.wait()
        assert not is_locked(path)
        os.kill(int(worker), signal.SIGKILL)


def test_waits_out_a_glance(path, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE_S", 60.0)
    first = RunLock(path, "r")
    threading.Timer(0.2, first.release).start()
    with RunLock(path, "r"):
        assert held_here(path)


def test_a_full_disk_is_told_and_nothing_stays_locked(path, monkeypatch):
    with monkeypatch.context() as patch, fails_in_one_line("to be writable, but got: No space left on device; check"):
        patch.setattr(Path, "write_text", FULL)
        RunLock(path, "r")
    with fails_in_one_line("to be writable, but got: No such file"):
        RunLock(path / "lock", "r")
    RunLock(path, "r").release()


def test_where_the_system_has_no_locks_a_file_stands_for_one(path, monkeypatch):
    RunLock(path, "r").release()  # such a file may have been copied here
    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(errno.ENOSYS, "Function not implemented")))
    with started(WITHOUT_LOCKS + HOLD, path) as (process, _):
        assert is_locked(path)
        with pytest.raises(BusyError, match=f"process {process.pid} on "):
            RunLock(path, "0123")
    if not hasattr(filelock.FileLock, "fallback_to_soft"):  # older versions leave it to us to remove the file
        path.with_name("lock.soft").unlink()
    assert not is_locked(path)
    with RunLock(path, "0123"):
        assert is_locked(path)
        with pytest.raises(BusyError, match=f"process {os.getpid()} on "):
            RunLock(path, "0123")
    assert not is_locked(path)
