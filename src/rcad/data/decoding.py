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
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rcad.data.archives import readable
from rcad.data.cache import allocate
from rcad.data.dataset import Progress
from rcad.data.images import ColourError, decode, is_grey
from rcad.errors import InputError, need

SOURCE_LENGTH = 2048
"""Images in a source at most: short enough to share among processes."""
# Below this many images, starting processes costs more than it saves.
_WORTH_WORKERS = 1000
_BLOCK_BYTES = 1 << 20
_WORKER = "from rcad.data.decoding import work; work()"


class SizesDifferError(InputError):
    """Images of one set that are not of one size, where no size to bring them to was given."""


@dataclass(frozen=True)
class ImageFiles:
    """Image files below `root`."""

    root: str
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def images(self) -> Iterator[tuple[str, bytes]]:
        """(how an error names it, encoded bytes), in order."""
        for name in self.names:
            path = Path(self.root, name)
            try:
                yield str(path), path.read_bytes()
            except OSError as error:
                raise InputError(f"expected {path} to be readable, but got: {error.strerror}; check the file") from None


@dataclass(frozen=True)
class ZipMembers:
    """Members of a zip archive."""

    root: str
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def images(self) -> Iterator[tuple[str, bytes]]:
        """(how an error names it, encoded bytes), in order."""
        with readable(Path(self.root)), zipfile.ZipFile(self.root) as archive:
            for name in self.names:
                yield f"{self.root}:{name}", archive.read(name)


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

    def images(self) -> Iterator[tuple[str, bytes]]:
        """(how an error names it, encoded bytes), in order."""
        parquet = need("pyarrow.parquet", "pyarrow")
        try:
            # One thread: every core already has its own process.
            table = parquet.ParquetFile(self.root).read_row_group(self.group, [self.column], use_threads=False)
            column = table.column(0).slice(self.start, len(self))
            chunks = [c.field("bytes") if hasattr(c, "field") else c for c in column.chunks]
            encoded = [value for chunk in chunks for value in chunk.to_pylist()]
        except Exception as error:  # Arrow has no common base for what a damaged file raises
            reason = " ".join(str(error).split())[:100]
            raise InputError(
                f"expected {self.root} to be a whole Parquet file, "
                f"but row group {self.group} cannot be read ({reason}); fetch it again"
            ) from None
        for row, data in enumerate(encoded, self.first + self.start):
            if not data:
                raise InputError(
                    f"expected image bytes in {self.root} row {row}, but got none; store the bytes, not only the path"
                )
            yield f"{self.root} row {row}", data


Source = ImageFiles | ZipMembers | ParquetRows


@dataclass(frozen=True)
class Job:
    """Decode `source` into the file `output` at byte `offset`; every image has `shape` (C, H, W)."""

    source: Source
    output: str
    offset: int
    shape: tuple[int, int, int]
    size: int | None


def in_parts(kind: type[ImageFiles] | type[ZipMembers], root: Path, names: Sequence[str]) -> list[Source]:
    """Names below a folder or in a zip, as sources of at most SOURCE_LENGTH."""
    parts = (tuple(names[k : k + SOURCE_LENGTH]) for k in range(0, len(names), SOURCE_LENGTH))
    return [kind(str(root), part) for part in parts]


def decode_splits(
    folder: Path,
    splits: Mapping[str, Sequence[Source]],
    size: int | None,
    progress: Progress | None = None,
    workers: int | None = None,
) -> None:
    """Write `<split>_x.npy`, uint8 (N, C, H, W), for every split: C is 1 where every image is grey, else 3.

    Args:
        splits: the images by split name; the first image sets H and W unless `size` does.
        progress: called in this thread with (images done, images in all).
        workers: processes; by default one per core this process may use, or none for a small set.
    """
    origin, data = next(next(iter(splits.values()))[0].images())
    grey = is_grey(data, origin)
    height, width = (size, size) if size is not None else decode(data, origin).shape[1:]
    if grey:
        with contextlib.suppress(ColourError):  # not all are grey: begin again
            return _decode_all(_jobs(folder, splits, (1, height, width), size), progress, workers)
    return _decode_all(_jobs(folder, splits, (3, height, width), size), progress, workers)


def _jobs(
    folder: Path, splits: Mapping[str, Sequence[Source]], shape: tuple[int, int, int], size: int | None
) -> list[Job]:
    jobs = []
    for name, sources in splits.items():
        output = folder / f"{name}_x.npy"
        offset = allocate(output, (sum(map(len, sources)), *shape))
        for source in sources:
            jobs.append(Job(source, str(output), offset, shape, size))
            offset += len(source) * int(np.prod(shape))
    return jobs


def _decode_all(jobs: Sequence[Job], progress: Progress | None, workers: int | None) -> None:
    total, done = sum(len(job.source) for job in jobs), 0
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = workers if total >= _WORTH_WORKERS else 1
    workers = min(workers, len(jobs))
    counts = _in_workers(jobs, workers) if workers > 1 else (count for job in jobs for count in _decode_job(job))
    with contextlib.closing(counts):  # ends the workers at once when `progress` raises or Ctrl-C comes
        for count in counts:
            done += count
            if progress is not None:
                progress(done, total)


def _decode_job(job: Job) -> Iterator[int]:
    """Decode one job block by block; yields how many images each block held."""
    block = np.empty((max(1, _BLOCK_BYTES // int(np.prod(job.shape))), *job.shape), np.uint8)
    filled = 0
    with open(job.output, "r+b") as output:
        output.seek(job.offset)
        for origin, data in job.source.images():
            pixels = decode(data, origin, job.size, grey=job.shape[0] == 1)
            if pixels.shape != job.shape:
                raise SizesDifferError(_differing(job.shape, pixels.shape, origin))
            block[filled] = pixels
            filled += 1
            if filled == len(block):
                output.write(block.data)
                yield filled
                filled = 0
        if filled:
            output.write(block[:filled].data)
            yield filled


def work() -> None:
    """The program of a worker: pickled jobs on stdin; counts, then None or an exception, on stdout."""
    # Ctrl-C reaches the whole group; the parent decides, and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    answers = sys.stdout.buffer

    def answer(message: Any) -> None:
        answers.write(message)
        answers.flush()

    try:
        for job in pickle.load(sys.stdin.buffer):
            for count in _decode_job(job):
                answer(pickle.dumps(count))
        answer(pickle.dumps(None))
    except (InputError, OSError) as error:
        answer(pickle.dumps(error))
    except Exception as error:
        answer(pickle.dumps(RuntimeError(str(error) or type(error).__name__)))


def _in_workers(jobs: Sequence[Job], workers: int) -> Generator[int, None, None]:
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    processes = [_start_worker() for _ in range(workers)]
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


def _start_worker() -> subprocess.Popen[bytes]:
    # The package may be importable only because the caller's script changed sys.path.
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-c", _WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def _follow(process: subprocess.Popen[bytes], jobs: Sequence[Job], answers: queue.SimpleQueue[Any]) -> None:
    """Give a worker its jobs, and pass on what it says."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pickle.dump(jobs, process.stdin)
        process.stdin.close()
        while isinstance(answer := pickle.load(process.stdout), int):
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


def _differing(expected: tuple[int, ...], got: tuple[int, ...], origin: str) -> str:
    first, other = (f"{shape[2]}x{shape[1]}" for shape in (expected, got))
    return (
        f"expected every image to be {first} like the first, but got {other} in {origin}; "
        f"pass size= (--size or --set data.size=), e.g. {min(*expected[1:], *got[1:])}, to resize and crop them"
    )
