"""Markdown as the benchmarks' pages have it: tables whose cells may hold marks of their own, and numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rcad.report.numbers import p_value as p_value


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
