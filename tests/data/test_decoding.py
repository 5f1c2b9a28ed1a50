"""Pixels are exact, sizes are checked, and many processes write what one would."""

import io
import re
import subprocess
import threading

import numpy as np
import pytest
from PIL import Image

from data.conftest import encode, noise
from rcad.data import decoding
from rcad.data.decoding import ImageFiles, ImageSet, Reading, SizesDifferError, decode, decode_splits
from rcad.errors import InputError


@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("BMP", {}), ("WEBP", {"lossless": True}), ("TIFF", {})])
def test_lossless_formats_are_exact(kind, options):
    pixels = noise(5, 7, 3)
    np.testing.assert_array_equal(decode(encode(pixels, kind, **options), "x"), pixels.transpose(2, 0, 1))


def test_grey_palette_and_alpha_become_rgb():
    grey = noise(4, 4)
    np.testing.assert_array_equal(decode(encode(grey), "x"), np.stack([grey] * 3))
    rgba = noise(4, 4, 4)
    np.testing.assert_array_equal(decode(encode(rgba), "x"), rgba[..., :3].transpose(2, 0, 1))
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), (10, 20, 30)).convert("P", palette=Image.Palette.ADAPTIVE).save(buffer, "PNG")
    assert decode(buffer.getvalue(), "x")[:, 0, 0].tolist() == [10, 20, 30]


def test_size_takes_the_centred_square():
    pixels = np.zeros((4, 12, 3), np.uint8)
    pixels[:, 4:8] = 200
    assert (decode(encode(pixels), "x", size=4) == 200).all()
    assert decode(encode(pixels), "x", size=2).shape == (3, 2, 2)
    same = noise(6, 6, 3)
    np.testing.assert_array_equal(decode(encode(same), "x", size=6), same.transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "cannot be decoded"),
        (b"hello", "cannot be decoded"),
        (encode(noise(8, 8, 3))[:100], "cannot be decoded"),
        (encode(noise(64, 64, 3), "JPEG")[:600], "cannot be decoded"),
        (encode(noise(4, 4).astype(np.float32), "TIFF"), "8 or 16 bits, but got mode F"),
    ],
)
def test_broken_images_are_named(data, problem):
    with pytest.raises(InputError, match=problem) as caught:
        decode(data, "folder/cat.png")
    assert "folder/cat.png" in str(caught.value)
    assert "0x" not in str(caught.value), "no address of a buffer"


def make_files(folder, count, shape=(6, 5, 3)):
    images = [noise(*shape, seed=i) for i in range(count)]
    for i, pixels in enumerate(images):
        (folder / f"{i}.png").write_bytes(encode(pixels))
    return [f"{i}.png" for i in range(count)], np.stack(
        [np.moveaxis(pixels, 2, 0) if pixels.ndim == 3 else pixels for pixels in images]
    )


@pytest.fixture(params=["threads", "processes"])
def way(request, monkeypatch):
    monkeypatch.setattr(decoding, "WORTH_PROCESSES", 0 if request.param == "processes" else 10**9)


def image_set(root, **splits):
    """The named files, a source for each of the lists."""
    sources = {name: [ImageFiles(str(root), part) for part in parts] for name, parts in splits.items()}
    labels = {name: np.arange(sum(map(len, parts))) for name, parts in splits.items()}
    return ImageSet(sources, labels, ("a", "b"), "")


def decode_files(tmp_path, names, **how):
    return decode_splits(tmp_path, image_set(tmp_path, train=[[name] for name in names]), Reading(**how))


def test_processes_write_what_threads_write(tmp_path, way):
    names, images = make_files(tmp_path, 23)
    calls, thread = [], threading.get_ident()

    def progress(done, total):
        assert threading.get_ident() == thread
        calls.append((done, total))

    both_splits = image_set(tmp_path, train=[names[:9], names[9:20]], test=[names[20:]])
    decode_splits(tmp_path, both_splits, Reading(progress=progress))
    np.testing.assert_array_equal(np.load(tmp_path / "train_x.npy"), images[:20])
    np.testing.assert_array_equal(np.load(tmp_path / "test_x.npy"), images[20:])
    assert np.load(tmp_path / "test_y.npy").tolist() == [0, 1, 2]
    assert calls == [(9, 23), (20, 23), (23, 23)]


