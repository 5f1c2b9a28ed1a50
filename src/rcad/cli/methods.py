"""`rcad methods`: what there is, and the card of each."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import rcad
from rcad.cli.options import Json, about, argument, group, option
from rcad.errors import InputError, one_of

_ROW = re.compile(r"\| `(?P<name>\w+)` \| `(?P<default>[^`]+)` \|")
app = group("The methods and their cards.", "rcad methods list", "rcad methods show rcad")


@app.command("list", help=about("Every method in one line.", "rcad methods list", "rcad methods list --json"))
def list_methods(as_json: Json = False) -> None:
    from rcad.cli.screen import say, say_json, table

    found = cards()
    if as_json:
        say_json([{"name": card.name, "parameters": dict(card.parameters), "about": card.about} for card in found])
        return
    table(["method", "what it does"], [[card.name, card.about] for card in found])
    say('\nMore on one: rcad methods show NAME. Together: rcad train --method "mixup + rcad".')


@app.command(
    "show",
    help=about(
        "A method's card: formula, parameters and units, cost, what it composes with, where it differs from the paper.",
        "rcad methods show rcad",
        "rcad methods show mixup --raw",
    ),
)
def show_method(
    name: Annotated[str, argument("NAME", "A method of rcad methods list.")],
    raw: Annotated[bool, option("--raw", "The Markdown itself, as when stdout is not a terminal.")] = False,
) -> None:
    from rcad.cli.screen import say
    from rcad.errors import is_terminal

    text = card(name).text
    if raw or not is_terminal(sys.stdout):
        say(text.rstrip("\n"))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console(file=sys.stdout, highlight=False, emoji=False, markup=False).print(Markdown(text))


@dataclass(frozen=True)
class Card:
    """A method's card, in the installed package or in the checkout that it is run from.

    Attributes:
        about: its first sentence.
        parameters: their names and defaults.
    """

    name: str
    about: str
    parameters: tuple[tuple[str, str], ...]
    text: str


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
