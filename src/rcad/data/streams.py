"""Images that stay on disk: decoded when they are wanted, ahead of their use, in whatever order they are asked for.

For data sets that do not fit into memory once decoded. Every image is decoded once beforehand, in a survey that the
cache keeps: it finds broken images and differing sizes before a run starts, and has what exact channel statistics of
any split take. Image files are read where they lie. Parquet shards are unpacked into the cache, still encoded: in a
shuffled order every image would otherwise cost a whole row group.

Large sets are decoded by processes (`decoders.py`), each fed by a thread; small ones by the threads themselves. What
they hold is bounded by `AHEAD` batches.
"""

from __future__ import annotations

import shutil
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from rcad.data.cache import DECODING, REMEDY, fingerprint, hashed, kept
from rcad.data.dataset import Dataset, Progress, Split
from rcad.data.decoders import WORTH_PROCESSES, Chunk, Pixels, Spot, fill_elsewhere, share_of_cores
from rcad.data.decoding import ImageFiles, SizesDifferError, Source, differing, first_image, skipped
from rcad.data.images import decode, is_grey
from rcad.errors import InputError, memory

AHEAD = 3
"""Batches that are decoded before they are asked for."""
CHUNK = 16
"""Images that a thread, or its process, takes at a time."""
Index = npt.NDArray[np.int64]


class Encoded(Protocol):
    """Encoded images by number."""

    def __len__(self) -> int: ...

    def spot(self, number: int) -> Spot:
        """Where the image lies."""


@dataclass(frozen=True)
class Files:
    """Image files below a folder."""

    root: str
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def spot(self, number: int) -> Spot:
        path = str(Path(self.root, self.names[number]))
        return Spot(path, path)


@dataclass(frozen=True)
class Packed:
    """Images one after the other in a file, each with a sum; an empty one was none in its source."""

    path: Path
    ends: Index
    sums: Index
    origins: npt.NDArray[np.str_]
    firsts: Index

    def __len__(self) -> int:
        return len(self.ends)

    def spot(self, number: int) -> Spot:
        shard = int(np.searchsorted(self.firsts, number, side="right")) - 1
        origin = f"{self.origins[shard]} row {number - int(self.firsts[shard])}"
        start = int(self.ends[number - 1]) if number else 0
        return Spot(origin, str(self.path), start, int(self.ends[number]), int(self.sums[number]))


class Survey(NamedTuple):
    """What one look at every image found.

    Attributes:
        shape: (C, H, W) of all; C is 1 where all are grey.
        sums, squares: of the pixels of each image by channel, int64 (N, C).
        bad: which images cannot be decoded, and why.
    """

    shape: tuple[int, int, int]
    sums: Index
    squares: Index
    bad: dict[int, str]


def _empty(shape: tuple[int, ...]) -> Pixels:
    return np.empty(shape, np.uint8)


@dataclass(frozen=True, eq=False)
class Stream:
    """Images (N, C, H, W), uint8, of which none is in memory.

    Attributes:
        rows: which of the encoded images these are, in order. A share of them is a slice of the stream.
        identity: changes when the files do.
    """

    encoded: Encoded
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
        fill = fill_elsewhere if len(self) >= WORTH_PROCESSES else Chunk.fill
        coming: deque[tuple[Pixels, list[Future[None]]]] = deque()
        with _threads() as pool:
            for index in wanted:
                rows = self.rows[index]
                pixels = empty((len(rows), *self.survey.shape))
                parts = range(0, len(rows), CHUNK)
                jobs = [pool.submit(fill, self._chunk(rows[k : k + CHUNK]), pixels[k : k + CHUNK]) for k in parts]
                coming.append((pixels, jobs))
                if len(coming) > AHEAD:
                    yield _done(coming.popleft())
            while coming:
                yield _done(coming.popleft())

    def _chunk(self, rows: Index) -> Chunk:
        return Chunk([self.encoded.spot(row) for row in rows.tolist()], self.survey.shape, self.size)


