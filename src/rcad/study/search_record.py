"""The record of a search: one JSON file, written after every trial. The runs themselves are in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rcad.errors import InputError
from rcad.runs.files import dumps, finite_or_none, loads, make_folder, read_text, write_text
from rcad.runs.record import versions
from rcad.study.resolution import HeldOut
from rcad.study.trials import Goal, Trial, best

TARGET = "tune"


def build(
    settings: Mapping[str, Any],
    goal: Goal,
    trials: Sequence[Trial],
    held_out: HeldOut,
    *,
    planned: int,
    command: str | None,
) -> dict[str, Any]:
    """The record.

    Args:
        settings: what makes two searches the same: data, method, space, how it searches, seeds.
        held_out: by how many examples the best is chosen.
        planned: how many trials there are to be.
        command: trains the best configuration.
    """
    leader = best(trials, goal)
    record = {
        "target": TARGET,
        "settings": dict(settings),
        "metric": goal.metric,
        "higher_is_better": goal.higher_is_better,
        "held_out": held_out.to_dict(),
        "planned": planned,
        "trials": [one.to_dict() for one in trials],
        "best": None if leader is None else leader.number,
        "command": command,
        "versions": versions(("rcad", "torch", "numpy")),
    }
    plain: dict[str, Any] = loads(dumps(finite_or_none(record)), "the record of a search")
    return plain


def write(path: Path, record: Mapping[str, Any]) -> None:
    make_folder(path.parent)
    write_text(path, dumps(record, indent=1) + "\n")


def refuse_other(path: Path, settings: Mapping[str, Any]) -> None:
    """Only the record of the same search may be replaced; its trials are in the store anyway."""
    if not path.exists():
        return
    found = loads(read_text(path), str(path))
    if not isinstance(found, dict) or found.get("target") != TARGET:
        raise InputError(f"expected a folder for the search, but {path} is something else; pass another --out")
    same = loads(dumps(finite_or_none(settings)), "settings")
    if found.get("settings") != same:
        raise InputError(
            f"expected a folder of this search, but {path} holds one with other settings; pass another --out"
        )
