"""Many encoded images, wherever they lie, to one array on disk, on all cores.

Workers are plain subprocesses, not a multiprocessing pool: forking a process that has torch's and a progress bar's
threads can deadlock, and spawning re-imports the caller's script, which fails without a main guard. They write with
write(), not through a memory map: a full disk is then an error and not a SIGBUS.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import warnings
import zipfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.data.archives import readable
from rcad.data.cache import allocate
from rcad.data.dataset import Progress
from rcad.data.files import read_bytes, reason
from rcad.data.images import ColourError, decode, is_grey
from rcad.errors import InputError, cores, need

SOURCE_LENGTH = 2048
"""Images in a source at most: short enough to share among processes."""
# Below this many images, starting processes costs more than it saves.
_WORTH_WORKERS = 1000
_BLOCK_BYTES = 1 << 20
_WORKER = "from rcad.data.decoding import work; work()"


Encoded = tuple[str, bytes | InputError]
"""How an error names an image, and its bytes or why there are none."""


class SizesDifferError(InputError):
    """Images of one set that are not of one size, where no size to bring them to was given."""


@dataclass(frozen=True)
class _Named:
    root: str
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)


class ImageFiles(_Named):
    """Image files below `root`."""

    def images(self) -> Iterator[Encoded]:
        for name in self.names:
            path = Path(self.root, name)
            yield str(path), _tried(partial(read_bytes, path))


class ZipMembers(_Named):
    """Members of a zip archive."""

    def images(self) -> Iterator[Encoded]:
        with readable(Path(self.root)), zipfile.ZipFile(self.root) as archive:
            for name in self.names:
                yield f"{self.root}:{name}", _tried(partial(_member, archive, name))


@dataclass(frozen=True)
class ParquetRows:
    """Rows start..stop of one row group; `first` is the row group's first row in the shard."""

    root: str
    column: str
    group: int
    first: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def images(self) -> Iterator[Encoded]:
        parquet = need("pyarrow.parquet", "pyarrow")
        try:
            # One thread: every core already has its own process.
            table = parquet.ParquetFile(self.root).read_row_group(self.group, [self.column], use_threads=False)
            column = table.column(0).slice(self.start, len(self))
            chunks = [c.field("bytes") if hasattr(c, "field") else c for c in column.chunks]
            encoded = [value for chunk in chunks for value in chunk.to_pylist()]
        except Exception as error:  # Arrow has no common base for what a damaged file raises
            raise InputError(
                f"expected {self.root} to be a whole Parquet file, "
                f"but row group {self.group} cannot be read ({reason(error)}); fetch it again"
            ) from None
        for row, data in enumerate(encoded, self.first + self.start):
            none = f"expected image bytes in {self.root} row {row}, but got none; store the bytes, not only the path"
            yield f"{self.root} row {row}", data or InputError(none)


Source = ImageFiles | ZipMembers | ParquetRows


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    with readable(Path(archive.filename or "")):
        return archive.read(name)


def _tried(read: Callable[[], bytes]) -> bytes | InputError:
    try:
        return read()
    except InputError as error:
        return error


@dataclass(frozen=True)
class Job:
    """Decode `source` into `<split>_x.npy` from image `first` on; every image has `shape` (C, H, W)."""

    source: Source
    output: str
    split: str
    first: int
    offset: int
    shape: tuple[int, int, int]
    size: int | None
    skip_bad: bool


@dataclass
class Block:
    """So many images of a split are decoded, but for the bad ones: their places in the split, and what is wrong."""

    split: str
    count: int = 0
    bad: list[tuple[int, str]] = field(default_factory=list)


def in_parts(kind: type[ImageFiles] | type[ZipMembers], root: Path, names: Sequence[str]) -> list[Source]:
    """Names below a folder or in a zip, as sources of at most SOURCE_LENGTH."""
    parts = (tuple(names[k : k + SOURCE_LENGTH]) for k in range(0, len(names), SOURCE_LENGTH))
    return [kind(str(root), part) for part in parts]