def streamed(
    files: Sequence[Path],
    root: Path,
    sources: Mapping[str, Sequence[Source]],
    labels: Mapping[str, npt.NDArray[np.int64]],
    classes: tuple[str, ...],
    note: str,
    *,
    size: int | None,
    skip_bad: bool,
    cache_dir: Path | None,
    progress: Progress | None,
) -> Dataset:
    """The data set whose images are read from disk as they are needed.

    Args:
        files: all that the images and labels depend on, below `root`.
        sources: the images by split, "train" and perhaps "test", in the order of `labels`.
        skip_bad: leave out images that cannot be decoded; else they are an InputError.
    """
    identity = fingerprint(files, root, cache_dir)
    encoded = _encoded([part for parts in sources.values() for part in parts], files, cache_dir, identity)
    looked = partial(look, encoded, size, progress, skip_bad=skip_bad)
    survey = _kept(cache_dir, f"streams/{hashed('survey', identity, str(DECODING), str(size))[:32]}", looked)
    if survey.bad and not skip_bad:
        raise InputError(next(iter(survey.bad.values())))
    splits, first = {}, 0
    for split, y in labels.items():
        kept = np.setdiff1d(np.arange(len(y)), np.asarray(list(survey.bad), np.int64) - first)
        if not len(kept):
            raise InputError(f"expected images that can be read in {sources[split][0].root}, but all are broken")
        stream = Stream(encoded, survey, size, identity, kept + first)
        splits[split] = Split(stream, y[kept])
        first += len(y)
    omissions = skipped(list(survey.bad.values()), first)
    note = "; ".join([note, *omissions, "streamed from disk"])
    train, test = splits["train"], splits.get("test")
    return Dataset("", "classification", train, test, classes, note=note, omissions=omissions)


def too_large(sources: Mapping[str, Sequence[Source]], size: int | None, *, skip_bad: bool) -> bool:
    """Whether the decoded images would take more than half of the machine's memory."""
    grey, height, width = (False, size, size) if size else first_image(sources["train"], size, skip_bad)
    images = sum(len(part) for parts in sources.values() for part in parts)
    return images * height * width * (1 if grey else 3) > memory() / 2


def look(encoded: Encoded, size: int | None, progress: Progress | None, *, skip_bad: bool) -> Survey:
    """Decode every image once; without `skip_bad` the first that is broken ends it."""
    count = len(encoded)
    moments = np.zeros((2, count, 3), np.int64)
    grey = np.ones(count, bool)
    shapes: dict[int, tuple[int, ...]] = {}
    bad: dict[int, str] = {}

    def see(numbers: range) -> None:
        for number in numbers:
            try:
                spot = encoded.spot(number)
                origin, data = spot.origin, spot.read()
                pixels = decode(data, origin, size)
                grey[number] = is_grey(data, origin)
            except InputError as error:
                if not skip_bad:
                    raise
                bad[number] = str(error)
                continue
            if not shapes:
                shapes[number] = pixels.shape
            elif pixels.shape != next(iter(shapes.values())):
                raise SizesDifferError(differing(next(iter(shapes.values())), pixels.shape, origin))
            exact = pixels.astype(np.int64)
            moments[:, number] = exact.sum((1, 2)), (exact * exact).sum((1, 2))

    begin = 0
    while begin < count and not shapes:  # the size of the first is that of all
        see(range(begin, begin + 1))
        begin += 1
    chunks = [range(first, min(first + CHUNK, count)) for first in range(begin, count, CHUNK)]
    with _threads() as pool:
        for chunk, job in _in_turn(pool, see, chunks):
            job.result()
            if progress is not None:
                progress(chunk.stop, count)
    _, height, width = next(iter(shapes.values()), (3, 0, 0))
    channels = 1 if all(grey[number] for number in range(count) if number not in bad) else 3
    sums, squares = moments[..., :channels]
    return Survey((channels, height, width), sums, squares, dict(sorted(bad.items())))


