"""What a suite hands back before it becomes a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Found:
    """Numbers by flat name, curves for figures, sentences for the reader, and how many examples were looked at."""

    numbers: Mapping[str, float]
    curves: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    examples: int = 0


class NotApplicable(Exception):
    """A suite makes no sense for a run; the sentence says why."""
