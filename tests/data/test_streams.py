"""Images that stay on disk are those that are read whole: same pixels, same labels, same refusals."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from made import images
from rcad.data import streams
from rcad.data.dataset import Dataset
from rcad.data.decoding import SizesDifferError
from rcad.data.registry import load
from rcad.data.streams import Stream
from rcad.errors import InputError


def picture(seed: int, mode: str = "RGB", side: int = 6) -> bytes:
    channels = (3,) if mode == "RGB" else ()
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, *channels), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels, mode).save(buffer, "PNG")
    return buffer.getvalue()


def folders(root: Path, images: list[bytes]) -> Path:
    """Class folders, two classes, every fourth image in val/."""
    for k, data in enumerate(images):
        path = root / ("val" if k % 4 == 3 else "train") / ("cat", "dog")[k % 2 if k % 4 != 3 else k // 4 % 2]
        path.mkdir(parents=True, exist_ok=True)
        (path / f"{k:03}.png").write_bytes(data)
    return root


def shards(root: Path, images: list[bytes]) -> Path:
    """The same as Parquet: two training shards of small row groups, one of validation."""
    root.mkdir()
    train = [(data, k % 2) for k, data in enumerate(images) if k % 4 != 3]
    held = [(data, k // 4 % 2) for k, data in enumerate(images) if k % 4 == 3]
    half = len(train) // 2
    parts = {"train-00000-of-00002": train[:half], "train-00001-of-00002": train[half:], "valid-0": held}
    for name, rows in parts.items():
        column = pa.array([{"bytes": data or None, "path": None} for data, _ in rows])
        table = pa.table({"image": column, "label": pa.array([label for _, label in rows], pa.int64())})
        pq.write_table(table, root / f"{name}.parquet", row_group_size=3)
    return root


LAYOUTS = {"folders": folders, "shards": shards}


def both(path: Path, **options: Any) -> tuple[Dataset, Dataset]:
    """The set as a stream, and read whole."""
    cache = path.parent / "cache"
    return load(path, cache_dir=cache, stream=True, **options), load(path, cache_dir=cache, stream=False, **options)


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
        assert mine.y.tolist() == other.y.tolist()
        assert np.array_equal(mine.x.copy(), other.x)
        squares = (other.x.astype(np.int64) ** 2).sum((0, 2, 3))
        assert [one.tolist() for one in mine.x.moments()] == [other.x.sum((0, 2, 3)).tolist(), squares.tolist()]


def test_batches_come_in_the_order_that_is_asked_for(tmp_path: Path) -> None:
    stream, whole = both(folders(tmp_path / "set", [picture(k) for k in range(80)]))
    wanted = [np.random.default_rng(k).permutation(60)[: 7 + k] for k in range(9)]
    found = list(stream.train.x.batches(wanted))
    assert all(np.array_equal(one, whole.train.x[index]) for one, index in zip(found, wanted, strict=True))
    share = stream.train.x[10:40:3][np.array([4, 0])]  # a share of a stream is a stream
    assert np.array_equal(share.copy(), whole.train.x[10:40:3][[4, 0]])


def test_no_more_is_begun_than_a_few_batches_ahead(tmp_path: Path) -> None:
    stream = load(folders(tmp_path / "set", [picture(k) for k in range(80)]), cache_dir=tmp_path / "c", stream=True)
    begun: list[int] = []

    def wanted() -> Iterator[Any]:
        for k in range(30):
            begun.append(k)
            yield np.arange(2 * k, 2 * k + 2)

    batches = stream.train.x.batches(wanted())
    for used in range(1, 4):
        next(batches)
        assert len(begun) == used + streams.AHEAD
    batches.close()
    assert len(begun) == 3 + streams.AHEAD


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_image_is_looked_at_once(tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = LAYOUTS[layout](tmp_path / "set", [picture(k) for k in range(40)])
    told: list[tuple[int, int]] = []
    first = load(path, cache_dir=tmp_path / "c", stream=True, progress=lambda *done: told.append(done))
    assert told[-1] == (40, 40)
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


def test_images_that_differ_in_size_need_one(tmp_path: Path) -> None:
    images = [picture(k, side=6 if k != 11 else 8) for k in range(20)]
    path = folders(tmp_path / "set", images)
    with pytest.raises(SizesDifferError, match=r"every image to be 6x6 like the first, but got 8x8 in .*011.png; pass"):
        load(path, cache_dir=tmp_path / "cache", stream=True)
    assert load(path, cache_dir=tmp_path / "cache", stream=True, size=5).train.x.shape == (15, 3, 5, 5)


def test_a_file_that_changes_later_is_one_line(tmp_path: Path) -> None:
    path = folders(tmp_path / "set", [picture(k) for k in range(20)])
    stream = load(path, cache_dir=tmp_path / "cache", stream=True).train.x
    (path / "train" / "cat" / "004.png").write_bytes(picture(4, side=9))
    with pytest.raises(InputError, match=r"^expected .*004.png as it was when the run began, but its size has changed"):
        stream.copy()
    (path / "train" / "cat" / "004.png").unlink()
    with pytest.raises(InputError, match=r"^expected .*004.png to be readable, but got: No such file"):
        stream.copy()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_does_not_fit_into_memory_is_streamed(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = LAYOUTS[layout](tmp_path / "set", [picture(k) for k in range(20)])
    assert not isinstance(load(path, cache_dir=tmp_path / "cache").train.x, Stream)
    for module in ("streams", "image_parquet"):
        monkeypatch.setattr(f"rcad.data.{module}.memory", lambda: 2 * 20 * 3 * 6 * 6 - 1)
    assert isinstance(load(path, cache_dir=tmp_path / "cache").train.x, Stream)
    for module in ("streams", "image_parquet"):
        monkeypatch.setattr(f"rcad.data.{module}.memory", lambda: 2 * 20 * 3 * 6 * 6)
    assert not isinstance(load(path, cache_dir=tmp_path / "cache").train.x, Stream)


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


def test_a_damaged_survey_is_made_again(tmp_path: Path) -> None:
    images(str(tmp_path / "images"))
    first = load(str(tmp_path / "images"), cache_dir=tmp_path / "cache", stream=True)
    (survey,) = (tmp_path / "cache" / "streams").glob("*/index.npz")
    whole = survey.read_bytes()
    other = io.BytesIO()
    np.savez(other, shape=np.zeros(3))
    cut = whole[: len(whole) // 2]
    for damage in (cut, b"", bytes(len(whole)), whole[:80] + b"\xff" + whole[81:], other.getvalue()):
        survey.write_bytes(damage)
        again = load(str(tmp_path / "images"), cache_dir=tmp_path / "cache", stream=True)
        assert again.train.x.shape == first.train.x.shape
        assert survey.read_bytes() == whole
