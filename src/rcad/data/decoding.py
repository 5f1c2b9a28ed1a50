"""Many encoded images, wherever they lie, to one array on disk, on all cores.

Whoever decodes writes with write(), not through a memory map: a full disk is then an error and not a SIGBUS.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from rcad.data.cache import allocate, clearing_advice
from rcad.data.dataset import Progress, no_progress
from rcad.data.decoders import WORTH_PROCESSES, Decoders, Pixels
from rcad.data.files import intact, read_bytes
from rcad.data.images import ColourError, decode, is_grey
from rcad.errors import InputError, need, whole, without_advice

SOURCE_LENGTH = 512
"""Images that a process takes at a time: few enough to share the work."""
LARGEST_SIZE = 4096
_BUFFER = 1 << 20
T = TypeVar("T")
Encoded = tuple[str, bytes | InputError]
"""How an error names an image, and its bytes or why there are none."""
Shape = tuple[int, int, int]


class SizesDifferError(InputError):
    """Images of one set differ in size, and no `size` to resize them to was given."""


@dataclass(frozen=True)
class ImageFiles:
    """Image files below `root`."""

    root: str
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: Sequence[int]) -> ImageFiles:
        """The images at these rows."""
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
        """The images at these rows."""
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
class FileParts:
    """Images one after the other in a file of the cache; where the source had no bytes the image is empty.

    Args:
        names: how an error names each image.
        starts, ends: where each lies in the file.
        sums: the CRC-32 of each.
    """

    root: str
    names: Sequence[str]
    starts: Sequence[int]
    ends: Sequence[int]
    sums: Sequence[int]

    def __len__(self) -> int:
        return len(self.names)

    def images(self) -> Iterator[Encoded]:
        with open(self.root, "rb") as file:
            for name, start, end, crc in zip(self.names, self.starts, self.ends, self.sums, strict=True):
                file.seek(start)
                data = file.read(end - start)
                if zlib.crc32(data) != crc:
                    changed = f"expected {name} as it was unpacked, but its bytes in {self.root} have changed"
                    yield name, InputError(f"{changed}; {clearing_advice(Path(self.root).parent)}")
                else:
                    yield name, data or no_bytes(name)


Source = ImageFiles | ParquetRows | FileParts


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
        cache_dir: where decoded images are kept.
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
    """Images as they were found, not yet decoded.

    Attributes:
        sources: the images by split, "train" and perhaps "test".
        labels: of each split, one for each image.
        classes: names in label order.
        note: a line for people.
        omissions: what was left out so far, a sentence each.
    """

    sources: Mapping[str, Sequence[Source]]
    labels: Mapping[str, npt.NDArray[np.int64]]
    classes: tuple[str, ...]
    note: str
    omissions: tuple[str, ...] = ()

    def good_rows(self, bad: Iterable[int]) -> dict[str, npt.NDArray[np.int64]]:
        """By split the rows of the images that can be read; an InputError where there is none.

        Args:
            bad: the places of broken images, counted over all splits.
        """
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
    """Decode a source to images of one shape (C, H, W).

    Args:
        skip_bad: leave out images that cannot be decoded, else the first is an InputError.
        surveyed: whether all images had this shape when the run began.
        output: a file, or an open one, where the pixels go from `offset` on.
    """

    source: Source
    shape: Shape
    size: int | None
    skip_bad: bool = False
    surveyed: bool = False
    output: str | int = ""
    offset: int = 0

    @property
    def root(self) -> str:
        return self.source.root

    def __len__(self) -> int:
        return len(self.source)

    def into(self, file: int) -> Decoding:
        """The same, with its pixels in an open file."""
        return replace(self, output=file)

    def run(self) -> dict[int, str]:
        """Write the pixels, zeros for bad images; returns what is wrong with those, by place."""
        bad = {}
        with open(self.output, "r+b", _BUFFER, closefd=isinstance(self.output, str)) as out:
            out.seek(self.offset)
            for place, image in enumerate(self.images()):
                if isinstance(image, str):
                    bad[place] = image
                    image = np.zeros(self.shape, np.uint8)
                out.write(np.ascontiguousarray(image).data)
        return bad

    def fill(self, out: Pixels) -> None:
        """Decode into an array (N, C, H, W)."""
        for place, image in enumerate(self.images()):
            out[place] = image

    def images(self) -> Iterator[Pixels | str]:
        """The pixels of each image, or with `skip_bad` what is wrong with it."""
        for origin, data in self.source.images():
            try:
                image = decode(content(data), origin, self.size, grey=self.shape[0] == 1)
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
                raise SizesDifferError(differing(self.shape, image.shape, origin))
            yield image


def content(data: bytes | InputError) -> bytes:
    """The bytes; raises the error that stands in their place."""
    if isinstance(data, InputError):
        raise data
    return data


def decode_splits(folder: Path, images: ImageSet, how: Reading) -> tuple[str, ...]:
    """Write `<split>_x.npy`, uint8 (N, C, H, W), and `<split>_y.npy`: C is 1 where every image is grey, else 3.

    Returns:
        A sentence on the images left out, if any.
    """
    bad = in_one_shape(images.sources["train"], how, lambda shape: _decode_all(folder, images, shape, how))
    for split, rows in images.good_rows(bad).items():
        y = images.labels[split]
        if len(rows) < len(y):
            _keep(folder / f"{split}_x.npy", rows)
        np.save(folder / f"{split}_y.npy", y[rows])
    return images.skipped(bad.values())


def in_one_shape(sources: Sequence[Source], how: Reading, work: Callable[[Shape], T]) -> T:
    """Call `work` with the shape of the first image, and again with three channels where a later one has colour."""
    grey, height, width = first_image(sources, how)
    if grey:
        try:
            return work((1, height, width))
        except ColourError:  # begin again
            pass
    return work((3, height, width))


def _decode_all(folder: Path, images: ImageSet, shape: Shape, how: Reading) -> dict[int, str]:
    """Decode every source; returns what is wrong with bad images, by their place over all splits."""
    jobs = []
    for split, sources in images.sources.items():
        output = folder / f"{split}_x.npy"
        offset = allocate(output, (sum(map(len, sources)), *shape))
        for part in (part for source in sources for part in cut(source)):
            jobs.append(Decoding(part, shape, how.size, how.skip_bad, output=str(output), offset=offset))
            offset += len(part) * math.prod(shape)
    bad: dict[int, str] = {}
    for first, problems in run_all(jobs, how):
        bad |= {first + place: problem for place, problem in problems.items()}
    return bad


def cut(source: Any) -> list[Any]:
    """A source in parts of at most SOURCE_LENGTH images."""
    count = len(source)
    return [source.take(range(k, min(k + SOURCE_LENGTH, count))) for k in range(0, count, SOURCE_LENGTH)]


def run_all(jobs: Sequence[Decoding], how: Reading) -> Iterator[tuple[int, Any]]:
    """Run jobs on all cores; yields (number of images before the job, its result) in their order."""
    done, total = 0, sum(map(len, jobs))
    with closing(Decoders(processes=total >= WORTH_PROCESSES)) as decoders:
        for job, answer in [(job, decoders.submit(job)) for job in jobs]:
            yield done, answer.result()
            done += len(job)
            how.progress(done, total)


def all_broken(sources: Sequence[Source]) -> InputError:
    return InputError(f"expected images that can be read in {sources[0].root}, but all are broken")


def first_image(sources: Sequence[Source], how: Reading) -> tuple[bool, int, int]:
    """Whether the first image is grey, and its height and width."""
    for origin, data in (image for source in sources for image in source.images()):
        try:
            pixels = decode(content(data), origin)
            return is_grey(content(data), origin), how.size or pixels.shape[1], how.size or pixels.shape[2]
        except InputError:
            if not how.skip_bad:
                raise
    raise all_broken(sources)


def _keep(path: Path, rows: npt.NDArray[np.int64]) -> None:
    """Rewrite an array of images with these rows only."""
    images = np.load(path, mmap_mode="r")
    partial = path.with_suffix(".kept")
    offset = allocate(partial, (len(rows), *images.shape[1:]))
    with partial.open("r+b") as out:
        out.seek(offset)
        for start in range(0, len(rows), SOURCE_LENGTH):
            out.write(images[rows[start : start + SOURCE_LENGTH]].data)
    os.replace(partial, path)


def differing(expected: tuple[int, ...], got: tuple[int, ...], origin: str) -> str:
    """The message about an image that differs in size from the first."""
    first, other = (f"{shape[2]}x{shape[1]}" for shape in (expected, got))
    return (
        f"expected every image to be {first} like the first, but got {other} in {origin}; "
        f"pass size= (--size or --set data.size=), e.g. {min(*expected[1:], *got[1:])}, to resize and crop them"
    )
