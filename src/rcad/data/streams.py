"""Images that stay on disk: decoded when they are wanted, ahead of their use, in whatever order they are asked for.

For data sets that do not fit into memory once decoded. Every image is decoded once beforehand, in a survey that the
cache keeps: it finds broken images and differing sizes before a run starts, and has what exact channel statistics of
any split take. Image files are read where they lie. Parquet shards are unpacked into the cache, still encoded: in a
shuffled order every image would otherwise cost a whole row group. What is decoded ahead is bounded by `AHEAD` batches.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rcad.data.cache import DECODING, Described, cached, check_room, fingerprint, hashed, kept
from rcad.data.dataset import Dataset, Split
from rcad.data.decoders import WORTH_PROCESSES, Decoders, Pixels, standing
from rcad.data.decoding import (
    SOURCE_LENGTH,
    Decoding,
    FileParts,
    ImageFiles,
    ImageSet,
    Part,
    Reading,
    Shape,
    SizesDifferError,
    Source,
    content,
    decode_splits,
    differing,
    first_image,
    kept_of,
    skipped,
)
from rcad.data.images import decode, is_grey
from rcad.errors import InputError, memory

AHEAD = 3
"""Batches that are decoded before they are asked for."""
CHUNK = 16
"""Images that a thread, or its process, takes at a time."""
Index = npt.NDArray[np.int64]
Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Packed:
    """Images one after the other in a file, each with a sum; `firsts` are the first ones of the shards `origins`."""

    path: Path
    ends: Index
    sums: Index
    origins: npt.NDArray[np.str_]
    firsts: Index

    def __len__(self) -> int:
        return len(self.ends)

    def take(self, rows: Sequence[int]) -> FileParts:
        """These of them."""
        return FileParts(str(self.path), [self._part(row) for row in rows])

    def _part(self, row: int) -> Part:
        shard = int(np.searchsorted(self.firsts, row, side="right")) - 1
        origin = f"{self.origins[shard]} row {row - int(self.firsts[shard])}"
        start = int(self.ends[row - 1]) if row else 0
        return Part(origin, start, int(self.ends[row]), int(self.sums[row]))


class Survey(NamedTuple):
    """What one look at every image found.

    Attributes:
        shape: (C, H, W) of all; C is 1 where all are grey.
        sums, squares: of the pixels of each image by channel, int64 (N, C).
        bad: which images cannot be decoded, and why.
    """

    shape: Shape
    sums: Index
    squares: Index
    bad: dict[int, str]


class Seen(NamedTuple):
    """One image: sums and sums of squares by channel."""

    origin: str
    shape: tuple[int, ...]
    grey: bool
    moments: Index


@dataclass(frozen=True)
class Looking:
    """Look at every image of a source."""

    source: Source
    size: int | None
    skip_bad: bool

    @property
    def root(self) -> str:
        return self.source.root

    def run(self) -> list[Seen | str]:
        """What each is, or what is wrong with it; without `skip_bad` that is raised."""
        found: list[Seen | str] = []
        for origin, data in self.source.images():
            try:
                pixels = decode(content(data), origin, self.size)
                exact = pixels.astype(np.int64)
                moments = np.stack([exact.sum((1, 2)), (exact * exact).sum((1, 2))])
                found.append(Seen(origin, pixels.shape, is_grey(content(data), origin), moments))
            except InputError as error:
                if not self.skip_bad:
                    raise
                found.append(str(error))
        return found


def _empty(shape: tuple[int, ...]) -> Pixels:
    return np.empty(shape, np.uint8)


@dataclass(frozen=True, eq=False)
class Stream:
    """Images (N, C, H, W), uint8, of which none is in memory.

    Attributes:
        rows: which of the encoded images these are, in order. A share of them is a slice of the stream.
        identity: changes when the files do.
    """

    encoded: ImageFiles | Packed
    survey: Survey
    size: int | None
    identity: str
    rows: Index

    ndim = 4
    dtype = np.dtype(np.uint8)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (len(self.rows), *self.survey.shape)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Index | slice) -> Stream:
        """These of the images; nothing is decoded."""
        return replace(self, rows=self.rows[index])

    def copy(self) -> Pixels:
        """All of them in memory."""
        return next(self.batches([np.arange(len(self))]))

    def moments(self) -> tuple[Index, Index]:
        """The sums of the pixels and of their squares by channel."""
        return self.survey.sums[self.rows].sum(0), self.survey.squares[self.rows].sum(0)

    def batches(self, wanted: Iterable[Index], empty: Callable[[tuple[int, ...]], Pixels] = _empty) -> Iterator[Pixels]:
        """The images with these indices, batch by batch, decoded while those before are in use.

        Args:
            empty: makes the array that a batch is decoded into; asked once a batch, in the order of the batches.
        """
        decoders = standing(processes=len(self) >= WORTH_PROCESSES)
        coming: deque[tuple[Pixels, list[Future[None]]]] = deque()
        try:
            for index in wanted:
                rows = self.rows[index].tolist()
                pixels = empty((len(rows), *self.survey.shape))
                coming.append((pixels, []))
                for k in range(0, len(rows), CHUNK):
                    chunk = self.encoded.take(rows[k : k + CHUNK])
                    job = Decoding(chunk, self.survey.shape, self.size, known=True)
                    coming[-1][1].append(decoders.submit_pixels(job, pixels[k : k + CHUNK]))
                if len(coming) > AHEAD:
                    yield _done(coming.popleft())
            while coming:
                yield _done(coming.popleft())
        finally:
            for future in (future for _, futures in coming for future in futures):
                future.cancel()


def _done(batch: tuple[Pixels, list[Future[None]]]) -> Pixels:
    for job in batch[1]:
        job.result()
    return batch[0]


def read_images(
    kind: str,
    files: Sequence[Path],
    root: Path,
    opened: Callable[[], ImageSet],
    how: Reading,
    **options: Any,
) -> Dataset:
    """The data set of images that were found: decoded into the cache, or a stream.

    Args:
        kind, options: of the reader, parts of the cache's key.
        files: all that the images and labels depend on, below `root`.
        opened: finds the images; not asked where they are in the cache.
    """
    if how.stream or (how.stream is None and _too_large(opened(), how)):
        return _streamed(files, root, opened(), how)

    def build(folder: Path) -> Described:
        found = opened()
        omissions = (*found.omissions, *decode_splits(folder, found, how))
        return Described(found.classes, "; ".join([found.note, *omissions]), omissions)

    options |= {"size": how.size} | ({"skip_bad": True} if how.skip_bad else {})
    return cached(kind, files, root, options, build, how.cache_dir)


def _too_large(found: ImageSet, how: Reading) -> bool:
    grey, height, width = (False, how.size, how.size) if how.size else first_image(found.sources["train"], how)
    images = sum(map(len, found.labels.values()))
    return images * height * width * (1 if grey else 3) > memory() / 2


def _streamed(files: Sequence[Path], root: Path, found: ImageSet, how: Reading) -> Dataset:
    identity = fingerprint(files, root, how.cache_dir)
    encoded = _encoded([part for parts in found.sources.values() for part in parts], files, how.cache_dir, identity)
    survey = _surveyed(encoded, identity, how)
    if survey.bad and not how.skip_bad:
        raise InputError(next(iter(survey.bad.values())))
    splits, first = {}, 0
    for split, y in found.labels.items():
        good = kept_of(len(y), [place - first for place in survey.bad], found.sources[split])
        splits[split] = Split(Stream(encoded, survey, how.size, identity, good + first), y[good])
        first += len(y)
    omissions = (*found.omissions, *skipped(list(survey.bad.values()), found))
    note = "; ".join([found.note, *omissions, "streamed from disk"])
    train, test = splits["train"], splits.get("test")
    return Dataset("", "classification", train, test, found.classes, note=note, omissions=omissions)


def look(encoded: ImageFiles | Packed, how: Reading) -> Survey:
    """Decode every image once."""
    count = len(encoded)
    moments = np.zeros((2, count, 3), np.int64)
    grey, shape = True, None
    bad: dict[int, str] = {}
    chunks = [range(first, min(first + SOURCE_LENGTH, count)) for first in range(0, count, SOURCE_LENGTH)]
    with closing(Decoders(processes=count >= WORTH_PROCESSES)) as decoders:
        answers = [decoders.submit(Looking(encoded.take(chunk), how.size, how.skip_bad)) for chunk in chunks]
        for chunk, answer in zip(chunks, answers, strict=True):
            for number, seen in zip(chunk, answer.result(), strict=True):
                if isinstance(seen, str):
                    bad[number] = seen
                    continue
                shape = shape or seen.shape
                if seen.shape != shape:
                    raise SizesDifferError(differing(shape, seen.shape, seen.origin))
                grey = grey and seen.grey
                moments[:, number] = seen.moments
            how.told(chunk.stop, count)
    channels = 1 if grey else 3
    _, height, width = shape or (3, 0, 0)
    sums, squares = moments[..., :channels]
    return Survey((channels, height, width), sums, squares, bad)


def _encoded(
    sources: Sequence[Source], files: Sequence[Path], cache_dir: Path | None, identity: str
) -> ImageFiles | Packed:
    """Image files as they lie; what else holds images is unpacked once."""
    if all(isinstance(one, ImageFiles) for one in sources):
        names = [name for one in sources if isinstance(one, ImageFiles) for name in one.names]
        return ImageFiles(sources[0].root, names)

    def pack(folder: Path) -> Arrays:
        check_room(folder, sum(file.stat().st_size for file in files), "unpack the shards")
        ends: list[int] = []
        sums: list[int] = []
        shards: dict[str, int] = {}
        with (folder / "images.bin").open("wb") as out:
            for source in sources:
                shards.setdefault(source.root, len(ends))
                for _, found in source.images():
                    data = b"" if isinstance(found, InputError) else found
                    out.write(data)
                    ends.append(out.tell())
                    sums.append(zlib.crc32(data))
        origins, firsts = np.asarray(list(shards), np.str_), np.asarray(list(shards.values()), np.int64)
        return {"ends": np.asarray(ends), "sums": np.asarray(sums), "origins": origins, "firsts": firsts}

    def whole(folder: Path, found: Arrays) -> bool:
        return (folder / "images.bin").stat().st_size == max(found["ends"][-1:], default=0)

    folder, found = _kept(cache_dir, f"streams/{hashed('packed', identity)[:32]}", pack, whole)
    return Packed(folder / "images.bin", **found)


def _surveyed(encoded: ImageFiles | Packed, identity: str, how: Reading) -> Survey:
    """The survey that is in the cache, or a new one."""

    def survey(folder: Path) -> Arrays:
        found = look(encoded, how)
        places, reasons = np.asarray(list(found.bad), np.int64), np.asarray(list(found.bad.values()), np.str_)
        shape = np.asarray(found.shape)
        return {"shape": shape, "sums": found.sums, "squares": found.squares, "places": places, "reasons": reasons}

    name = hashed("survey", identity, str(DECODING), str(how.size))[:32]
    _, found = _kept(how.cache_dir, f"streams/{name}", survey, lambda _, found: "reasons" in found)
    channels, height, width = found["shape"].tolist()
    bad = dict(zip(found["places"].tolist(), found["reasons"].tolist(), strict=True))
    return Survey((channels, height, width), found["sums"], found["squares"], bad)


def _kept(
    cache_dir: Path | None, name: str, make: Callable[[Path], Arrays], whole: Callable[[Path, Arrays], bool]
) -> tuple[Path, Arrays]:
    """A folder of the cache and the arrays in it; made where it is missing or damaged."""

    def opened(folder: Path) -> Arrays | None:
        try:
            with np.load(folder / "index.npz", allow_pickle=False) as file:  # which keeps a checksum of each
                arrays = {name: file[name] for name in file.files}
            return arrays if whole(folder, arrays) else None
        except Exception:  # a damaged header ends in nearly everything
            return None

    def build(folder: Path) -> None:
        arrays: Any = make(folder)
        np.savez(folder / "index.npz", **arrays)

    folder = kept(cache_dir, name, build, opened)
    return folder, opened(folder) or {}
