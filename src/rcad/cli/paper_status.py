"""`rcad paper status`: which records and which runs are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rcad.cli.screen import say, say_json, table
from rcad.paper.claims import by_verdict
from rcad.paper.record import Study
from rcad.paper.targets import TARGETS

if TYPE_CHECKING:
    from rcad.paper.run import Order


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
    from rcad.paper.run import standing

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


def what_is_left(order: Order) -> None:
    """What `rcad paper run` would run: cells, seeds, and how many runs are done and left."""
    from rcad.paper.run import ahead

    cells(order, False)
    say(f"seeds {', '.join(map(str, order.seeds))}")
    stages = ahead(order)
    for number, (planned, done) in enumerate(stages):
        total = len(planned.configs())
        what = "the search" if order.views == "tuned" and number == 0 else "the table"
        say(f"{what}: {total} runs, {done} done, {total - done} left")
    if order.views == "tuned" and len(stages) == 1:
        left = len({(one.row, one.column) for one in stages[0][0].runs}) * len(order.seeds)
        say(f"the table: {left} runs, of what the search will choose")


def _records(name: str, out: Path) -> list[list[str]]:
    target = TARGETS[name]
    folder = out / target.folder
    found = [
        folder / f"{target.stem}.json",
        folder / f"{target.stem}-two-views.json",
        *sorted(folder.glob(f"{target.stem}-tuned*.json")),
    ]
    rows = [_row(name, path, Study.read(path)) for path in found if path.is_file()]
    return rows or [[name, "-", "-", "-", "-", "-"]]


def _row(name: str, path: Path, study: Study) -> list[str]:
    return [name, str(path), study.scale, study.protocol or "-", *(by_verdict(side) or "-" for side in study.tally)]