def test_errors_keep_their_line_across_processes(tmp_path, way):
    names, _ = make_files(tmp_path, 3)
    (tmp_path / "2.png").write_bytes(encode(noise(9, 8, 3)))
    with pytest.raises(SizesDifferError, match=r"5x6 like the first, but got 8x9 in .*2\.png; pass size="):
        decode_files(tmp_path, names)
    (tmp_path / "2.png").unlink()
    with pytest.raises(InputError, match=r"2\.png to be readable"):
        decode_files(tmp_path, names)


def test_processes_end_when_progress_raises(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "WORTH_PROCESSES", 0)
    names, _ = make_files(tmp_path, 4)
    processes, start = [], subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: processes.append(start(*a, **k)) or processes[-1])

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decode_files(tmp_path, names, progress=interrupt)
    assert processes
    assert all(process.returncode is not None for process in processes)


def test_a_full_disk_is_an_os_error(tmp_path, monkeypatch, way):
    names, _ = make_files(tmp_path, 4)
    # /dev/full refuses every write; the header goes to a real file first.
    monkeypatch.setattr(decoding, "allocate", lambda path, shape: path.symlink_to("/dev/full") or 0)
    with pytest.raises(OSError, match="No space left"):
        decode_files(tmp_path, names)


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


def test_a_broken_exif_block_is_passed_over(recwarn):
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), (9, 9, 9)).save(buffer, "PNG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert decode(buffer.getvalue(), "it").shape == (3, 4, 4)
    assert not recwarn, "Pillow's complaints would end up on the user's terminal"


def test_grey_images_have_three_channels_where_one_has_colour(tmp_path, way):
    names, images = make_files(tmp_path, 4, shape=(6, 5))
    (tmp_path / "3.png").write_bytes(encode(noise(6, 5, 3)))
    decode_files(tmp_path, names)
    pixels = np.load(tmp_path / "train_x.npy")
    assert pixels.shape == (4, 3, 6, 5)
    np.testing.assert_array_equal(pixels[0], np.stack([images[0]] * 3))


def test_sixteen_bits_are_rounded_to_eight():
    levels = np.asarray([[0, 128, 129, 257], [32768, 65407, 65408, 65535]], np.uint16)
    expected = np.rint(levels / 257).astype(np.uint8)
    for kind in ("PNG", "TIFF"):
        np.testing.assert_array_equal(decode(encode(levels, kind), "x", grey=True)[0], expected)
        np.testing.assert_array_equal(decode(encode(levels, kind), "x"), np.stack([expected] * 3))
    for deep in (levels.astype(np.int32) * 2, -levels.astype(np.int32)):
        with pytest.raises(InputError, match="8 or 16 bits, but got mode I in x"):
            decode(encode(deep, "TIFF"), "x")


def test_broken_images_are_skipped_on_request_and_counted(tmp_path, way, monkeypatch):
    monkeypatch.setattr(decoding, "SOURCE_LENGTH", 3)
    names, images = make_files(tmp_path, 7)
    (tmp_path / "0.png").write_bytes(b"hello")
    (tmp_path / "3.png").unlink()
    omissions = decode_files(tmp_path, names, skip_bad=True)
    assert len(omissions) == 1
    assert re.fullmatch(r"2 of 7 images skipped, e.g.: expected .*0\.png to be an image, but .*", omissions[0])
    np.testing.assert_array_equal(np.load(tmp_path / "train_x.npy"), images[[1, 2, 4, 5, 6]])
    assert np.load(tmp_path / "train_y.npy").tolist() == [1, 2, 4, 5, 6]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match="but all are broken"):
        decode_files(tmp_path, names, skip_bad=True)
