"""Markdown as the benchmarks' pages have it: tables whose cells may hold marks of their own, and numbers."""

from __future__ import annotations

from collections.abc import Sequence

from rcad.report.numbers import fixed
from rcad.report.numbers import p_value as p_value


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; a bar inside a cell would end it."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def number(value: float | None, digits: int = 2) -> str:
    return fixed(value, digits, minus="-")


def signed(value: float | None, digits: int = 2) -> str:
    return fixed(value, digits, sign=True, minus="-")
