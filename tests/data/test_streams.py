"""Images that stay on disk are those that are read whole; processes decode as threads do, and end with their parent."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.conftest import encode, noise, picture, shard
from rcad.data import decoding, streams
from rcad.data.decoding import SizesDifferError, decode
from rcad.data.registry import load
from rcad.data.streams import Stream
from rcad.errors import InputError


def folders(root, images):
    """Class folders, two classes, every fourth image in val/."""
    for k, data in enumerate(images):
        path = root / ("val" if k % 4 == 3 else "train") / ("cat", "dog")[k % 2 if k % 4 != 3 else k // 4 % 2]
        path.mkdir(parents=True, exist_ok=True)
        (path / f"{k:03}.png").write_bytes(data)
    return root


def shards(root, images):
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
def way(request, monkeypatch):
    """Both ways of decoding, of streams and of whole sets."""
    if request.param == "processes":
        request.getfixturevalue("processes")
        monkeypatch.setattr(decoding, "WORTH_PROCESSES", 0)


def both(path, **options):
    """The set as a stream, and read whole."""
    cache = path.parent / "cache"
    return load(path, cache_dir=cache, stream=True, **options), load(path, cache_dir=cache, stream=False, **options)


def streamed(tmp_path, count=20):
    path = folders(tmp_path / "set", [picture(k) for k in range(count)])
    return load(path, cache_dir=tmp_path / "cache", stream=True).train.x


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("mode", "size"), [("RGB", None), ("L", None), ("RGB", 4)])
def test_a_stream_is_the_set_that_is_read_whole(tmp_path, layout, mode, size, monkeypatch):
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
    monkeypatch.setattr(streams, "look", lambda *a, **k: pytest.fail("looked again"))
    assert both(path, size=size)[0].train.x.identity == stream.train.x.identity


@pytest.mark.parametrize(("layout", "mode", "file"), [("folders", "RGB", "in memory"), ("shards", "L", "temporary")])
def test_batches_come_in_the_order_that_is_asked_for(tmp_path, layout, mode, file, way, monkeypatch):
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


def test_no_more_is_begun_than_a_few_batches_ahead(tmp_path):
    rows = np.arange(60).reshape(30, 2)
    begun = iter(rows)
    batches = streamed(tmp_path, 80).batches(begun)
    for _ in range(3):
        next(batches)
    batches.close()
    assert next(begun)[0] == rows[3 + streams.AHEAD][0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_broken_images_are_refused_or_named_and_counted(tmp_path, layout, monkeypatch):
    monkeypatch.setattr(decoding, "SOURCE_LENGTH", 4)
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
    assert stream.omissions[0].startswith("2 of 50 images skipped, e.g.: expected ")


def test_a_file_that_changes_later_is_one_line(tmp_path, way):
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
def test_what_does_not_fit_into_memory_is_streamed(tmp_path, layout, monkeypatch):
    path = LAYOUTS[layout](tmp_path / "set", [picture(k) for k in range(20)])
    for room, streams_them in ((10**12, False), (2 * 20 * 3 * 6 * 6 - 1, True), (2 * 20 * 3 * 6 * 6, False)):
        for module in ("streams", "image_parquet"):
            monkeypatch.setattr(f"rcad.data.{module}.memory", lambda room=room: room)
        assert isinstance(load(path, cache_dir=tmp_path / "cache").train.x, Stream) == streams_them


def test_images_that_changed_after_they_were_unpacked_are_named(tmp_path):
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


def test_a_process_that_was_killed_is_one_line_and_is_replaced(tmp_path, processes):
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
def test_they_end_with_the_process_that_started_them(tmp_path, end):
    (tmp_path / "a.png").write_bytes(picture(0))
    # Its standard output is a pipe that the decoder does not have, so that reading ends with the parent alone.
    done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path / "a.png", end], stdout=subprocess.PIPE, check=False)
    assert done.returncode == (-9 if end == "killed" else 0)
    state = Path(f"/proc/{int(done.stdout)}/stat")
    for _ in range(200):  # it hears of it when it reads on
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if state.read_text().split()[2] != "Z":
                time.sleep(0.05)
                continue
        return
    pytest.fail("the decoder lives on")


def test_pixels_are_exact_and_size_takes_the_centred_square():
    pixels, grey = noise(5, 7, 4), noise(4, 4)
    for kind, options in (("PNG", {}), ("BMP", {}), ("WEBP", {"lossless": True}), ("TIFF", {})):
        found = decode(encode(pixels[..., :3], kind, **options), "x")
        np.testing.assert_array_equal(found, pixels[..., :3].transpose(2, 0, 1))
    np.testing.assert_array_equal(decode(encode(grey), "x"), np.stack([grey] * 3))
    np.testing.assert_array_equal(decode(encode(pixels), "x"), pixels[..., :3].transpose(2, 0, 1))
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), (10, 20, 30)).convert("P", palette=Image.Palette.ADAPTIVE).save(buffer, "PNG")
    assert decode(buffer.getvalue(), "x")[:, 0, 0].tolist() == [10, 20, 30]
    wide = np.zeros((4, 12, 3), np.uint8)
    wide[:, 4:8] = 200
    assert (decode(encode(wide), "x", size=4) == 200).all()
    assert decode(encode(wide), "x", size=2).shape == (3, 2, 2)
    np.testing.assert_array_equal(decode(encode(grey), "x", size=4), np.stack([grey] * 3))


def whole(tmp_path, pictures, **options):
    return load(folders(tmp_path / "set", pictures), cache_dir=tmp_path / "cache", stream=False, **options)


def test_processes_write_what_threads_write(tmp_path, way):
    pixels, calls = [noise(6, 6, 3, seed=k) for k in range(23)], []
    found = whole(tmp_path, list(map(encode, pixels)), progress=lambda *counts: calls.append(counts))
    held = range(3, 23, 4)
    train = sorted({*range(23)} - {*held}, key=lambda k: (k % 2, k))  # a class after the other
    for split, places in ((found.train, train), (found.test, sorted(held, key=lambda k: (k // 4 % 2, k)))):
        np.testing.assert_array_equal(split.x, [pixels[k].transpose(2, 0, 1) for k in places])
    assert calls == [(18, 23), (23, 23)]


def test_errors_keep_their_line_across_processes(tmp_path, way):
    pictures = [picture(0), picture(1), picture(2, side=9)]
    with pytest.raises(SizesDifferError, match=r"6x6 like the first, but got 9x9 in .*2\.png; pass size="):
        whole(tmp_path, pictures)


@pytest.mark.parametrize("orientation", range(9))
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_photographs_are_upright(orientation, kind):
    upright = np.full((16, 24, 3), 40, np.uint8)
    upright[:8, :16] = 220  # no turn or mirror image of it is the same
    # How a camera held in each of EXIF's eight ways stores that scene.
    turned = {
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright),
        7: upright.transpose(1, 0, 2)[::-1, ::-1],
        8: np.rot90(upright, -1),
    }
    exif, buffer = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(turned.get(orientation, upright)))
    stored.save(buffer, kind, exif=exif, quality=95)
    np.testing.assert_allclose(decode(buffer.getvalue(), "it"), upright.transpose(2, 0, 1), atol=12)
    assert decode(buffer.getvalue(), "it", 8)[0, 0, 0] > 200


def test_grey_images_have_three_channels_where_one_has_colour(tmp_path, way):
    x = whole(tmp_path, [*(picture(k, "L") for k in range(4)), picture(4)]).train.x
    assert x.shape == (4, 3, 6, 6)
    np.testing.assert_array_equal(x[0], [noise(6, 6)] * 3)


def test_sixteen_bits_are_rounded_to_eight():
    levels = np.asarray([[0, 128, 129, 257], [32768, 65407, 65408, 65535]], np.uint16)
    expected = np.rint(levels / 257).astype(np.uint8)
    for kind in ("PNG", "TIFF"):
        np.testing.assert_array_equal(decode(encode(levels, kind), "x", grey=True)[0], expected)
        np.testing.assert_array_equal(decode(encode(levels, kind), "x"), np.stack([expected] * 3))
    for deep in (levels.astype(np.int32) * 2, -levels.astype(np.int32)):
        with pytest.raises(InputError, match="8 or 16 bits, but got mode I in x"):
            decode(encode(deep, "TIFF"), "x")
