"""Images that stay on disk: decoded when they are wanted, ahead of their use, in whatever order they are asked for.

Every image is decoded once beforehand, in a survey that the cache keeps: it finds broken images and differing sizes
before a run starts, and has what exact channel statistics of any split take. Parquet shards are unpacked into the
cache, still encoded: in a shuffled order every image would otherwise cost a whole row group.
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.data import decoding
from rcad.data.cache import DECODING, cache_root, cached, cached_arrays, fingerprint, hashed
from rcad.data.dataset import Dataset, Split, lone_examples
from rcad.data.decoders import WORTH_PROCESSES, Pixels, shared_decoders
from rcad.data.decoding import Decoding, ImageFiles, ImageSet, Packed, Reading, Shape, Source
from rcad.data.files import check_room
from rcad.errors import InputError, memory

AHEAD = 3  # batches that are decoded before they are asked for
CHUNK = 16  # images that a thread, or its process, takes at a time
Index = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Stream:
    """Images (N, C, H, W), uint8, of which none is in memory: `rows` of the encoded ones, in order.

    `image_moments` are the sums of the pixels of every encoded image by channel, and of their squares, int64 (2, N, C).
    `identity` changes when the files do.
    """

    encoded: ImageFiles | Packed
    image_shape: Shape
    image_moments: Index
    size: int | None
    identity: str
    rows: Index

    ndim = 4
    dtype = np.dtype(np.uint8)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (len(self.rows), *self.image_shape)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Index | slice) -> Stream:
        """The images at these places, as a stream; nothing is decoded."""
        return replace(self, rows=self.rows[index])

    def copy(self) -> Pixels:
        """All images as an array in memory."""
        return next(self.batches([np.arange(len(self))]))

    def moments(self) -> tuple[Index, Index]:
        """The sums of the pixels and of their squares by channel."""
        sums, squares = self.image_moments[:, self.rows].sum(1)
        return sums, squares

    def batches(
        self, indices: Iterable[Index], empty: Callable[[tuple[int, ...]], Pixels] | None = None
    ) -> Iterator[Pixels]:
        """The images with these indices, batch by batch, decoded ahead into arrays that `empty` makes, in order."""
        decoders = shared_decoders(processes=len(self) >= WORTH_PROCESSES)
        coming: deque[tuple[Pixels, list[Future[None]]]] = deque()

        def done(pixels: Pixels, futures: list[Future[None]]) -> Pixels:
            for future in futures:
                future.result()
            return pixels

        try:
            for index in indices:
                rows = self.rows[index].tolist()
                shape = (len(rows), *self.image_shape)
                pixels = np.empty(shape, np.uint8) if empty is None else empty(shape)
                coming.append((pixels, []))
                for k in range(0, len(rows), CHUNK):
                    chunk = self.encoded.take(rows[k : k + CHUNK])
                    job = Decoding(chunk, self.image_shape, self.size, surveyed=True)
                    coming[-1][1].append(decoders.submit_pixels(job, pixels[k : k + CHUNK]))
                if len(coming) > AHEAD:
                    yield done(*coming.popleft())
            while coming:
                yield done(*coming.popleft())
        finally:
            for future in (future for _, futures in coming for future in futures):
                future.cancel()


def read_images(
    kind: str, files: Sequence[Path], root: Path, find_images: Callable[[], ImageSet], how: Reading, **options: Any
) -> Dataset:
    """The data set of images that were found: decoded into the cache, or a stream.

    `kind`, what the `files` below `root` hold and `options` are its key; cached, it needs no `find_images`.
    """
    stream = how.stream
    if stream is None:
        images = find_images()
        shape = (3, how.size, how.size) if how.size else decoding.first_shape(images.sources["train"], how)
        stream = sum(map(len, images.labels.values())) * math.prod(shape) > memory() / 2

    def build(folder: Path) -> dict[str, Any]:
        images = find_images()
        omissions = (*images.omissions, *decoding.decode_splits(folder, images, how))
        return {"classes": images.classes, "note": "; ".join([images.note, *omissions]), "omissions": omissions}

    options |= {"size": how.size} | ({"skip_bad": True} if how.skip_bad else {})
    if stream:
        dataset = _streamed(files, root, find_images(), how)
    else:
        dataset = cached(kind, files, root, options, build, how.cache_dir)
    labels = np.concatenate([part.y for part in (dataset.train, dataset.test) if part is not None])
    lone = lone_examples(labels, dataset.classes, "image") if dataset.classes else ()  # regression has none
    return replace(dataset, note="; ".join([dataset.note, *lone]), omissions=(*dataset.omissions, *lone))


def _streamed(files: Sequence[Path], root: Path, images: ImageSet, how: Reading) -> Dataset:
    identity = fingerprint(files, root, how.cache_dir)
    encoded = _encoded([part for parts in images.sources.values() for part in parts], files, how.cache_dir, identity)

    def survey(folder: Path) -> dict[str, Any]:
        shape, moments, bad = look(encoded, how)
        np.save(folder / "moments.npy", moments)
        return {"shape": shape, "bad": list(bad.items())}

    key = hashed("survey", identity, str(DECODING), str(how.size), str(len(encoded)))
    described, arrays = cached_arrays(how.cache_dir, f"streams/{key[:32]}", survey)
    bad: dict[int, str] = dict(described["bad"])
    if bad and not how.skip_bad:
        raise InputError(next(iter(bad.values())))
    channels, height, width = described["shape"]
    splits, first = {}, 0
    for split, rows in images.good_rows(bad).items():
        y, shape = images.labels[split], (channels, height, width)
        splits[split] = Split(Stream(encoded, shape, arrays["moments"], how.size, identity, rows + first), y[rows])
        first += len(y)
    omissions = (*images.omissions, *images.skipped(bad.values()))
    note = "; ".join([images.note, *omissions, "streamed from disk"])
    train, test = splits["train"], splits.get("test")
    return Dataset("", "classification", train, test, images.classes, note=note, omissions=omissions)


def look(encoded: ImageFiles | Packed, how: Reading) -> tuple[Shape, Index, dict[int, str]]:
    """Decode every image once: the shape (C, H, W) of all, moments as `Stream` has them, what is wrong with some."""
    parts = decoding.cut(encoded)

    def survey(shape: Shape) -> tuple[Shape, Index, dict[int, str]]:
        jobs = [(Decoding(part, shape, how.size, how.skip_bad),) for part in parts]
        moments, bad = np.zeros((2, len(encoded), shape[0]), np.int64), {}
        for first, answers in decoding.run_all("measure", jobs, how):
            for place, image in enumerate(answers, first):
                if isinstance(image, str):
                    bad[place] = image
                else:
                    moments[:, place] = image
        return shape, moments, bad

    return decoding.in_one_shape(parts, how, survey)


def _encoded(
    sources: Sequence[Source], files: Sequence[Path], cache_dir: Path | None, identity: str
) -> ImageFiles | Packed:
    """Image files as they lie; what else holds images is unpacked once."""
    files_alone = [source for source in sources if isinstance(source, ImageFiles)]
    if len(files_alone) == len(sources):
        return ImageFiles(sources[0].root, [name for source in files_alone for name in source.names])

    def pack(folder: Path) -> dict[str, Any]:
        check_room(folder, sum(file.stat().st_size for file in files), "unpack the shards")
        parts: list[tuple[int, ...]] = []
        firsts: dict[str, int] = {}
        with (folder / "images.bin").open("wb") as out:
            for source in sources:
                first = firsts.setdefault(source.root, len(parts))
                for _, content in source.images():
                    data, start = b"" if isinstance(content, InputError) else content, out.tell()
                    out.write(data)
                    parts.append((start, out.tell(), zlib.crc32(data), len(firsts) - 1, len(parts) - first))
        np.save(folder / "parts.npy", np.asarray(parts))
        return {"shards": list(firsts)}

    name = f"streams/{hashed('packed', identity)[:32]}"
    described, arrays = cached_arrays(cache_dir, name, pack)
    return Packed(str(cache_root(cache_dir) / name / "images.bin"), tuple(described["shards"]), arrays["parts"])
