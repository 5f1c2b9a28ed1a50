"""What the benchmarks share: the head of a record and its file, times taken in turns, tables and numbers as text."""

from __future__ import annotations

import gc
import json
import math
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from rcad.report.numbers import p_value as p_value
from rcad.runs.files import write_text
from rcad.train.machine import device_words


def head(kind: str, device: torch.device) -> dict[str, Any]:
    """What a record begins with: its kind, the device, versions, the date."""
    about = {"kind": kind, "device": device_words(device), "torch": torch.__version__}
    return about | {"python": platform.python_version(), "date": datetime.now(UTC).isoformat(timespec="seconds")}


def write(path: Path | None, record: Mapping[str, Any]) -> None:
    """Write the record, where a file was asked for; its folder is made."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(record, indent=1) + "\n")


def listed(kind: Callable[[str], Any] = str) -> Callable[[str], list[Any]]:
    """Of an option: values with commas between them."""
    return lambda text: [kind(part) for part in text.split(",")]


def in_a_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


def print_row(cells: Iterable[object], width: int = 14) -> None:
    print("  ".join(f"{cell!s:>{width}}" for cell in cells), flush=True)


def wait(device: torch.device) -> None:
    """For all that was launched on the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def in_turns(jobs: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """What the jobs give, one after the other in every round, so that a busy moment hits all: (rounds, jobs)."""
    gc.collect()
    gc.disable()  # a collection in the middle of a round would be charged to whatever runs then
    try:
        return [[job() for job in jobs] for _ in range(rounds)]
    finally:
        gc.enable()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; a bar inside a cell would end it."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def number(value: float | None, digits: int = 2) -> str:
    """As Python writes it, "-" for none; what rounds to zero keeps its sign, as the committed pages have it."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def signed(value: float | None, digits: int = 2) -> str:
    """`number` with a sign in front of every one."""
    text = number(value, digits)
    return text if text.startswith("-") else f"+{text}"
