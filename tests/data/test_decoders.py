"""Decoding processes give the pixels and the refusals of the threads, and end with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from data.test_streams import LAYOUTS, both, folders, picture
from rcad.data import decoders, streams
from rcad.data.decoders import Decoder, Decoders, share_of_cores
from rcad.data.registry import load
from rcad.errors import InputError


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Decoder]]:
    """Sets of any size are decoded by processes of this test's own; those that were started."""
    decoders._standing.cache_clear()
    mine = Decoders(2)
    monkeypatch.setattr(decoders, "_standing", lambda pid, processes: mine if processes else Decoders(processes=False))
    monkeypatch.setattr(streams, "WORTH_PROCESSES", 0)
    yield mine.started
    mine.close()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("mode", "size", "way"), [("RGB", None, "memory"), ("L", 4, "a temporary file")])
def test_pixels_are_those_of_the_set_read_whole(
    tmp_path: Path,
    layout: str,
    mode: str,
    size: int | None,
    way: str,
    processes: list[Decoder],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if way != "memory":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    stream, whole = both(LAYOUTS[layout](tmp_path / "set", [picture(k, mode) for k in range(80)]), size=size)
    wanted = [np.random.default_rng(k).permutation(60)[: 17 + k] for k in range(9)]
    for _ in range(2):  # the second time by the same ones
        found = list(stream.train.x.batches(wanted))
        assert all(np.array_equal(one, whole.train.x[index]) for one, index in zip(found, wanted, strict=True))
        assert 1 <= len(processes) <= 2


def test_small_sets_start_none(tmp_path: Path, processes: list[Decoder], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WORTH_PROCESSES", 16)
    stream = load(folders(tmp_path / "set", [picture(k) for k in range(20)]), cache_dir=tmp_path / "c", stream=True)
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
    processes[0].process.send_signal(signal.SIGTERM)  # not for it to hear
    assert np.array_equal(stream.train.x.copy(), pixels)
    processes[0].process.kill()
    processes[0].process.wait()
    with pytest.raises(InputError, match=r"^expected .* decoded, but the decoding process ended with code -9; is"):
        stream.train.x.copy()
    assert np.array_equal(stream.train.x.copy(), pixels)
    assert len(processes) == 2


PROGRAM = """
import os, signal, sys
import numpy as np
from rcad.data.decoders import standing
from rcad.data.decoding import Decoding, ImageFiles
decoders = standing(processes=True)
job = Decoding(ImageFiles(os.path.dirname(sys.argv[1]), ["a.png"]), (3, 6, 6), None)
decoders.submit_pixels(job, np.empty((1, 3, 6, 6), np.uint8)).result()
print(decoders.started[0].process.pid, flush=True)
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
