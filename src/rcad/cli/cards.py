"""The method cards: inside the installed package, or in the checkout that it is run from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import rcad
from rcad.errors import InputError, one_of

_ROW = re.compile(r"\| `(?P<name>\w+)` \| `(?P<default>[^`]+)` \|")


@dataclass(frozen=True)
class Card:
    """One card: its name, its first sentence, its parameters and the whole text."""

    name: str
    about: str
    parameters: tuple[tuple[str, str], ...]
    text: str

    @property
    def call(self) -> str:
        """The method with its defaults, e.g. "rcad(alpha=0.5, lam=0.02)"."""
        return f"{self.name}({', '.join(f'{name}={default}' for name, default in self.parameters)})"


def cards() -> list[Card]:
    """Every card, by name."""
    return [_read(path) for path in sorted(_folder().glob("*.md"))]


def card(name: str) -> Card:
    """The card of one method."""
    found = {path.stem: path for path in sorted(_folder().glob("*.md"))}
    one_of("a method", name, found)
    return _read(found[name])


def _folder() -> Path:
    package = Path(rcad.__file__).parent
    for folder in (package / "cards", package.parents[1] / "methods"):
        if folder.is_dir():
            return folder
    raise InputError("expected the method cards in the package, but they are missing; install rcad again")


def _read(path: Path) -> Card:
    text = path.read_text(encoding="utf-8")
    paragraphs = text.split("\n\n")
    rows = tuple((found["name"], found["default"]) for found in _ROW.finditer(text))
    return Card(path.stem, " ".join(paragraphs[1].split()), rows, text)
