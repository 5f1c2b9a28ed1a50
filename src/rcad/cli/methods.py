"""`rcad methods`: what there is, and the card of each."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import rcad
from rcad.cli import options
from rcad.cli.options import argument, command, group, option
from rcad.cli.screen import say, say_json, table
from rcad.errors import InputError, is_terminal, one_of

_ROW = re.compile(r"\| `(?P<name>\w+)` \| `(?P<default>[^`]+)` \|")
app = group("The methods and their cards.", "rcad methods list", "rcad methods show rcad")


@command(app, "list")
def list_methods(as_json: bool = options.JSON) -> None:
    """Every method in one line.

    rcad methods list
    rcad methods list --json
    """
    cards = [describe(path) for path in card_files().values()]
    if as_json:
        say_json(cards)
        return
    table(["method", "what it does"], [[card["name"], card["about"]] for card in cards])
    say('\nMore on one: rcad methods show NAME. Together: rcad train --method "mixup + rcad".')


@command(app, "show")
def show_method(
    name: str = argument("NAME", "A method of rcad methods list."),
    raw: bool = option("--raw", "The Markdown itself, as when stdout is not a terminal.", False),
) -> None:
    """A method's card: formula, parameters and units, cost, what it composes with, where it differs from the paper.

    rcad methods show rcad
    rcad methods show mixup --raw
    """
    files = card_files()
    one_of("a method", name, files)
    text = files[name].read_text(encoding="utf-8")
    if raw or not is_terminal(sys.stdout):
        say(text.rstrip("\n"))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console(file=sys.stdout, highlight=False, emoji=False, markup=False).print(Markdown(text))


def card_files() -> dict[str, Path]:
    """The file of every card by the method's name, in the installed package or in the checkout that it is run from."""
    package = Path(rcad.__file__).parent
    for folder in (package / "cards", package.parents[1] / "methods"):
        if folder.is_dir():
            return {path.stem: path for path in sorted(folder.glob("*.md"))}
    raise InputError("expected the method cards in the package, but they are missing; install rcad again")


def describe(path: Path) -> dict[str, Any]:
    """What a card says in short: the method's name, its parameters with their defaults, its first sentence."""
    text = path.read_text(encoding="utf-8")
    parameters = {row["name"]: row["default"] for row in _ROW.finditer(text)}
    return {"name": path.stem, "parameters": parameters, "about": " ".join(text.split("\n\n")[1].split())}
