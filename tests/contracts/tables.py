"""The committed tables: read, written, compared."""

import difflib
import json
import os
from typing import Any

import pytest

from contracts.house import TABLES

WIDTH = 100
UPDATE = "RCAD_UPDATE_CONTRACTS"


def text(table: Any) -> str:
    """JSON with sorted keys: a line for each entry of an object, and for a list as far as it fits."""
    return _written(table, 0) + "\n"


def line(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _written(value: Any, depth: int) -> str:
    one = line(value)
    if not isinstance(value, dict | list) or not value or (isinstance(value, list) and len(one) <= WIDTH):
        return one
    if isinstance(value, dict):
        parts = [f"{line(key)}: {_written(value[key], depth + 1)}" for key in sorted(value)]
    else:
        parts = [_written(item, depth + 1) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    inner = ",\n".join(" " * (depth + 1) + part for part in parts)
    return f"{opening}\n{inner}\n{' ' * depth}{closing}"


def load(name: str) -> Any:
    path = TABLES / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def check(table: str, what: str, present: Any, key: str | None = None) -> None:
    """Compare with the committed table, or with one entry of it; or write it anew, where update.py asks for that."""
    committed = load(table)
    if UPDATE in os.environ:
        new = present if key is None else {**committed, key: present}
        (TABLES / f"{table}.json").write_text(text(new), encoding="utf-8")
    else:
        same(what, committed if key is None else committed.get(key), present)


def same(what: str, expected: Any, present: Any) -> None:
    """Fail with the lines that differ."""
    lines = difflib.unified_diff(
        text(expected).splitlines(), text(present).splitlines(), "committed", "present", lineterm="", n=2
    )
    found = list(lines)
    if found:
        shown = "\n".join(found[:80] + (["..."] if len(found) > 80 else []))
        pytest.fail(
            f"{what} changed; if that is meant, run python tests/contracts/update.py and commit the table\n{shown}",
            pytrace=False,
        )
