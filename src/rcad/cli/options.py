"""Options that several commands share, and how their help is written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RunsFolder = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder of the runs.")]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", metavar="DIR", envvar="RCAD_DATA", show_envvar=True, help="Folder that holds the data sets."
    ),
]
CacheFolder = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        metavar="DIR",
        envvar="RCAD_CACHE",
        show_envvar=True,
        help="Where decoded images are kept. Default: ~/.cache/rcad.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the final line.")]
Device = Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda", help="Where to compute.")]

RUNS = Path("runs")
DEVICES = ("auto", "cpu", "cuda")
ENGINES = ("auto", "eager", "graph", "compile")


def about(text: str, *examples: str, more: str = "") -> str:
    """The help of a command: a sentence for lists of commands, more on it, and examples on lines of their own.

    A test runs every example.
    """
    paragraphs = [" ".join(paragraph.split()) for paragraph in (text, more) if paragraph]
    lines = "\n".join(f"  {example}" for example in examples)
    return "\n\n".join([*paragraphs, f"\b\nExamples:\n{lines}"])


def help_without_command(context: typer.Context) -> None:
    """Print the help of a group that was called without a command."""
    if context.invoked_subcommand is None:
        text = context.get_help()
        if text:  # with rich's help it has been printed already
            typer.echo(text)
