"""Decoding processes give the pixels and the refusals of the threads, and end with the process that started them."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.test_streams import LAYOUTS, both, folders, picture
from rcad.data import decoders, streams
from rcad.data.decoders import Chunk, Decoder, Spot, share_of_cores
from rcad.data.registry import load
from rcad.errors import InputError


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets of any size are decoded by processes of this test's own; those that were started."""
    free: queue.LifoQueue[Decoder | None] = queue.LifoQueue()
    started: list[Decoder] = []

    class Counted(Decoder):
        def __init__(self) -> None:
            super().__init__()
            started.append(self)

    for _ in range(2):
        free.put(None)
    monkeypatch.setattr(decoders, "_decoders", lambda pid: free)
    monkeypatch.setattr(decoders, "Decoder", Counted)
    monkeypatch.setattr(streams, "WORTH_PROCESSES", 0)
    yield started
    for one in started:
        one.end()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("mode", "size", "way"), [("RGB", None, "shared memory"), ("L", 4, "a pipe")])
def test_pixels_are_those_of_the_set_read_whole(
    tmp_path: Path,
    layout: str,
    mode: str,
    size: int | None,
    way: str,
    processes: list[Decoder],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if way == "a pipe":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    stream, whole = both(LAYOUTS[layout](tmp_path / "set", [picture(k, mode) for k in range(80)]), size=size)
    wanted = [np.random.default_rng(k).permutation(60)[: 17 + k] for k in range(9)]
    for _ in range(2):  # the second time by the same ones
        found = list(stream.train.x.batches(wanted))
        assert all(np.array_equal(one, whole.train.x[index]) for one, index in zip(found, wanted, strict=True))
        assert 1 <= len(processes) <= 2


def test_small_sets_start_none(tmp_path: Path, processes: list[Decoder], monkeypatch: pytest.MonkeyPatch) -> None:
    stream = load(folders(tmp_path / "set", [picture(k) for k in range(20)]), cache_dir=tmp_path / "c", stream=True)
    monkeypatch.setattr(streams, "WORTH_PROCESSES", 16)
    assert len(stream.train.x) == 15
    stream.train.x.copy()
    assert not processes


def test_what_a_process_meets_is_one_line_and_it_goes_on(tmp_path: Path, processes: list[Decoder]) -> None:
    path = folders(tmp_path / "set", [picture(k) for k in range(20)])
    stream = load(path, cache_dir=tmp_path / "c", stream=True).train.x
    file = path / "train" / "cat" / "004.png"
    whole, pixels = file.read_bytes(), stream.copy()
    file.write_bytes(picture(4, side=9))
    with pytest.raises(InputError, match=r"^expected .*004.png as it was when the run began, but its size has changed"):
        stream.copy()
    file.write_bytes(whole[:40])
    with pytest.raises(InputError, match=r"^expected .*004.png to be an image, but it cannot be decoded .*--skip-bad$"):
        stream.copy()
    file.unlink()
    with pytest.raises(InputError, match=r"^expected .*004.png to be readable, but got: No such file"):
        stream.copy()
    file.write_bytes(whole)
    assert np.array_equal(stream.copy(), pixels)
    assert len(processes) == 1  # none was lost by it


def test_a_process_that_was_killed_is_one_line_and_is_replaced(tmp_path: Path, processes: list[Decoder]) -> None:
    stream = load(folders(tmp_path / "set", [picture(k) for k in range(20)]), cache_dir=tmp_path / "c", stream=True)
    pixels = stream.train.x.copy()
    processes[0]._process.send_signal(signal.SIGTERM)  # not for it to hear
    assert np.array_equal(stream.train.x.copy(), pixels)
    processes[0]._process.kill()
    processes[0]._process.wait()
    with pytest.raises(InputError, match=r"^expected .* decoded, but the decoding process ended with code -9; is"):
        stream.train.x.copy()
    assert np.array_equal(stream.train.x.copy(), pixels)
    assert len(processes) == 2


PROGRAM = """
import os, signal, sys
import numpy as np
from rcad.data import decoders
chunk = decoders.Chunk([decoders.Spot("a", sys.argv[1])], (3, 6, 6), None)
decoders.fill_elsewhere(chunk, np.empty((1, 3, 6, 6), np.uint8))
print(decoders._decoders(os.getpid()).get()._process.pid, flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("way", ["killed", "ended"])
def test_they_end_with_the_process_that_started_them(tmp_path: Path, way: str) -> None:
    (tmp_path / "a.png").write_bytes(picture(0))
    # Its standard output is a pipe that the decoder does not have, so that reading ends with the parent alone.
    done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path / "a.png", way], stdout=subprocess.PIPE, check=False)
    assert done.returncode == (-9 if way == "killed" else 0)
    decoder = int(done.stdout)
    for _ in range(200):  # it hears of it when it reads on
        try:
            os.kill(decoder, 0)
        except ProcessLookupError:
            break
        if Path(f"/proc/{decoder}/stat").read_text().split()[2] == "Z":
            break
        subprocess.run(["sleep", "0.05"], check=True)
    else:
        pytest.fail("the decoder lives on")


def test_processes_of_torchrun_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders, "cores", lambda: 16)
    assert share_of_cores() == 16
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert share_of_cores() == 5
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "40")
    assert share_of_cores() == 1


def test_a_spot_without_bytes_says_where() -> None:
    with pytest.raises(InputError, match=r"^expected image bytes in shard row 3, but got none"):
        Chunk([Spot("shard row 3", "file", 5, 5)], (1, 1, 1), None).fill(np.empty((1, 1, 1, 1), np.uint8))
