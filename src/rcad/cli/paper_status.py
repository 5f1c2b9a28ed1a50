"""`rcad paper status`: which records and which runs are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rcad.cli.screen import say, say_json, table
from rcad.paper.claims import CONTROLS, Tally, by_verdict, claims_in, scale_of
from rcad.paper.targets import TARGETS
from rcad.runs.files import loads, read_text

if TYPE_CHECKING:
    from rcad.paper.making import Order


def overview(out: Path, as_json: bool, names: Sequence[str] = tuple(TARGETS)) -> None:
    """A line for each target: its records, and what they found."""
    rows = [row for name in names for row in _records(name, out)]
    header = ["name", "record", "scale", "protocol", "claims", "our checks"]
    if as_json:
        say_json([dict(zip(header, (None if cell == "-" else cell for cell in row), strict=True)) for row in rows])
        return
    table(header, rows, spare=["record"])


def cells(order: Order, as_json: bool) -> None:
    """Runs done of those planned, cell by cell."""
    from rcad.paper.making import standing

    found, missing = standing(order)
    if as_json:
        header = ["row", "column", "done", "planned"]
        say_json([dict(zip(header, one, strict=True)) for one in found])
        return
    rows, columns = list(dict.fromkeys(one[0] for one in found)), list(dict.fromkeys(one[1] for one in found))
    by = {(row, column): f"{done}/{total}" for row, column, done, total in found}
    table(["", *rows], [[column, *(by.get((row, column), "") for row in rows)] for column in columns])
    for sentence in missing:
        say(sentence)
    done, total = sum(one[2] for one in found), sum(one[3] for one in found)
    say(f"{order.name}, {order.scale}, {order.views}: {done} of {total} runs of its cells are done")


def _records(name: str, out: Path) -> list[list[str]]:
    target = TARGETS[name]
    folder = out / target.folder
    found = [folder / f"{target.stem}.json", folder / f"{target.stem}-two-views.json"]
    rows = [_row(name, path, loads(read_text(path), str(path))) for path in found if path.is_file()]
    return rows or [[name, "-", "-", "-", "-", "-"]]


def _row(name: str, path: Path, record: dict[str, Any]) -> list[str]:
    found = Tally.of(name, claims_in(record), record.get("controls", CONTROLS))
    return [
        name,
        str(path),
        scale_of(record) or "-",
        record.get("protocol", "-"),
        *(by_verdict(side) or "-" for side in found),
    ]
