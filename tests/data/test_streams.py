"""Images that stay on disk are those that are read whole: same pixels, same labels, same refusals.

Decoding processes give what threads give, and end with the process that started them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.conftest import picture, shard
from rcad.data import decoders, streams
from rcad.data.dataset import Dataset
from rcad.data.decoders import Decoder, share_of_cores
from rcad.data.registry import load
from rcad.data.streams import Stream
from rcad.errors import InputError


def folders(root: Path, images: list[bytes]) -> Path:
    """Class folders, two classes, every fourth image in val/."""
    for k, data in enumerate(images):
        path = root / ("val" if k % 4 == 3 else "train") / ("cat", "dog")[k % 2 if k % 4 != 3 else k // 4 % 2]
        path.mkdir(parents=True, exist_ok=True)
        (path / f"{k:03}.png").write_bytes(data)
    return root


def shards(root: Path, images: list[bytes]) -> Path:
    """The same as Parquet: two training shards of small row groups, one of validation."""
    train = [(data, k % 2) for k, data in enumerate(images) if k % 4 != 3]
    held = [(data, k // 4 % 2) for k, data in enumerate(images) if k % 4 == 3]
    half = len(train) // 2
    parts = {"train-00000-of-00002": train[:half], "train-00001-of-00002": train[half:], "valid-0": held}
    for name, rows in parts.items():
        shard(root / f"{name}.parquet", [data or None for data, _ in rows], [label for _, label in rows], group=3)
    return root


LAYOUTS = {"folders": folders, "shards": shards}


@pytest.fixture(params=["threads", "processes"])
def way(request: pytest.FixtureRequest) -> None:
    """Both ways of decoding."""
    if request.param == "processes":
        request.getfixturevalue("processes")


def both(path: Path, **options: Any) -> tuple[Dataset, Dataset]:
    """The set as a stream, and read whole."""
    cache = path.parent / "cache"
    return load(path, cache_dir=cache, stream=True, **options), load(path, cache_dir=cache, stream=False, **options)


def streamed(tmp_path: Path, count: int = 20, **options: Any) -> Stream:
    path = folders(tmp_path / "set", [picture(k) for k in range(count)])
    stream: Stream = load(path, cache_dir=tmp_path / "cache", stream=True, **options).train.x
    return stream


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("mode", "size"), [("RGB", None), ("L", None), ("RGB", 4)])
def test_a_stream_is_the_set_that_is_read_whole(tmp_path: Path, layout: str, mode: str, size: int | None) -> None:
    path = LAYOUTS[layout](tmp_path / "set", [picture(k, mode) for k in range(50)])
    stream, whole = both(path, size=size)
    assert stream.classes == whole.classes
    assert stream.note == f"{whole.note}; streamed from disk"
    for mine, other in ((stream.train, whole.train), (stream.test, whole.test)):
        assert isinstance(mine.x, Stream)
        assert (mine.x.shape, mine.x.dtype, len(mine.x)) == (other.x.shape, other.x.dtype, len(other))
        assert mine.x.shape[1] == len(mode)  # one channel where all are grey
        assert mine.y.tolist() == other.y.tolist()
        assert np.array_equal(mine.x.copy(), other.x)
        squares = (other.x.astype(np.int64) ** 2).sum((0, 2, 3))
        assert [sums.tolist() for sums in mine.x.moments()] == [other.x.sum((0, 2, 3)).tolist(), squares.tolist()]


@pytest.mark.parametrize(("layout", "mode", "file"), [("folders", "RGB", "in memory"), ("shards", "L", "temporary")])
def test_batches_come_in_the_order_that_is_asked_for(
    tmp_path: Path, layout: str, mode: str, file: str, way: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if file == "temporary":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    pictures = [picture(k, mode) for k in range(80)]
    stream, whole = both(LAYOUTS[layout](tmp_path / "set", pictures))
    indices = [np.random.default_rng(k).permutation(60)[: 17 + k] for k in range(9)]
    for _ in range(2):  # the second time by the same processes
        batches = list(stream.train.x.batches(indices))
        assert all(np.array_equal(one, whole.train.x[index]) for one, index in zip(batches, indices, strict=True))
    share = stream.train.x[10:40:3][np.array([4, 0])]  # a share of a stream is a stream
    assert np.array_equal(share.copy(), whole.train.x[10:40:3][[4, 0]])


def test_no_more_is_begun_than_a_few_batches_ahead(tmp_path: Path) -> None:
    begun: list[int] = []

    def indices() -> Iterator[Any]:
        for k in range(30):
            begun.append(k)
            yield np.arange(2 * k, 2 * k + 2)

    batches = streamed(tmp_path, 80).batches(indices())
    for used in range(1, 4):
        next(batches)
        assert len(begun) == used + streams.AHEAD
    batches.close()
    assert len(begun) == 3 + streams.AHEAD


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_image_is_looked_at_once(tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = LAYOUTS[layout](tmp_path / "set", [picture(k) for k in range(40)])
    counts: list[tuple[int, int]] = []
    first = load(path, cache_dir=tmp_path / "c", stream=True, progress=lambda *done: counts.append(done))
    assert counts[-1] == (40, 40)
    monkeypatch.setattr(streams, "look", lambda *a, **k: pytest.fail("looked again"))
    again = load(path, cache_dir=tmp_path / "c", stream=True)
    assert np.array_equal(first.train.x.copy(), again.train.x.copy())
    assert first.train.x.identity == again.train.x.identity


@pytest.mark.parametrize("layout", LAYOUTS)
def test_broken_images_are_refused_or_named_and_counted(tmp_path: Path, layout: str) -> None:
    images = [picture(k) for k in range(50)]
    images[9], images[7] = images[9][:40], b"" if layout == "shards" else b"no image"
    path = LAYOUTS[layout](tmp_path / "set", images)
    for _ in range(2):  # a survey that was kept refuses them as well
        with pytest.raises(InputError) as refused:
            load(path, cache_dir=tmp_path / "cache", stream=True)
        assert "009.png" in str(refused.value) or "row" in str(refused.value)
        stream, whole = both(path, skip_bad=True)
    assert len(stream.train) == len(whole.train) == 37
    assert np.array_equal(stream.train.x.copy(), whole.train.x)
    assert np.array_equal(stream.test.x.copy(), whole.test.x)
    assert stream.test.y.tolist() == whole.test.y.tolist()
    assert stream.omissions == whole.omissions
    assert stream.omissions[0].startswith("2 of 50 images skipped, e.g.: ")


def test_a_file_that_changes_later_is_one_line(tmp_path: Path, way: None) -> None:
    stream = streamed(tmp_path)
    file = tmp_path / "set" / "train" / "cat" / "004.png"
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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_does_not_fit_into_memory_is_streamed(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = LAYOUTS[layout](tmp_path / "set", [picture(k) for k in range(20)])
    for room, streams_them in ((10**12, False), (2 * 20 * 3 * 6 * 6 - 1, True), (2 * 20 * 3 * 6 * 6, False)):
        for module in ("streams", "image_parquet"):
            monkeypatch.setattr(f"rcad.data.{module}.memory", lambda room=room: room)
        assert isinstance(load(path, cache_dir=tmp_path / "cache").train.x, Stream) == streams_them


def test_tables_are_not_streamed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,0\n2,1\n")
    with pytest.raises(InputError, match=r"^expected class folders or Parquet shards to stream, but got .*a.csv; read"):
        load(tmp_path / "a.csv", stream=True, target="y")


def test_images_that_changed_after_they_were_unpacked_are_named(tmp_path: Path) -> None:
    path = shards(tmp_path / "set", [picture(k) for k in range(8)])
    stream = load(path, cache_dir=tmp_path / "cache", stream=True).train.x
    (unpacked,) = (tmp_path / "cache" / "streams").glob("*/images.bin")
    content = bytearray(unpacked.read_bytes())
    content[40] ^= 1
    unpacked.write_bytes(content)
    with pytest.raises(InputError, match=r"row 0 as it was unpacked, but its bytes in .* rcad data clear --yes"):
        stream.copy()
    unpacked.write_bytes(content[:-1])  # that something is missing is seen when it is opened
    assert len(load(path, cache_dir=tmp_path / "cache", stream=True).train.x.copy()) == 6


def test_small_sets_start_no_processes(
    tmp_path: Path, processes: list[Decoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "WORTH_PROCESSES", 16)
    stream = streamed(tmp_path)
    assert len(stream) == 15
    stream.copy()
    assert not processes


def test_a_process_that_was_killed_is_one_line_and_is_replaced(tmp_path: Path, processes: list[Decoder]) -> None:
    stream = streamed(tmp_path)
    pixels = stream.copy()
    processes[0].process.send_signal(signal.SIGTERM)  # not for it to hear
    assert np.array_equal(stream.copy(), pixels)
    assert len(processes) == 1
    processes[0].process.kill()
    processes[0].process.wait()
    with pytest.raises(InputError, match=r"^expected .* decoded, but the decoding process ended with code -9; is"):
        stream.copy()
    assert np.array_equal(stream.copy(), pixels)
    assert len(processes) == 2


PROGRAM = """
import os, signal, sys
import numpy as np
from rcad.data.decoders import shared_decoders
from rcad.data.decoding import Decoding, ImageFiles
decoders = shared_decoders(processes=True)
job = Decoding(ImageFiles(os.path.dirname(sys.argv[1]), ["a.png"]), (3, 6, 6), None)
decoders.submit_pixels(job, np.empty((1, 3, 6, 6), np.uint8)).result()
print(decoders.started[0].process.pid, flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["killed", "ended"])
def test_they_end_with_the_process_that_started_them(tmp_path: Path, end: str) -> None:
    (tmp_path / "a.png").write_bytes(picture(0))
    # Its standard output is a pipe that the decoder does not have, so that reading ends with the parent alone.
    done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path / "a.png", end], stdout=subprocess.PIPE, check=False)
    assert done.returncode == (-9 if end == "killed" else 0)
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
    for processes, cores in (("3", 5), ("40", 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
        assert share_of_cores() == cores
