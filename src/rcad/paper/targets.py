"""The paper's tables and figures as paper.toml has them: what each shows, its files, needs, costs, what is printed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple


class Printed(NamedTuple):
    """A number as the paper prints it: a mean, half the width of its 95% interval, how many runs are behind it."""

    mean: float
    half: float | None = None
    n: int | None = None


Table = Mapping[str, Mapping[str, Printed]]
"""By column, then row."""
PValues = Mapping[tuple[str, str], Mapping[str, str]]
"""One-sided p-values by (better, worse) and column, as printed."""


@dataclass(frozen=True)
class Target:
    """One table or figure; paper.toml says what the fields are. Its files are OUT/folder/stem.json and others."""

    name: str
    about: str
    folder: str
    stem: str
    data: tuple[str, ...] = ()
    minutes: float = 0
    runs: int = 0
    seeds: int = 10
    title: str = ""
    shows: str = ""
    notes: tuple[str, ...] = ()
    rows: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    printed: Table = field(default_factory=dict)
    p_values: PValues = field(default_factory=dict)

    @property
    def is_suite(self) -> bool:
        return self.runs > 0

    @property
    def cost(self) -> str:
        """Of the full scale, for a reader."""
        return f"{self.runs} runs, GPU" if self.is_suite else f"{self.minutes:g} min, CPU"


def _target(name: str, words: dict[str, Any]) -> Target:
    folder, stem = words.pop("files", f"{name}/{name}").split("/")
    notes = tuple(NOTES.get(note, note) for note in words.pop("notes", ()))
    columns, p_values = words.pop("printed", {}), words.pop("p_values", {})
    target = Target(name, folder=folder, stem=stem, data=(*words.pop("data", ()),), notes=notes, **words)
    methods, n = columns.pop("methods", ()), target.seeds if target.is_suite else None
    printed = {
        column: {method: Printed(*numbers)._replace(n=n) for method, numbers in zip(methods, row, strict=True)}
        for column, row in columns.items()
    }
    pair = tuple(p_values.pop("pair", ()))
    by_pair = {pair: {**dict.fromkeys(printed, "< 1e-4"), **p_values}} if pair else {}
    return replace(target, printed=printed, p_values=by_pair)


_CONTENTS = tomllib.loads(Path(__file__).with_name("paper.toml").read_text(encoding="utf-8"))
NOTES: Mapping[str, str] = _CONTENTS.pop("notes")
RULES: Mapping[str, str] = _CONTENTS.pop("rules")
TARGETS = {name: _target(name, words) for name, words in _CONTENTS.items()}