def _in_turn(
    pool: ThreadPoolExecutor, work: Callable[[range], None], chunks: Sequence[range]
) -> Iterator[tuple[range, Future[None]]]:
    """The jobs in order, with no more of them waiting than keep the threads busy."""
    waiting: deque[tuple[range, Future[None]]] = deque()
    for chunk in chunks:
        waiting.append((chunk, pool.submit(work, chunk)))
        if len(waiting) > 4 * share_of_cores():
            yield waiting.popleft()
    yield from waiting


def _kept(cache_dir: Path | None, name: str, looked: Callable[[], Survey]) -> Survey:
    """The survey that is in the cache, or a new one."""
    file, names = "survey.npz", ("shape", "sums", "squares", "places", "reasons")

    def build(partial: Path) -> None:
        found = looked()
        places = np.asarray(list(found.bad), np.int64)
        reasons = np.asarray(list(found.bad.values()), np.str_)
        np.savez(
            partial / file,
            shape=np.asarray(found.shape),
            sums=found.sums,
            squares=found.squares,
            places=places,
            reasons=reasons,
        )

    entry = kept(cache_dir, name, build, lambda entry: _arrays(entry / file, *names) is not None)
    found = _arrays(entry / file, *names) or {}
    channels, height, width = found["shape"].tolist()
    bad = dict(zip(found["places"].tolist(), found["reasons"].tolist(), strict=True))
    return Survey((channels, height, width), found["sums"], found["squares"], bad)


def _arrays(file: Path, *names: str) -> dict[str, np.ndarray[Any, Any]] | None:
    """These arrays of a .npz of ours; None where it is missing or damaged, for its archive keeps a checksum of each."""
    try:
        with np.load(file, allow_pickle=False) as kept:
            return {name: kept[name] for name in names}
    except Exception:  # a damaged header ends in nearly everything
        return None


def _encoded(sources: Sequence[Source], files: Sequence[Path], cache_dir: Path | None, identity: str) -> Encoded:
    """Image files as they lie; what else holds images is unpacked once."""
    if all(isinstance(one, ImageFiles) for one in sources):
        names = [name for one in sources if isinstance(one, ImageFiles) for name in one.names]
        return Files(sources[0].root, names)

    def build(partial: Path) -> None:
        required, free = sum(file.stat().st_size for file in files), shutil.disk_usage(partial).free
        if required > free:
            raise InputError(
                f"expected {required / 1e6:,.1f} MB free to unpack the shards in {partial.parent}, "
                f"but got {free / 1e6:,.1f} MB; {REMEDY}"
            )
        ends: list[int] = []
        sums: list[int] = []
        shards: dict[str, int] = {}
        with (partial / "images.bin").open("wb") as out:
            for source in sources:
                shards.setdefault(source.root, len(ends))
                for _, found in source.images():
                    data = b"" if isinstance(found, InputError) else found
                    out.write(data)
                    ends.append(out.tell())
                    sums.append(zlib.crc32(data))
        np.savez(
            partial / "index.npz",
            ends=np.asarray(ends, np.int64),
            sums=np.asarray(sums, np.int64),
            origins=np.asarray(list(shards), np.str_),
            firsts=np.asarray(list(shards.values()), np.int64),
        )

    def opened(whole: Path) -> dict[str, np.ndarray[Any, Any]] | None:
        index, images = _arrays(whole / "index.npz", "ends", "sums", "origins", "firsts"), whole / "images.bin"
        fits = index is not None and images.is_file() and images.stat().st_size == max(index["ends"][-1:], default=0)
        return index if fits else None

    entry = kept(cache_dir, f"streams/{hashed('packed', identity)[:32]}", build, opened)
    index = opened(entry) or {}
    return Packed(entry / "images.bin", index["ends"], index["sums"], index["origins"], index["firsts"])


@contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """A pool that drops what it has not begun when it is left early."""
    pool = ThreadPoolExecutor(share_of_cores(), "rcad-decoding")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _done(batch: tuple[Pixels, list[Future[None]]]) -> Pixels:
    for job in batch[1]:
        job.result()
    return batch[0]
