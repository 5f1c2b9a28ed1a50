from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rcad.errors import InputError
from rcad.runs.atomic import check_folder, leftovers, make_folder, ready_folder, replacing, write_text


def test_an_error_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old\n")
    with pytest.raises(RuntimeError):
        _fail_halfway(path)
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]


def _fail_halfway(path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_text("half")
        assert leftovers(path.parent) == [temporary]
        raise RuntimeError


def test_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "a longer text\n")
    write_text(path, "é\n")
    assert path.read_bytes() == "é\n".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_others_may_read_what_the_umask_allows(tmp_path: Path) -> None:
    previous = os.umask(0o022)
    try:
        write_text(tmp_path / "a.txt", "x")
    finally:
        os.umask(previous)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o644


def test_the_new_file_is_on_disk_before_it_has_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    fsync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append("fsync"), fsync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("replace"), rename(*names))[1])
    write_text(tmp_path / "a.txt", "x")
    assert calls == ["fsync", "replace", "fsync"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"expected .*file/a\.txt to be writable, but got: Not a directory"):
        write_text(tmp_path / "file" / "a.txt", "x")
    with pytest.raises(InputError, match=r"expected .*file/x to be a folder that can be written"):
        make_folder(tmp_path / "file" / "x")


def test_a_folder_is_tried_before_long_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_folder(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []  # it looks, and leaves the making to others
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"expected .*file/x/y to be a folder that can be written, but got: Not a dir"):
        check_folder(tmp_path / "file" / "x" / "y")
    ready_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []

    def full(*args: Any, **options: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(InputError, match=r"expected .*b to be a folder that can be written, but got: No space left"):
        ready_folder(tmp_path / "a" / "b")
