"""Encoded images, one or many, wherever they lie, to arrays in memory or on disk, on all cores.

Whoever decodes writes with write(), not through a memory map: a full disk is then an error and not a SIGBUS.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import math
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from rcad.data.cache import allocate, clearing_advice
from rcad.data.dataset import Progress, no_progress
from rcad.data.decoders import WORTH_PROCESSES, Decoders, Pixels
from rcad.data.files import intact, read_bytes, reason
from rcad.errors import InputError, need, whole, without_advice

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff"})
# Naming the formats keeps Pillow from trying all fifty on every image, which is both slower and less safe.
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "PPM", "TIFF")
_GREY_MODES = ("1", "L", "LA", "La", "I")
SOURCE_LENGTH = 512  # images that a process takes at a time: few enough to share the work
LARGEST_SIZE = 4096
_BUFFER = 1 << 20
T = TypeVar("T")
Encoded = tuple[str, bytes | InputError]  # how an error names an image, and its bytes or why there are none
Shape = tuple[int, int, int]


class ColourError(InputError):
    """A colour image where grey ones were expected."""


def is_image_name(name: str) -> bool:
    """Whether a file name looks like an image's; hidden files (.DS_Store, ._a.png) do not."""
    path = Path(name)
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def decode(
    data: bytes | InputError, origin: str, size: int | None = None, *, grey: bool = False
) -> npt.NDArray[np.uint8]:
    """Decode one image to uint8 (3, H, W), upright as EXIF says; greyscale, palette and alpha become RGB, 16 bits 8.

    Args:
        data: the encoded file, or why there is none, which is raised; errors call the image `origin`.
        size: the largest centred square is resized to size x size (bilinear with antialiasing).
        grey: one channel, (1, H, W); a colour image is then a `ColourError`.
    """
    with _opened(data, origin) as image:
        if grey and image.mode not in _GREY_MODES and not image.mode.startswith("I;16"):
            raise ColourError(f"expected a grey image, but got mode {image.mode} in {origin}")
        image.load()
        # A broken EXIF block says nothing about the pixels.
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            need("PIL.ImageOps", "pillow").exif_transpose(image, in_place=True)
        image, mode = _eight_bits(image, origin), "L" if grey else "RGB"
        if image.mode != mode:
            image = image.convert(mode)
        width, height = image.size
        if size is not None and (width, height) != (size, size):
            side = min(width, height)
            left, top = (width - side) / 2, (height - side) / 2
            image = image.resize((size, size), _pillow().Resampling.BILINEAR, box=(left, top, left + side, top + side))
        # Transposed as a view: the caller copies once, into its own buffer.
        return np.asarray(image)[None] if grey else np.asarray(image).transpose(2, 0, 1)


@contextlib.contextmanager
def _opened(data: Any, origin: str) -> Iterator[Any]:
    """Pillow's image; whatever its plugins raise on broken files becomes one line."""
    pillow = _pillow()
    try:
        if isinstance(data, InputError):
            raise data
        if not isinstance(data, bytes):
            yield data.copy()  # which is turned in place
            return
        with pillow.open(io.BytesIO(data), formats=_FORMATS) as image:
            yield image
    except InputError:
        raise
    except Exception as error:
        # Pillow's own sentence for an unknown format prints the address of our buffer.
        why = "unknown format" if isinstance(error, pillow.UnidentifiedImageError) else reason(error)
        raise InputError(
            f"expected {origin} to be an image, but it cannot be decoded ({why}); "
            "replace or remove it, or pass --skip-bad"
        ) from None


def _eight_bits(image: Any, origin: str) -> Any:
    """Levels 0..65535 rounded to 0..255; Pillow itself would clip them."""
    if not image.mode.startswith(("I", "F")):
        return image
    levels = np.asarray(image)
    if image.mode == "F" or levels.min() < 0 or levels.max() > 65535:
        raise InputError(
            f"expected images of 8 or 16 bits, but got mode {image.mode} in {origin}; convert it to 8 bits per channel"
        )
    return _pillow().fromarray(((levels.astype(np.int64) + 128) // 257).astype(np.uint8))


@functools.cache
def _pillow() -> Any:
    pillow = need("PIL.Image", "pillow")
    logging.getLogger("PIL").addHandler(logging.NullHandler())  # what it says of broken files is said by our errors
    return pillow


class SizesDifferError(InputError):
    """Images of one set differ in size, and no `size` to resize them to was given."""


@dataclass(frozen=True)
class ImageFiles:
    root: str
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: Sequence[int]) -> ImageFiles:
        return ImageFiles(self.root, [self.names[row] for row in rows])

    def images(self) -> Iterator[Encoded]:
        for name in self.names:
            path = Path(self.root, name)
            try:
                yield str(path), read_bytes(path)
            except InputError as error:
                yield str(path), error


@dataclass(frozen=True)
class ParquetRows:
    """Rows of one row group; `first` is the row group's first row in the shard."""

    root: str
    column: str
    group: int
    first: int
    rows: range

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: range) -> ParquetRows:
        return replace(self, rows=self.rows[rows.start : rows.stop])

    def images(self) -> Iterator[Encoded]:
        with intact(f"{self.root} (row group {self.group})", "Parquet file", "fetch it again"):
            parquet = need("pyarrow.parquet", "pyarrow").ParquetFile(self.root)
            # One thread: every core already has its own process.
            table = parquet.read_row_group(self.group, [self.column], use_threads=False)
            column = table.column(0).slice(self.rows.start, len(self.rows))
            chunks = [c.field("bytes") if hasattr(c, "field") else c for c in column.chunks]
            encoded = [value for chunk in chunks for value in chunk.to_pylist()]
        for row, data in enumerate(encoded, self.first + self.rows.start):
            yield f"{self.root} row {row}", data or no_bytes(f"{self.root} row {row}")


