"""Processes that decode images, for whoever reads a whole set and for streams.

Pillow keeps Python's lock for a fifth of its time: 16 threads did the work of four cores, and slowed the thread that
launches training steps. Here each thread hands its images to a process of its own and waits without the lock. Pixels
come in a file in memory that both see: from a pipe they would come in dozens of pieces.

The processes are plain ones, not a multiprocessing pool: forking a process that has torch's threads can deadlock, and
spawning re-imports the caller's script, which fails without a main guard.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rcad.errors import InputError, cores

if TYPE_CHECKING:
    from rcad.data.decoding import Decoding

WORTH_PROCESSES = 1000
"""Images in a set from which on processes are worth their start; threads decode smaller ones by themselves."""
Pixels = npt.NDArray[np.uint8]


class Decoder:
    """A process that runs jobs one after the other, and a file in memory for their pixels."""

    def __init__(self) -> None:
        self.file = _file_in_memory()
        # The package may be importable only because the caller's script changed sys.path.
        paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from rcad.data.decoders import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[self.file.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )

    def run(self, *call: Any) -> Any:
        """The result of a method of `Decoding`, or the error that it ended in; raises where the process has died."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        pickle.dump(call, self.process.stdin)
        self.process.stdin.flush()
        return pickle.load(self.process.stdout)

    def end(self) -> int:
        self.process.kill()
        code = self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.file):
            assert file is not None
            with contextlib.suppress(OSError):  # closing flushes what the process did not live to read
                file.close()
        return code


def serve() -> None:
    """The program of a process: jobs come on stdin, their results or errors go to stdout."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # its parent decides, and may want one more batch
        signal.signal(number, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            method, job, *words = pickle.load(sys.stdin.buffer)
            try:
                answer: Any = getattr(job, method)(*words)
            except (InputError, OSError) as error:
                answer = error
            except Exception as error:
                why = str(error) or type(error).__name__
                answer = InputError(f"expected the images of {job.source.root[:200]} to be decoded, but got: {why}")
            sys.stdout.buffer.write(pickle.dumps(answer))
            sys.stdout.buffer.flush()


class Decoders:
    """Threads that run jobs, by default one for each core that is ours, in a process each or by themselves."""

    def __init__(self, count: int | None = None, *, processes: bool = True) -> None:
        self.started: list[Decoder] = []
        self._pool = ThreadPoolExecutor(count or share_of_cores(), "rcad-decoding")
        self._processes = processes and hasattr(os, "preadv")
        self._thread = threading.local()

    def submit(self, method: str, job: Decoding, *words: Any) -> Future[Any]:
        if self._processes:
            return self._pool.submit(self._ask, method, job, *words)
        return self._pool.submit(getattr(job, method), *words)

    def submit_pixels(self, job: Decoding, out: Pixels) -> Future[None]:
        """Fill `out` with the pixels of a job, later."""
        return self._pool.submit(self._fetch, job, out) if self._processes else self._pool.submit(job.fill, out)

    def close(self) -> None:
        """Drop the jobs that have not begun and end the processes at once."""
        for wait in (False, True):  # a thread may start one while the others end
            self._pool.shutdown(wait=wait, cancel_futures=True)
            for decoder in self.started:
                decoder.end()

    def _fetch(self, job: Decoding, out: Pixels) -> None:
        file = self._decoder().file.fileno()
        self._ask("write", job, file)
        os.preadv(file, [out.data.cast("B")], 0)

    def _ask(self, method: str, job: Decoding, *words: Any) -> Any:
        decoder = self._decoder()
        try:
            answer = decoder.run(method, job, *words)
        except Exception:  # whatever it died of, somebody waits for an answer
            self._thread.decoder = None
            raise InputError(
                f"expected the images of {job.source.root[:200]} to be decoded, but the decoding process ended with "
                f"code {decoder.end()}; is an image damaged, or memory short?"
            ) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _decoder(self) -> Decoder:
        decoder: Decoder | None = getattr(self._thread, "decoder", None)
        if decoder is None:
            decoder = self._thread.decoder = Decoder()
            self.started.append(decoder)
        return decoder


def shared_decoders(processes: bool) -> Decoders:
    """The decoders of all streams in this process, which end with it; a fork has none of its parent's."""
    return _decoders_of(os.getpid(), processes)


@functools.cache
def _decoders_of(pid: int, processes: bool) -> Decoders:
    decoders = Decoders(processes=processes)
    atexit.register(lambda: decoders.close() if os.getpid() == pid else None)
    return decoders


def share_of_cores() -> int:
    """Cores that this process may use, shared with the others that torchrun started on this machine."""
    return max(1, cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def _file_in_memory() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("rcad-pixels"), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
