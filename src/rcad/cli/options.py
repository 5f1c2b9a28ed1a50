"""Options that several commands share, and how their help is written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rcad.errors import InputError

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
DATA = typer.Option("--data", metavar="NAME|FILE|DIR", help="A name (rcad data list), a file or a folder.")
METHOD = typer.Option(
    "--method", metavar="METHOD", help='E.g. rcad, "mixup + rcad", "rcad(alpha=1)"; see: rcad methods list.'
)
Target = Annotated[
    str | None, typer.Option("--target", metavar="COLUMN", help="The column of a table that is to be predicted.")
]
Task = Annotated[
    str | None,
    typer.Option("--task", metavar="TASK", help="classification or regression, of a table; else by the target."),
]
Size = Annotated[int | None, typer.Option("--size", metavar="N", help="Bring images to this many pixels a side.")]
Drop = Annotated[str | None, typer.Option("--drop", metavar="A,B,..", help="Columns of a table to leave out.")]
Images = Annotated[
    str | None, typer.Option("--images", metavar="DIR", help="Instead of --data: one folder of images, for --labels.")
]
Labels = Annotated[
    str | None, typer.Option("--labels", metavar="FILE", help="A table of the images in one folder and their classes.")
]
FileColumn = Annotated[
    str | None, typer.Option("--file-column", metavar="COLUMN", help="Its column of file names; else found.")
]
LabelColumn = Annotated[
    str | None, typer.Option("--label-column", metavar="COLUMN", help="Its column of classes; else found.")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out images that are broken and rows without a target; say how many.")
]
Recipe = Annotated[
    str | None,
    typer.Option("--recipe", metavar="NAME", help="A named protocol, e.g. small, paper, released; else by the data."),
]
Model = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="E.g. resnet18, mlp, timm:NAME; else by the data.")
]
Epochs = Annotated[
    int | None,
    typer.Option("--epochs", metavar="N", help="How often a run sees all its examples; else by the recipe."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any field of the config, e.g. optim.clip=1.0; repeatable. See: rcad train --dry-run.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
Join = Annotated[
    int, typer.Option("--join", metavar="N", help="Seeds trained as one network on a GPU; 5 for long runs.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the final line.")]
Device = Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda", help="Where to compute.")]

Minutes = Annotated[
    float | None,
    typer.Option(
        "--minutes", metavar="N", help="Stop after this time, with everything saved; the same command goes on."
    ),
]

RUNS = Path("runs")
DEVICES = ("auto", "cpu", "cuda")
ENGINES = ("auto", "eager", "graph", "compile")


def data_name(data: str | None, images: str | None) -> str | None:
    """What --data or --images names."""
    if data is not None and images is not None:
        raise InputError(f"expected --data or --images, but got both: {data} and {images}; leave one out")
    return data if images is None else images


def required_data(data: str | None, images: str | None) -> str:
    """The same, where there is no other way to say it."""
    name = data_name(data, images)
    if name is None:
        raise InputError("expected --data, but it is missing; see --help")
    return name


def own_data(
    drop: str | None, labels: str | None, file_column: str | None, label_column: str | None, skip_bad: bool
) -> dict[str, Any]:
    """The fields of a config's data that options for own data set; only those that were given."""
    dropped = [name.strip() for name in (drop or "").split(",") if name.strip()]
    given = {"drop": dropped, "labels": labels, "file_column": file_column, "label_column": label_column}
    return {key: value for key, value in {**given, "skip_bad": skip_bad}.items() if value}


def about(text: str, *examples: str, more: str = "") -> str:
    """The help of a command: a sentence for lists of commands, more on it, and examples on lines of their own.

    A test runs every example.
    """
    paragraphs = [" ".join(paragraph.split()) for paragraph in (text, more) if paragraph]
    lines = "\n".join(f"  {example}" for example in examples)
    return "\n\n".join([*paragraphs, f"\b\nExamples:\n{lines}"])


def plain_switches(command: Any, above: typer.Context | None = None) -> None:
    """Take away the <bool> that Typer's help puts behind switches, as if they took a value; of sub-commands too."""
    context = typer.Context(command, parent=above, **command.context_settings)
    for option in (*command.params, command.get_help_option(context)):
        if getattr(option, "is_flag", False) and option.metavar is None:
            option.metavar = ""
    for child in getattr(command, "commands", {}).values():
        plain_switches(child, context)


def help_without_command(context: typer.Context) -> None:
    """Print the help of a group that was called without a command."""
    if context.invoked_subcommand is None:
        text = context.get_help()
        if text:  # with rich's help it has been printed already
            typer.echo(text)


def check_minutes(minutes: float | None) -> None:
    """A time limit must be one."""
    from rcad.errors import InputError

    if minutes is not None and not 0 < minutes < float("inf"):
        raise InputError(f"expected --minutes to be a number above 0, but got {minutes:g}")