@dataclass(frozen=True)
class Packed:
    """Images one after the other in a file of the cache, empty where the source, of `shards`, had no bytes.

    `parts`, int64 (N, 5), says where each image begins and ends, its CRC-32, its shard and its row there.
    """

    root: str
    shards: tuple[str, ...]
    parts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.parts)

    def take(self, rows: Sequence[int]) -> Packed:
        return replace(self, parts=self.parts[np.asarray(rows)])

    def images(self) -> Iterator[Encoded]:
        with open(self.root, "rb") as file:
            for start, end, crc, shard, row in self.parts.tolist():
                name = f"{self.shards[shard]} row {row}"
                file.seek(start)
                data = file.read(end - start)
                if zlib.crc32(data) != crc:
                    changed = f"expected {name} as it was unpacked, but its bytes in {self.root} have changed"
                    yield name, InputError(f"{changed}; {clearing_advice(Path(self.root).parent)}")
                else:
                    yield name, data or no_bytes(name)


Source = ImageFiles | ParquetRows | Packed


def no_bytes(origin: str) -> InputError:
    """The error for an image whose bytes are not stored, only its path."""
    return InputError(f"expected image bytes in {origin}, but got none; store the bytes, not only the path")


@dataclass(frozen=True)
class Reading:
    """How images are to be read.

    Args:
        size: the largest centred square of each is resized to so many pixels; None: all have the size of the first.
        skip_bad: leave out images that cannot be decoded, and count them; else the first is an InputError.
        stream: leave them on disk; None where decoded they would take more than half of the machine's memory.
        progress: called in this thread with (images done, images in all).
    """

    size: int | None = None
    skip_bad: bool = False
    stream: bool | None = False
    cache_dir: Path | None = None
    progress: Progress = no_progress

    def __post_init__(self) -> None:
        if self.size is not None:
            whole("size", self.size, minimum=1)
            if self.size > LARGEST_SIZE:
                raise InputError(f"expected size to be at most {LARGEST_SIZE} pixels, but got {self.size}")


class ImageSet(NamedTuple):
    """Images by split as they were found, not yet decoded; what was left out so far, a sentence each."""

    sources: Mapping[str, Sequence[Source]]
    labels: Mapping[str, npt.NDArray[np.int64]]
    classes: tuple[str, ...]
    note: str
    omissions: tuple[str, ...] = ()

    def good_rows(self, bad: Iterable[int]) -> dict[str, npt.NDArray[np.int64]]:
        """By split the rows of the images that can be read, at least one; `bad` places count over all splits."""
        places, rows, first = np.asarray([*bad], np.int64), {}, 0
        for split, y in self.labels.items():
            rows[split] = np.setdiff1d(np.arange(len(y)), places - first)
            if not len(rows[split]):
                raise all_broken(self.sources[split])
            first += len(y)
        return rows

    def skipped(self, problems: Iterable[str]) -> tuple[str, ...]:
        """A sentence on the images left out, if any: how many, and what is wrong with one of them."""
        problems, total = tuple(problems), sum(map(len, self.labels.values()))
        return (f"{len(problems)} of {total} images skipped, e.g.: {without_advice(problems[0])}",) if problems else ()


