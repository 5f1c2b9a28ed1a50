"""A study's record: one JSON file with settings, numbers and versions, which is not computed again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rcad.errors import InputError
from rcad.runs.files import dumps, finite_or_none, loads, make_folder, read_text, write_text
from rcad.runs.record import versions

DIGITS = 7
SIZES = ("smoke", "small", "full")


def finished(path: Path, settings: Mapping[str, Any], scale: str) -> dict[str, Any] | None:
    """The record at `path`, if it was made with the same settings."""
    if not path.is_file():
        return None
    record: dict[str, Any] = loads(read_text(path), str(path))
    same = record.get("settings") == plain(settings) and record.get("scale") == scale
    return record if same and "results" in record else None


def refuse_to_replace_full(path: Path) -> None:
    """A trial must not overwrite the real thing."""
    refuse_to_replace_larger(path, SIZES[-2])


def refuse_to_replace_larger(path: Path, scale: str) -> None:
    """Nor any scale a larger one."""
    found = loads(read_text(path), str(path)).get("scale") if path.is_file() else None
    if found in SIZES and SIZES.index(found) > SIZES.index(scale):
        raise InputError(f"expected a folder for the trial, but {path} holds the {found} scale; pass another --out")


def build(target: str, scale: str, settings: Mapping[str, Any], results: Mapping[str, Any], seconds: float) -> Any:
    """A new record; numbers that are not finite are None, and `not_finite` says how many there were."""
    return {
        "target": target,
        "scale": scale,
        "settings": plain(settings),
        "versions": versions(("rcad", "torch", "numpy", "scipy")),
        "seconds": round(seconds, 1),
        "not_finite": _not_finite(results),
        "results": plain(results),
    }


def write(path: Path, record: Mapping[str, Any]) -> None:
    make_folder(path.parent)
    write_text(path, dumps(record, indent=None).replace('}, "', '},\n"') + "\n")


def plain(value: Any) -> Any:
    """As it comes back from JSON, with rounded numbers."""
    return loads(dumps(_rounded(finite_or_none(value))), "a record")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _not_finite(value: Any) -> int:
    if isinstance(value, float):
        return int(not math.isfinite(value))
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return sum(_not_finite(item) for item in items)
