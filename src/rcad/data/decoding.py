"""Many encoded images to one array on disk, on all cores.

Workers are plain subprocesses that speak JSON lines, not a multiprocessing pool: forking a process that has torch's and
a progress bar's threads can deadlock, and spawning re-imports the caller's script, which fails without a main guard.
Workers write with write(), not through a memory map: a full disk is then an error and not a SIGBUS.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rcad.data.cache import allocate
from rcad.data.encoded import Run, from_json, to_json
from rcad.data.images import decode
from rcad.errors import InputError

Progress = Callable[[int, int], None]

# Below this many images, starting processes costs more than it saves.
_WORTH_WORKERS = 1000
_BLOCK_BYTES = 1 << 20


class SizesDifferError(InputError):
    """Images of one set that are not of one size, where no size to bring them to was given."""


# How a worker's error is raised again here: the first that it is one of.
_ERRORS: dict[str, type[Exception]] = {
    "sizes": SizesDifferError,
    "input": InputError,
    "disk": OSError,
    "other": RuntimeError,
}


@dataclass(frozen=True)
class Job:
    """Decode `run` into the file `output` at byte `offset`; every image has `shape` (3, H, W)."""

    run: Run
    output: str
    offset: int
    shape: tuple[int, int, int]
    size: int | None

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "run": to_json(self.run)})

    @staticmethod
    def from_json(text: str) -> Job:
        fields = json.loads(text)
        return Job(**{**fields, "run": from_json(fields["run"]), "shape": tuple(fields["shape"])})


def decode_splits(
    folder: Path,
    splits: dict[str, Sequence[Run]],
    size: int | None,
    progress: Progress | None = None,
    workers: int | None = None,
) -> None:
    """Write `<split>_x.npy`, uint8 (N, 3, H, W), for every split.

    Args:
        splits: runs of images by split name; the first image sets H and W unless `size` does.
        progress: called in this thread with (images done, images in all).
        workers: processes; by default one per core this process may use, or none for a small set.
    """
    shape = _image_shape(next(iter(splits.values())), size)
    jobs = []
    for name, runs in splits.items():
        output = folder / f"{name}_x.npy"
        offset = allocate(output, (sum(map(len, runs)), *shape))
        for run in runs:
            jobs.append(Job(run, str(output), offset, shape, size))
            offset += len(run) * int(np.prod(shape))
    total = sum(len(job.run) for job in jobs)
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        workers = workers if total >= _WORTH_WORKERS else 1
    workers = min(workers, len(jobs))
    counts = _in_workers(jobs, workers) if workers > 1 else _here(jobs)
    done = 0
    with contextlib.closing(counts):  # ends the workers at once when `progress` raises or Ctrl-C comes
        for count in counts:
            done += count
            if progress is not None:
                progress(done, total)


def _here(jobs: Sequence[Job]) -> Generator[int, None, None]:
    for job in jobs:
        yield from perform(job)


def perform(job: Job) -> Iterator[int]:
    """Decode one job block by block; yields how many images each block held."""
    block = np.empty((max(1, _BLOCK_BYTES // int(np.prod(job.shape))), *job.shape), np.uint8)
    filled = 0
    with open(job.output, "r+b") as output:
        output.seek(job.offset)
        for origin, data in job.run.images():
            pixels = decode(data, origin, job.size)
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


def serve(lines: Iterator[str], answer: Callable[[dict[str, Any]], None]) -> None:
    """A worker's life: one job per line in; counts, then "finished" or "error" out."""
    for line in lines:
        try:
            for count in perform(Job.from_json(line)):
                answer({"count": count})
            answer({"finished": True})
        except Exception as error:
            kind = next((name for name, known in _ERRORS.items() if isinstance(error, known)), "other")
            answer({"error": str(error) or type(error).__name__, "kind": kind})
            return


def _in_workers(jobs: Sequence[Job], workers: int) -> Generator[int, None, None]:
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    processes = [_start_worker() for _ in range(workers)]
    threads = [threading.Thread(target=_feed, args=(p, waiting, answers), daemon=True) for p in processes]
    try:
        for thread in threads:
            thread.start()
        unfinished = len(jobs)
        while unfinished:
            answer = answers.get()
            if "error" in answer:
                raise _ERRORS[answer["kind"]](answer["error"])
            if "finished" in answer:
                unfinished -= 1
            else:
                yield answer["count"]
    finally:
        for process in processes:
            process.kill()
            process.wait()
        for thread in threads:
            thread.join()
        for pipe in (pipe for process in processes for pipe in (process.stdin, process.stdout)):
            if pipe is not None:
                with contextlib.suppress(OSError):  # closing flushes a job that the worker did not live to read
                    pipe.close()


def _start_worker() -> subprocess.Popen[str]:
    # The package may be importable only because the caller's script changed sys.path.
    package_root = str(Path(__file__).parents[2])
    paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-m", "rcad.data.decode_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        bufsize=1,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def _feed(
    process: subprocess.Popen[str],
    waiting: queue.SimpleQueue[Job],
    answers: queue.SimpleQueue[dict[str, Any]],
) -> None:
    """Give one worker jobs until none is left, and pass on what it says."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        while True:
            job = waiting.get_nowait()
            process.stdin.write(job.to_json() + "\n")
            for line in process.stdout:
                answer = json.loads(line)
                answers.put(answer)
                if "count" not in answer:
                    break
            else:
                raise EOFError
    except queue.Empty:
        return
    except (OSError, ValueError, EOFError):
        code = process.wait()
        message = f"expected a decoding process to finish, but it ended with code {code}; is memory short?"
        answers.put({"error": message, "kind": "other"})


def _image_shape(runs: Sequence[Run], size: int | None) -> tuple[int, int, int]:
    if size is not None:
        return 3, size, size
    origin, data = next(runs[0].images())
    channels, height, width = decode(data, origin).shape
    return channels, height, width


def _differing(expected: tuple[int, ...], got: tuple[int, ...], origin: str) -> str:
    first, other = (f"{shape[2]}x{shape[1]}" for shape in (expected, got))
    return (
        f"expected every image to be {first} like the first, but got {other} in {origin}; "
        f"pass size= (--size or --set data.size=), e.g. {min(*expected[1:], *got[1:])}, to resize and crop them"
    )
