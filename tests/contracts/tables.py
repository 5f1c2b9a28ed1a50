"""The committed tables: read, written, compared."""

import difflib
import json
import os
from typing import Any

import pytest

from contracts.house import TABLES

UPDATE = "RCAD_UPDATE_CONTRACTS"


def text(table: Any) -> str:
    return json.dumps(table, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


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
    both = (text(one).splitlines() for one in (expected, present))
    if found := list(difflib.unified_diff(*both, "committed", "present", lineterm="", n=2)):
        advice = "if that is meant, run python tests/contracts/update.py and commit the table"
        shown = "\n".join(found[:80] + ["..."] * (len(found) > 80))
        pytest.fail(f"{what} changed; {advice}\n{shown}", pytrace=False)
