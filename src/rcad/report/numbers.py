"""Numbers and words as every page writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

MINUS = "\N{MINUS SIGN}"


def decimals(size: float | None, digits: int = 2, most: int = 6) -> int:
    """How many decimals show so many digits of a number of this size; 0 for large ones, `most` for none."""
    if size is None or size == 0 or not math.isfinite(size):
        return min(3, most)
    return min(max(digits - 1 - math.floor(math.log10(abs(size))), 0), most)


def fixed(value: float | None, places: int, *, sign: bool = False, minus: str = MINUS) -> str:
    """So many decimals, never minus zero; "-" for none."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{round(value, places) + 0.0:{'+' if sign else ''}.{places}f}".replace("-", minus)


def by_size(value: float | None, spread: float | None = None, *, sign: bool = False) -> str:
    """The value with as many decimals as show two digits of its spread; without one, three of its own."""
    places = decimals(spread, 2) if spread else decimals(value, 3)
    return fixed(value, places, sign=sign and round(value or 0.0, places) != 0, minus="-")  # zero has no side


def with_spread(mean: float | None, spread: float | None) -> str:
    """1.234 ± 0.056; the mean alone without a spread."""
    if mean is None:
        return "-"
    return by_size(mean, spread) + (f" ± {by_size(spread, spread)}" if spread else "")


def with_interval(mean: float | None, low: float | None, high: float | None) -> str:
    """+0.123 [0.045, 0.201]: a difference with its interval, where it has one."""
    if mean is None:
        return "-"
    if low is None or high is None:
        return by_size(mean, sign=True)
    half = (high - low) / 2
    # An interval that leaves out zero is not shown to end there.
    while low * high > 0 and half > 1e-5 and 0 in (float(by_size(low, half)), float(by_size(high, half))):
        half /= 10
    return f"{by_size(mean, half, sign=True)} [{by_size(low, half)}, {by_size(high, half)}]"


def p_value(value: float | None, places: int = 4) -> str:
    """0.0123, or <0.0001 for less than can be shown; "-" for none."""
    least = 10.0**-places
    return "-" if value is None else f"<{least:.{places}f}" if value < least else f"{value:.{places}f}"


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def named_values(items: Mapping[str, Any]) -> str:
    """Names with their values: rcad 1.0, torch 2.13."""
    return ", ".join(f"{name} {value}" for name, value in items.items())


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
