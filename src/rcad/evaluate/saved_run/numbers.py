"""How an evaluation's numbers are written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def spread(name: str, numbers: Mapping[str, Any]) -> str:
    """Mean ± deviation over seeds; the mean alone for one seed."""
    found = numbers.get(name)
    if found is None or found["mean"] is None:
        return "-"
    digits = decimals(name, found["mean"], found["sd"])
    text = _fixed(found["mean"], digits)
    text = text if found["sd"] is None else f"{text} ± {found['sd']:.{digits}f}"
    held = sum(value is not None for value in found["values"])
    return text if held == len(found["values"]) else f"{text} [{held} of {len(found['values'])}]"


def signed(name: str, gain: Mapping[str, Any]) -> str:
    """A difference with its interval, where it has one."""
    if gain["low"] is None:
        return _fixed(gain["mean"], decimals(name, gain["mean"], None), "+")
    digits = decimals(name, gain["mean"], (gain["high"] - gain["low"]) / 2)
    mean, low, high = (_fixed(gain[key], digits, "+") for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def radius(eps: float) -> str:
    """8/255 where that is what it is, else a number."""
    steps = 255 * eps
    return f"{steps:.0f}/255" if steps > 0.5 and abs(steps - round(steps)) < 1e-6 else f"{eps:.4g}"


def decimals(name: str, value: float, spread: float | None) -> int:
    """One for percentages, three for areas; else as many as show two digits of the spread, or three of the number."""
    if "accuracy" in name or "error_mean" in name or name in ("top5", "mce"):
        return 1
    if name.endswith(("_auroc", "_fpr95")):
        return 3
    size = abs(spread) if spread else abs(value) / 10
    return 3 if size == 0 else min(max(1 - math.floor(math.log10(size)), 0), 4)


def _fixed(value: float, digits: int, sign: str = "") -> str:
    """So many decimals, and never minus zero."""
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"


def p_value(gain: Mapping[str, Any]) -> str:
    """The two-sided p of a difference, or in a few words why it has none."""
    value = gain["p_two"]
    if value is None:
        return str(gain["why"])
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"


def near(text: str) -> str:
    """The radius in the name of a number, which has four digits of it."""
    eps = float(text)
    steps = round(255 * eps)
    return radius(steps / 255) if steps and f"{steps / 255:.4g}" == text else radius(eps)
