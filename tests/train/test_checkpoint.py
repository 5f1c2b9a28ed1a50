"""Files that are whole, or said not to be."""

import errno
import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from one_line import fails_in_one_line
from rcad.runs.files import KEY, NO_SUM, SUM, DamagedError, seal_tensors
from rcad.train import checkpoint
from rcad.train.checkpoint import load_tensors, save_tensors


def test_equal_content_gives_equal_bytes(tmp_path):
    tensors = {f"layer.{i}": torch.arange(float(i)) for i in range(9)}
    tensors |= {"step": torch.tensor(3), "b": torch.ones(2).bool()}
    meta = {"columns": ["weight", "height"], "classes": {"no": 0, "yes": 1}, "mean": [0.1, 1 / 3]}
    for i in range(12):
        save_tensors(tmp_path / str(i), tensors, meta)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"version": "2", "meta": {}}, "expected a checkpoint of version 1 in .*, but got '2'"),
        ({"version": "1"}, "expected .* to be whole, but got: 'meta'; remove it to start over"),
        ({"version": "1", "meta": []}, "expected .* to be whole, but got: no table beside its tensors; remove .*"),
        ({}, "expected .* to be whole, but got: its bytes are not those that were written; remove .*"),
    ],
)
def test_a_header_that_is_not_ours_is_refused_in_one_line(content, message, tmp_path):
    path = tmp_path / "file"
    save_file({"a": torch.ones(3)}, path, metadata={KEY: json.dumps({SUM: NO_SUM, **content})} if content else {})
    if content:
        seal_tensors(path)
    with fails_in_one_line(match=rf"^{message}$"):
        load_tensors(path)


def test_a_full_disk_is_told_in_one_line_and_costs_nothing(tmp_path, monkeypatch):
    path, full = tmp_path / "file", SafetensorError("I/O error: No space left on device (os error 28)")
    save_tensors(path, {"a": torch.ones(3)}, {"epoch": 1})
    monkeypatch.setattr(checkpoint, "save_file", Mock(side_effect=full))
    with fails_in_one_line(match=r"^expected .*file to be writable, but got: .*No space left on device.*; check"):
        save_tensors(path, {"a": torch.zeros(3)}, {"epoch": 2})
    assert load_tensors(path)[1] == {"epoch": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_flipped_bit_in_any_byte_is_found(tmp_path):
    path = tmp_path / "file"
    save_tensors(path, {"a": torch.randn(20), "b": torch.tensor(3)}, {"epoch": 3, "rows": [{"loss": 0.5}]})
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        with pytest.raises(DamagedError, match=r"^expected .*file to be whole, but got: .*; remove it to start over$"):
            load_tensors(path)
    path.write_bytes(content)
    assert load_tensors(path)[1]["epoch"] == 3


def test_others_may_read_weights_as_the_umask_allows(tmp_path, monkeypatch):
    path, previous = tmp_path / "file", os.umask(0o027)
    save_tensors(path, {"a": torch.ones(3)}, {})
    os.umask(previous)
    assert path.stat().st_mode & 0o777 == 0o640
    monkeypatch.setattr(Path, "open", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
    with fails_in_one_line(match=r"^expected .*file to be a readable file, but got: Permission denied; .*a\+r"):
        load_tensors(path)  # which does not call it damaged
