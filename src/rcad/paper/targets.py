"""The tables and figures that can be made, as paper.toml has them: what each shows, its files, needs and costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rcad.paper.published import CONTENTS


@dataclass(frozen=True)
class Target:
    """One table or figure; paper.toml says what the fields are.

    Args:
        name: as in the paper's digest, T7.
        folder, stem: its files are OUT/folder/stem.json and .md, some with a .png.
    """

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

    @property
    def is_suite(self) -> bool:
        return self.runs > 0

    @property
    def cost(self) -> str:
        """Of the full scale, for a reader."""
        return f"{self.runs} runs, GPU" if self.is_suite else f"{self.minutes:g} min, CPU"


def _target(name: str, values: Mapping[str, Any]) -> Target:
    folder, stem = values.get("files", f"{name}/{name}").split("/")
    words = {key: value for key, value in values.items() if key not in ("files", "printed")}
    notes = tuple(CONTENTS["notes"].get(note, note) for note in words.pop("notes", ()))
    return Target(name, folder=folder, stem=stem, data=(*words.pop("data", ()),), notes=notes, **words)


TARGETS = {name: _target(name, values) for name, values in CONTENTS.items() if name not in ("notes", "p_values")}