@dataclass(frozen=True)
class Decoding:
    """Decode a source to images of one shape (C, H, W); `surveyed` where all had it when the run began."""

    source: Source
    shape: Shape
    size: int | None
    skip_bad: bool = False
    surveyed: bool = False

    def write(self, output: str | int, offset: int = 0) -> dict[int, str]:
        """Write the pixels to a file, or an open one, zeros for bad images; what is wrong with those, by place."""
        bad = {}
        with open(output, "r+b", _BUFFER, closefd=isinstance(output, str)) as out:
            out.seek(offset)
            for place, image in enumerate(self.images()):
                if isinstance(image, str):
                    bad[place] = image
                    image = np.zeros(self.shape, np.uint8)
                out.write(np.ascontiguousarray(image).data)
        return bad

    def fill(self, out: Pixels) -> None:
        for place, image in enumerate(self.images()):
            out[place] = image

    def measure(self) -> list[npt.NDArray[np.int64] | str]:
        """For each image the sums of the pixels and of their squares by channel, (2, C), or what is wrong with it."""
        return [
            image
            if isinstance(image, str)
            else np.stack([image.sum((1, 2), dtype=np.int64), np.square(image, dtype=np.int64).sum((1, 2))])
            for image in self.images()
        ]

    def images(self) -> Iterator[Pixels | str]:
        """The pixels of each image, or with `skip_bad` what is wrong with it."""
        for origin, data in self.source.images():
            try:
                image = decode(data, origin, self.size, grey=self.shape[0] == 1)
            except ColourError:
                raise
            except InputError as error:
                if not self.skip_bad:
                    raise
                yield str(error)
                continue
            if image.shape != self.shape:
                if self.surveyed:
                    raise InputError(f"expected {origin} as it was when the run began, but its size has changed")
                first, other = (f"{shape[2]}x{shape[1]}" for shape in (self.shape, image.shape))
                raise SizesDifferError(
                    f"expected every image to be {first} like the first, but got {other} in {origin}; pass size= "
                    f"(--size or --set data.size=), e.g. {min(*self.shape[1:], *image.shape[1:])}, to resize and crop "
                    "them"
                )
            yield image


def decode_splits(folder: Path, images: ImageSet, how: Reading) -> tuple[str, ...]:
    """Write `<split>_x.npy`, uint8 (N, C, H, W), and `<split>_y.npy`; returns a sentence on images left out, if any."""

    def decode_all(shape: Shape) -> dict[int, str]:
        jobs: list[tuple[Decoding, str, int]] = []
        for split, sources in images.sources.items():
            output = folder / f"{split}_x.npy"
            offset = allocate(output, (sum(map(len, sources)), *shape))
            for part in (part for source in sources for part in cut(source)):
                jobs.append((Decoding(part, shape, how.size, how.skip_bad), str(output), offset))
                offset += len(part) * math.prod(shape)
        found = run_all("write", jobs, how)
        return {first + place: problem for first, problems in found for place, problem in problems.items()}

    bad = in_one_shape(images.sources["train"], how, decode_all)
    for split, rows in images.good_rows(bad).items():
        y = images.labels[split]
        if len(rows) < len(y):
            output = folder / f"{split}_x.npy"
            np.save(output, np.load(output, mmap_mode="r")[rows])
        np.save(folder / f"{split}_y.npy", y[rows])
    return images.skipped(bad.values())


def in_one_shape(sources: Sequence[Source], how: Reading, work: Callable[[Shape], T]) -> T:
    """Call `work` with the shape of the first image, and again with three channels where a later one has colour."""
    channels, height, width = first_shape(sources, how)
    if channels == 1:
        try:
            return work((1, height, width))
        except ColourError:  # begin again
            pass
    return work((3, height, width))


def cut(source: Any) -> list[Any]:
    """A source in parts of at most SOURCE_LENGTH images."""
    count = len(source)
    return [source.take(range(k, min(k + SOURCE_LENGTH, count))) for k in range(0, count, SOURCE_LENGTH)]


def run_all(method: str, jobs: Sequence[tuple[Any, ...]], how: Reading) -> Iterator[tuple[int, Any]]:
    """Call a method of each job's `Decoding`, on all cores; yields images done before it and the result, in order."""
    done, total = 0, sum(len(job[0].source) for job in jobs)
    with contextlib.closing(Decoders(processes=total >= WORTH_PROCESSES)) as decoders:
        for job, answer in [(job, decoders.submit(method, *job)) for job in jobs]:
            yield done, answer.result()
            done += len(job[0].source)
            how.progress(done, total)


def all_broken(sources: Sequence[Source]) -> InputError:
    return InputError(f"expected images that can be read in {sources[0].root}, but all are broken")


def first_shape(sources: Sequence[Source], how: Reading) -> Shape:
    """(C, H, W) of the first image, which has one channel where it is grey."""
    for origin, data in (image for source in sources for image in source.images()):
        try:
            try:
                channels, height, width = decode(data, origin, grey=True).shape
            except ColourError:
                channels, height, width = decode(data, origin).shape
            return channels, how.size or height, how.size or width
        except InputError:
            if not how.skip_bad:
                raise
    raise all_broken(sources)
