"""A run in a few words: what it is, how long it took, how it ended."""

from __future__ import annotations

from rcad.cli.figures import duration, leading, metric
from rcad.loss.method_rows import label
from rcad.runs.config import RunConfig
from rcad.runs.locks import BusyError
from rcad.runs.record import RunRecord


def seconds(record: RunRecord) -> float | None:
    """How long a run took, all in all."""
    known = [value for value in record.timings.values() if value is not None]
    return sum(known) if known else None


def title(config: RunConfig) -> str:
    """A run in a few words."""
    return f"{label(config.method)} on {config.data.name}, seed {config.seed}"


def said(record: RunRecord, already: bool, *, most: int = 3) -> str:
    """How a run ended, in one line with at most so many metrics."""
    numbers = [f"{name} {metric(name, record.metrics[name])}" for name in leading(record.metrics, most)]
    verb = f"{record.status} already" if already else record.status
    parts = [f"{verb}: {title(record.config)}", *numbers]
    if record.status == "diverged":
        parts.append(record.message)
    elif not already:
        parts.append(duration(seconds(record)))
    else:
        parts.append(f"run {record.id}")
    return "  ".join(part for part in parts if part)


def left_to(error: BusyError) -> str:
    """Who works on a run that was left alone."""
    return f"left to {error.owner}"
