"""The machine under a run: its device, its threads, its memory, and the signals that stop it."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from rcad.errors import InputError
from rcad.train.task import SMALL_IMAGE


def pick_device(name: str) -> torch.device:
    """ "auto" takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"expected a device such as auto, cpu or cuda, but got {name!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError("expected a CUDA device for device=cuda, but torch sees none; use device=cpu")
    return device


def allow_many_queues() -> None:
    """Lets a GPU take work from up to 32 queues at once instead of 8. Heard only before CUDA starts."""
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")


def side_stream(device: torch.device) -> AbstractContextManager[object]:
    """A queue of its own on a GPU: work on the default one can neither be captured nor overlap with other runs."""
    if device.type != "cuda":
        return nullcontext()
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.default_stream(device))
    return torch.cuda.stream(stream)


@contextmanager
def deterministic(wanted: bool, device: torch.device) -> Iterator[None]:
    """Deterministic algorithms where wanted; else, on a GPU, the fastest convolutions, found by trying them."""
    cudnn = torch.backends.cudnn
    before = torch.are_deterministic_algorithms_enabled(), cudnn.benchmark
    torch.use_deterministic_algorithms(wanted or before[0])
    cudnn.benchmark = before[1] or (device.type == "cuda" and not wanted)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        cudnn.benchmark = before[1]


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
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"
