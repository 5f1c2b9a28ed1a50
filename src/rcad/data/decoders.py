"""Processes that decode images for a stream.

Pillow lets go of Python's lock while it decompresses and resizes, but not for what it does in Python: 0.3 to 0.5 of the
2.5 ms of processor time that a photograph takes. Threads share that lock with each other and with the one that launches
training steps: 16 of them did the work of four cores, and slowed the steps besides. Here each thread hands its images
to a process and waits for the pixels without the lock. They come in memory that both see, where the system has it: from
a pipe they come in dozens of pieces, and for each the thread that trains hands over the lock. The processes are plain
ones (`decoding.py` says why), live as long as this one and end with it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import mmap
import os
import pickle
import queue
import signal
import sys
import warnings
import zlib
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from rcad.data.cache import emptied
from rcad.data.decoding import start_worker
from rcad.data.files import read_bytes
from rcad.data.images import decode
from rcad.errors import InputError, cores

WORTH_PROCESSES = 1000
"""Images in a set from which on processes are worth their start."""
Pixels = npt.NDArray[np.uint8]


class Spot(NamedTuple):
    """Where an encoded image lies, and how an error names it: a file, or a part of one with its CRC-32."""

    origin: str
    path: str
    start: int = 0
    end: int | None = None
    crc: int = 0

    def read(self) -> bytes:
        if self.end is None:
            return read_bytes(Path(self.path))
        if self.start == self.end:
            raise InputError(f"expected image bytes in {self.origin}, but got none; store the bytes, not only the path")
        with open(self.path, "rb") as file:
            file.seek(self.start)
            data = file.read(self.end - self.start)
        if zlib.crc32(data) != self.crc:
            changed = f"expected {self.origin} as it was unpacked, but its bytes in {self.path} have changed"
            raise InputError(f"{changed}; {emptied(Path(self.path).parent)}")
        return data


class Chunk(NamedTuple):
    """Images to decode to this shape (C, H, W)."""

    spots: list[Spot]
    shape: tuple[int, int, int]
    size: int | None

    def fill(self, out: Pixels) -> None:
        """Decodes them into (N, C, H, W)."""
        for place, spot in enumerate(self.spots):
            image = decode(spot.read(), spot.origin, self.size, grey=self.shape[0] == 1)
            if image.shape != self.shape:
                raise InputError(f"expected {spot.origin} as it was when the run began, but its size has changed")
            out[place] = image


class Decoder:
    """A process that fills chunks."""

    def __init__(self) -> None:
        self._shared = os.memfd_create("rcad-pixels") if hasattr(os, "memfd_create") else None
        self._pixels: mmap.mmap | bytes = b""
        files = [] if self._shared is None else [self._shared]
        self._process = start_worker(f"from rcad.data.decoders import serve; serve({self._shared})", files)

    def ask(self, chunk: Chunk, out: Pixels) -> Exception | None:
        """Fills `out`, or says what was wrong; EOFError or BrokenPipeError where the process has died."""
        assert self._process.stdin is not None
        answers = cast(BufferedReader, self._process.stdout)
        pickle.dump(chunk, self._process.stdin)
        self._process.stdin.flush()
        problem: Exception | None = pickle.load(answers)
        if problem is not None:
            return problem
        if self._shared is not None:
            if len(self._pixels) < out.nbytes:
                self._pixels = mmap.mmap(self._shared, out.nbytes)
            out[:] = np.frombuffer(self._pixels, np.uint8, out.nbytes).reshape(out.shape)
        elif answers.readinto(out.data.cast("B")) < out.nbytes:
            raise EOFError
        return None

    def end(self) -> int:
        """Ends the process; the code it ended with."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # closing flushes what the process did not live to read
                pipe.close()
        if self._shared is not None:
            os.close(self._shared)
            self._shared = None
        self._process.kill()
        return self._process.wait()


def serve(shared: int | None) -> None:
    """The program of a decoding process: chunks on stdin; None or an error on stdout, and the pixels.

    Args:
        shared: the file in memory that the pixels go to; None for stdout.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # its parent decides, and may want one more batch
        signal.signal(number, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    memory: mmap.mmap | bytearray = bytearray()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            chunk: Chunk = pickle.load(sys.stdin.buffer)
            shape = (len(chunk.spots), *chunk.shape)
            size = math.prod(shape)
            if len(memory) < size:
                memory = bytearray(size) if shared is None else _enlarged(shared, size)
            pixels = np.frombuffer(memory, np.uint8, size).reshape(shape)
            problem: Exception | None = None
            try:
                chunk.fill(pixels)
            except (InputError, OSError) as error:
                problem = error
            sys.stdout.buffer.write(pickle.dumps(problem))
            if problem is None and shared is None:
                sys.stdout.buffer.write(pixels.data)
            sys.stdout.buffer.flush()


def _enlarged(file: int, size: int) -> mmap.mmap:
    os.ftruncate(file, size)
    return mmap.mmap(file, size)


def fill_elsewhere(chunk: Chunk, out: Pixels) -> None:
    """`Chunk.fill` in a process; one is started where none is free yet."""
    free = _decoders(os.getpid())
    decoder = free.get()
    try:
        decoder = decoder or Decoder()
        problem = decoder.ask(chunk, out)
    except (EOFError, BrokenPipeError):
        code, decoder = decoder.end() if decoder else None, None
        problem = InputError(
            f"expected {chunk.spots[0].origin} and the images after it to be decoded, but the decoding process ended "
            f"with code {code}; is an image damaged, or memory short?"
        )
    finally:
        free.put(decoder)
    if problem is not None:
        raise problem


@functools.cache
def _decoders(pid: int) -> queue.LifoQueue[Decoder | None]:
    """This process's decoders that are free, None for one that is not started; a fork has none of its parent's."""
    free: queue.LifoQueue[Decoder | None] = queue.LifoQueue()
    for _ in range(share_of_cores()):
        free.put(None)

    def end() -> None:
        while os.getpid() == pid and not free.empty():
            if (decoder := free.get()) is not None:
                decoder.end()

    atexit.register(end)
    return free


def share_of_cores() -> int:
    """Cores that this process may use, shared with the others that torchrun started on this machine."""
    return max(1, cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
