"""The application: its commands in the order of a newcomer's first hour."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

from rcad.cli.options import about, help_without_command

COMMANDS = {
    "train": "train:train",
    "evaluate": "evaluate:evaluate",
    "suggest-alpha": "suggest:suggest_alpha",
    "tune": "tune:tune",
    "compare": "compare:compare",
    "demo": "demo:demo",
    "data": "data:app",
    "methods": "methods:app",
    "runs": "runs:app",
    "paper": "paper:app",
    "doctor": "doctor:doctor",
}
"""Where each command is; a module is imported when its command is wanted."""
HELP = about(
    "Train with RCAD (Reducing Confidence along Adversarial Directions) and every method it was compared with.",
    "rcad demo",
    "rcad train --data digits --method rcad --seeds 3",
    "rcad compare --data my.csv --target price --seeds 3",
    "rcad runs list",
    "rcad doctor",
    more="""Every command's --help has examples. Exit codes: 0 done; 1 a run diverged, a check failed or something
        unexpected; 2 something to mend, which one line on stderr names; 130 and 143 interrupted.""",
)


def _version(wanted: bool) -> None:
    if wanted:
        from rcad import __version__

        typer.echo(f"rcad {__version__}")
        raise typer.Exit


def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    help_without_command(context)


@cache
def make(names: tuple[str, ...] = tuple(COMMANDS)) -> typer.Typer:
    """The application with these commands."""
    made = typer.Typer(
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
        help=HELP,
    )
    made.callback(invoke_without_command=True)(root)
    for name in names:
        home, _, attribute = COMMANDS[name].partition(":")
        module = import_module(f"rcad.cli.{home}")
        one = getattr(module, attribute)
        if isinstance(one, typer.Typer):
            made.add_typer(one, name=name)
        else:
            made.command(name, help=module.HELP)(one)
    return made


def __getattr__(name: str) -> Any:
    """`app`: the application with all its commands."""
    if name == "app":
        return make()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
