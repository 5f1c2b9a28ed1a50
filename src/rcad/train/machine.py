"""The machine under a run: its device, its threads, its memory, and what its start-up takes."""

from __future__ import annotations

import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from rcad.data.cache import cache_root
from rcad.errors import InputError
from rcad.runs.words import plural
from rcad.train.progress import SILENT, Progress
from rcad.train.task import SMALL_IMAGE

log = logging.getLogger("rcad")
STARTED = time.perf_counter()


def pick_device(name: str) -> torch.device:
    """ "auto" takes a GPU where there is one; "cuda:1" is the second."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"expected a device such as auto, cpu, cuda or cuda:1, but got {name!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"expected a CUDA device for device={name}, but torch sees none; use device=cpu")
    if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
        last = f"cuda:{count - 1}"
        raise InputError(f"expected one of the {count} GPUs that torch sees, but got {name}; the last is {last}")
    return device


def pick_devices(text: str, device: str = "auto") -> tuple[str, ...]:
    """The devices of `--devices 4` (the first four) or `--devices 0,2` (these GPUs); on the CPU, so many processes."""
    parts = [part.strip() for part in text.strip().removesuffix(",").split(",")]
    numbers = [int(part) for part in parts if part.isascii() and part.isdigit() and len(part) < 5]
    listed = "," in text
    if len(numbers) < len(parts) or len(set(numbers)) < len(numbers) or (not listed and not numbers[0]):
        remedy = "; for the first GPU alone: --device cuda:0" if numbers == [0] else ""
        raise InputError(
            f"expected --devices to be a number (4) or GPUs (0,1,2,3), each once, but got {text!r}{remedy}"
        )
    if ":" in device:
        raise InputError(f"expected --device or --devices, but got both: {device} and {text}; leave one out")
    if pick_device(device).type == "cpu":
        if listed:
            raise InputError(
                f"expected GPUs for --devices {text}, but got the CPU; say how many processes: --devices 2"
            )
        return ("cpu",) * numbers[0]
    names = tuple(f"cuda:{number}" for number in (numbers if listed else range(numbers[0])))
    for name in names:
        pick_device(name)
    return names


@contextmanager
def timed(stage: str, whose: str, device: torch.device) -> Iterator[None]:
    """Says how long a stage of start-up took, where RCAD_TIMES is set: only then is a GPU waited for."""
    if os.environ.get("RCAD_TIMES", "0") in ("", "0"):
        yield
        return
    start = time.perf_counter()
    yield
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    now = time.perf_counter()
    log.warning("times: %s %.2f s, %.1f s after the start, of %s", stage, now - start, now - STARTED, whose)


def keep_kernels(cache_dir: Path | None) -> None:
    """Kernels that Triton and the compiler make are kept beside decoded data, unless the user says where."""
    folder = cache_root(cache_dir) / "kernels"
    os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))


def side_stream(device: torch.device) -> AbstractContextManager[object]:
    """A queue of its own on a GPU: work on the default one can neither be captured nor overlap with other runs."""
    if device.type != "cuda":
        return nullcontext()
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.default_stream(device))
    return torch.cuda.stream(stream)


@contextmanager
def deterministic(enabled: bool, device: torch.device) -> Iterator[None]:
    """Deterministic algorithms where enabled; else, on a GPU, the fastest convolutions, found by trying them."""
    cudnn = torch.backends.cudnn
    before = torch.are_deterministic_algorithms_enabled(), cudnn.benchmark
    _be_deterministic(enabled or before[0])
    cudnn.benchmark = before[1] or (device.type == "cuda" and not enabled)
    try:
        yield
    finally:
        _be_deterministic(before[0])
        cudnn.benchmark = before[1]


def _be_deterministic(enabled: bool) -> None:
    """Sets the switch where it is not set so already: torch loads its compiler for that, which takes a second."""
    if enabled != torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(enabled)


_turns = threading.RLock()


def _new_turns() -> None:
    """In a forked process: nobody is left to release the lock that another thread held."""
    global _turns
    _turns = threading.RLock()


os.register_at_fork(after_in_child=_new_turns)


@contextmanager
def own_randomness(device: torch.device, progress: Progress = SILENT) -> Iterator[None]:
    """torch's generators, which all threads share, for this thread alone; they are given back as they were.

    Runs of several threads are made one after the other: side by side each would draw the other's numbers.
    """
    turns = _turns
    if not turns.acquire(blocking=False):
        progress.note("waiting: another thread of this process makes a run, and they share torch's random numbers")
        turns.acquire()
    try:
        with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
            yield
    finally:
        turns.release()


@contextmanager
def suitable_threads(x: Tensor) -> Iterator[None]:
    """One thread for tables and tiny images on the CPU: more of them spend their time waiting for each other."""
    before = torch.get_num_threads()
    if x.device.type == "cpu" and (x.ndim == 2 or max(x.shape[2:]) <= SMALL_IMAGE):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def device_words(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {plural(torch.get_num_threads(), 'thread')}"
