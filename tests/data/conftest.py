"""Small images as files and in Parquet shards; decoding by threads and by processes."""

import io

import numpy as np
import pytest
from PIL import Image

from rcad.data import decoders, streams
from rcad.data.decoders import Decoders
from rcad.data.registry import OfficialSet


def encode(pixels, kind="PNG", **options):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def picture(seed, mode="RGB", side=6):
    return encode(noise(side, side, *((3,) if mode == "RGB" else ()), seed=seed))


def red(level, width=4, height=4):
    """An image of one colour, by which it is known again."""
    return encode(np.full((height, width, 3), (level, 0, 0), np.uint8))


def reds(split):
    return None if split is None else split.x[:, 0, 0, 0].tolist()


def write(root, **contents):
    """Files below `root`, or images of one colour; in a keyword "__" is a slash and "_dot_" a dot."""
    root.mkdir(parents=True, exist_ok=True)
    for key, content in contents.items():
        name = key.replace("__", "/").replace("_dot_", ".")
        path = root / (name if isinstance(content, bytes) else f"{name}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else red(content))
    return root


def shard(path, images, labels, *, names=("image", "label"), metadata=None, struct=True, group=2):
    """A Parquet file as Hugging Face writes them; a number is an image of that colour."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    data = [red(image) if isinstance(image, int) else image for image in images]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()}) if struct else pa.binary()
    column = pa.array([{"bytes": value, "path": None} for value in data] if struct else data, kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(dict(zip(names, (column, labels), strict=True))).replace_schema_metadata(metadata)
    pq.write_table(table, path, row_group_size=group)
    return path


@pytest.fixture
def unchecked(monkeypatch):
    """Official files that a test makes: their md5 is another."""
    monkeypatch.setattr(OfficialSet, "check", lambda self, file: None)


@pytest.fixture
def processes(monkeypatch):
    """Streams of any size are decoded by processes of this test's own; those that were started."""
    decoders._decoders_of.cache_clear()
    own = Decoders(2)
    monkeypatch.setattr(decoders, "_decoders_of", lambda pid, wanted: own if wanted else Decoders(processes=False))
    monkeypatch.setattr(streams, "WORTH_PROCESSES", 0)
    yield own.started
    own.close()