def decode_splits(
    folder: Path,
    splits: Mapping[str, Sequence[Source]],
    labels: Mapping[str, npt.NDArray[np.int64]],
    size: int | None,
    progress: Progress | None = None,
    workers: int | None = None,
    *,
    skip_bad: bool = False,
) -> tuple[str, ...]:
    """Write `<split>_x.npy`, uint8 (N, C, H, W), and `<split>_y.npy`: C is 1 where every image is grey, else 3.

    Args:
        splits: the images by split name; the first image sets H and W unless `size` does.
        labels: of each split, one for each image.
        progress: called in this thread with (images done, images in all).
        workers: processes; by default one per core this process may use, or none for a small set.
        skip_bad: leave out images that cannot be decoded.

    Returns:
        A sentence on the images left out, if any.
    """
    grey, height, width = first_image(next(iter(splits.values())), size, skip_bad)
    bad: dict[str, dict[int, str]] = {}
    for channels in (1, 3) if grey else (3,):
        jobs = _jobs(folder, splits, (channels, height, width), size, skip_bad)
        try:
            bad = _decode_all(jobs, progress, workers)
        except ColourError:  # not all are grey: begin again
            continue
        break
    total = sum(map(len, labels.values()))
    for split, y in labels.items():
        kept = np.setdiff1d(np.arange(len(y)), list(bad[split]))
        if not len(kept):
            raise InputError(f"expected images that can be read in {splits[split][0].root}, but all are broken")
        if len(kept) < len(y):
            _keep(folder / f"{split}_x.npy", kept)
        np.save(folder / f"{split}_y.npy", y[kept])
    return skipped([problem for problems in bad.values() for problem in problems.values()], total)


def skipped(problems: Sequence[str], total: int) -> tuple[str, ...]:
    """A sentence on the images left out, if any: how many, and what is wrong with one; what to do was done."""
    return (f"{len(problems)} of {total} images skipped, e.g.: {without_advice(problems[0])}",) if problems else ()


def without_advice(problem: str) -> str:
    """A refusal, "expected ..., but got ...; what to do", without what to do."""
    return problem.rpartition("; ")[0] or problem


def first_image(sources: Sequence[Source], size: int | None, skip_bad: bool) -> tuple[bool, int, int]:
    """Whether the first image is grey, and its height and width."""
    for origin, data in (image for source in sources for image in source.images()):
        try:
            pixels = decode(_bytes(data), origin)
            return is_grey(_bytes(data), origin), size or pixels.shape[1], size or pixels.shape[2]
        except InputError:
            if not skip_bad:
                raise
    raise InputError(f"expected images that can be read in {sources[0].root}, but all are broken")


def _keep(path: Path, kept: npt.NDArray[np.int64]) -> None:
    """Rewrite an array with these of its images."""
    images = np.load(path, mmap_mode="r")
    partial = path.with_suffix(".kept")
    offset = allocate(partial, (len(kept), *images.shape[1:]))
    with partial.open("r+b") as out:
        out.seek(offset)
        for start in range(0, len(kept), SOURCE_LENGTH):
            out.write(images[kept[start : start + SOURCE_LENGTH]].data)
    os.replace(partial, path)


def _jobs(
    folder: Path, splits: Mapping[str, Sequence[Source]], shape: tuple[int, int, int], size: int | None, skip_bad: bool
) -> list[Job]:
    jobs = []
    for split, sources in splits.items():
        output, first = folder / f"{split}_x.npy", 0
        offset = allocate(output, (sum(map(len, sources)), *shape))
        for source in sources:
            place = offset + first * int(np.prod(shape))
            jobs.append(Job(source, str(output), split, first, place, shape, size, skip_bad))
            first += len(source)
    return jobs


def _decode_all(jobs: Sequence[Job], progress: Progress | None, workers: int | None) -> dict[str, dict[int, str]]:
    """Decode every job; by split, the places of the bad images and what is wrong with them."""
    bad: dict[str, dict[int, str]] = {job.split: {} for job in jobs}
    total, done = sum(len(job.source) for job in jobs), 0
    if workers is None:
        workers = cores() if total >= _WORTH_WORKERS else 1
    workers = min(workers, len(jobs))
    blocks = _in_workers(jobs, workers) if workers > 1 else (block for job in jobs for block in _decode_job(job))
    with contextlib.closing(blocks):  # ends the workers at once when `progress` raises or Ctrl-C comes
        for block in blocks:
            done += block.count
            bad[block.split] |= dict(block.bad)
            if progress is not None:
                progress(done, total)
    return {split: dict(sorted(found.items())) for split, found in bad.items()}


