"""`rcad methods`: what there is, and the card of each."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rcad.cli.options import Json, about, help_without_command

app = typer.Typer(
    invoke_without_command=True,
    callback=help_without_command,
    help=about("The methods and their cards.", "rcad methods list", "rcad methods show rcad"),
)


@app.command("list", help=about("Every method in one line.", "rcad methods list", "rcad methods list --json"))
def list_methods(as_json: Json = False) -> None:
    from rcad.cli.cards import cards
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
    name: Annotated[str, typer.Argument(metavar="NAME", help="A method of rcad methods list.")],
    raw: Annotated[bool, typer.Option("--raw", help="The Markdown itself, as when stdout is not a terminal.")] = False,
) -> None:
    from rcad.cli.cards import card
    from rcad.cli.screen import console, is_terminal, say

    text = card(name).text
    if raw or not is_terminal(sys.stdout):
        say(text.rstrip("\n"))
        return
    from rich.markdown import Markdown

    console().print(Markdown(text))
