"""Defaults that changed after runs had been recorded: what a written row meant then, and what it says now.

A record names a method by rows that leave out what had its default. So that old rows keep their meaning, and no new run
takes an old one's id, a parameter listed here is written into every new row where it makes a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

Row = tuple[str, tuple[tuple[str, Any], ...]]
Rows = tuple[Row, ...]


class Changed(NamedTuple):
    """A parameter whose default changed.

    Attributes:
        name: of the parameter.
        before: its value in a written row that leaves it out.
        now: its default.
        counts: whether the two differ beside these rows.
    """

    name: str
    before: Any
    now: Any
    counts: Callable[[Rows], bool]


def _smoothed(rows: Rows) -> bool:
    return any(name == "label_smoothing" or dict(values).get("smoothing") for name, values in rows)


DIRECTION = Changed("direction", "training", "plain", _smoothed)
CHANGED: Mapping[str, Changed] = {
    "rcad": DIRECTION,
    "rcad_text": DIRECTION,
    "rcad_released": Changed("jitter", 0.01, 0.0, lambda rows: True),
}


def spelled(rows: Iterable[Row]) -> Rows:
    """The rows that a user writes today, with changed defaults written out."""
    return _filled(tuple(rows), lambda one: one.now)


def as_recorded(rows: Iterable[Row]) -> Rows:
    """The rows of a record, perhaps an old one, with what they meant written out."""
    return _filled(tuple(rows), lambda one: one.before)


def says(rows: Rows, name: str, key: str) -> bool | None:
    """Whether a row must say this parameter beside these rows, though it has its default; None: no default changed."""
    changed = CHANGED.get(name)
    return None if changed is None or changed.name != key else changed.counts(rows)


def as_first_written(rows: Iterable[Row]) -> Rows:
    """The rows less a parameter that makes no difference beside them, as they were before there was one."""
    rows = tuple(rows)
    return tuple((name, tuple(one for one in values if says(rows, name, one[0]) is not False)) for name, values in rows)


def left_open(rows: Rows) -> list[str]:
    """What written rows leave out though its default has changed, in words."""
    return [
        f"{name}.{one.name}, which is read as {one.before!r}, the default when such rows were first written, not as "
        f"today's {one.now!r}"
        for name, values in rows
        if (one := CHANGED.get(name)) is not None and one.counts(rows) and one.name not in dict(values)
    ]


def _filled(rows: Rows, value: Callable[[Changed], Any]) -> Rows:
    full = []
    for name, values in rows:
        changed = CHANGED.get(name)
        if changed is not None and changed.counts(rows) and changed.name not in dict(values):
            values = tuple(sorted((*values, (changed.name, value(changed)))))
        full.append((name, values))
    return tuple(full)