def _decode_job(job: Job) -> Iterator[Block]:
    """Decode one job block by block."""
    pixels = np.empty((max(1, _BLOCK_BYTES // int(np.prod(job.shape))), *job.shape), np.uint8)
    block = Block(job.split)
    with open(job.output, "r+b") as output:
        output.seek(job.offset)
        for place, (origin, data) in enumerate(job.source.images(), job.first):
            try:
                image = decode(_bytes(data), origin, job.size, grey=job.shape[0] == 1)
                if image.shape != job.shape:
                    raise SizesDifferError(differing(job.shape, image.shape, origin))
                pixels[block.count] = image
            except (ColourError, SizesDifferError):
                raise
            except InputError as error:
                if not job.skip_bad:
                    raise
                block.bad.append((place, str(error)))
            block.count += 1
            if block.count == len(pixels):
                output.write(pixels.data)
                yield block
                block = Block(job.split)
        if block.count:
            output.write(pixels[: block.count].data)
            yield block


def _bytes(data: bytes | InputError) -> bytes:
    if isinstance(data, InputError):
        raise data
    return data


def work() -> None:
    """The program of a worker: pickled jobs on stdin; blocks, then None or an exception, on stdout."""
    # Ctrl-C reaches the whole group; the parent decides, and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    answers = sys.stdout.buffer

    def answer(message: Any) -> None:
        answers.write(message)
        answers.flush()

    try:
        for job in pickle.load(sys.stdin.buffer):
            for block in _decode_job(job):
                answer(pickle.dumps(block))
        answer(pickle.dumps(None))
    except (InputError, OSError) as error:
        answer(pickle.dumps(error))
    except Exception as error:
        answer(pickle.dumps(RuntimeError(str(error) or type(error).__name__)))


def _in_workers(jobs: Sequence[Job], workers: int) -> Generator[Block, None, None]:
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    processes = [start_worker(_WORKER) for _ in range(workers)]
    threads = [
        threading.Thread(target=_follow, args=(process, jobs[k::workers], answers), daemon=True)
        for k, process in enumerate(processes)
    ]
    try:
        for thread in threads:
            thread.start()
        busy = workers
        while busy:
            answer = answers.get()
            if isinstance(answer, Exception):
                raise answer
            if answer is None:
                busy -= 1
            else:
                yield answer
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for thread in threads:
            thread.join()
        for pipe in (pipe for process in processes for pipe in (process.stdin, process.stdout)):
            if pipe is not None:
                with contextlib.suppress(OSError):  # closing flushes what the worker did not live to read
                    pipe.close()


def start_worker(program: str, files: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """A process that runs this line of Python, with these open files."""
    # The package may be importable only because the caller's script changed sys.path.
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=files,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def _follow(process: subprocess.Popen[bytes], jobs: Sequence[Job], answers: queue.SimpleQueue[Any]) -> None:
    """Give a worker its jobs, and pass on what it says."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pickle.dump(jobs, process.stdin)
        process.stdin.close()
        while isinstance(answer := pickle.load(process.stdout), Block):
            answers.put(answer)
        answers.put(answer)
    except Exception:  # whatever happened, somebody waits for an answer
        where = " and ".join(sorted({job.source.root for job in jobs}))[:200]
        answers.put(
            InputError(
                f"expected the images of {where} to be decoded, but the decoding process ended with code "
                f"{process.wait()}; is an image damaged, or memory short?"
            )
        )


def differing(expected: tuple[int, ...], got: tuple[int, ...], origin: str) -> str:
    """What is said of an image of another size than the first."""
    first, other = (f"{shape[2]}x{shape[1]}" for shape in (expected, got))
    return (
        f"expected every image to be {first} like the first, but got {other} in {origin}; "
        f"pass size= (--size or --set data.size=), e.g. {min(*expected[1:], *got[1:])}, to resize and crop them"
    )
