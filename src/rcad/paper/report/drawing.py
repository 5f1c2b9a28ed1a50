"""A picture of the report with the stem of its files; how it is drawn is in `rcad.report.drawing`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rcad.report.drawing import *  # noqa: F403


@dataclass(frozen=True)
class Picture:
    """A matplotlib figure, the stem of its files, and the words around it."""

    name: str
    figure: Any
    caption: str
    alt: str
    wide: bool = True
