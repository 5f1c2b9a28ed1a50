"""The application: its commands in the order of a newcomer's first hour."""

from __future__ import annotations

from typing import Annotated

import typer

from rcad.cli.compare import HELP as COMPARE
from rcad.cli.compare import compare
from rcad.cli.data import app as data
from rcad.cli.demo import HELP as DEMO
from rcad.cli.demo import demo
from rcad.cli.doctor import HELP as DOCTOR
from rcad.cli.doctor import doctor
from rcad.cli.evaluate import HELP as EVALUATE
from rcad.cli.evaluate import evaluate
from rcad.cli.methods import app as methods
from rcad.cli.options import about, help_without_command
from rcad.cli.paper import app as paper
from rcad.cli.runs import app as runs
from rcad.cli.suggest import HELP as SUGGEST
from rcad.cli.suggest import suggest_alpha
from rcad.cli.train import HELP as TRAIN
from rcad.cli.train import train
from rcad.cli.tune import HELP as TUNE
from rcad.cli.tune import tune

app = typer.Typer(
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    help=about(
        "Train with RCAD (Reducing Confidence along Adversarial Directions) and every method it was compared with.",
        "rcad demo",
        "rcad train --data digits --method rcad --seeds 3",
        "rcad compare --data my.csv --target price --seeds 3",
        "rcad runs list",
        "rcad doctor",
        more="""Every command's --help has examples. Exit codes: 0 done; 1 a run diverged, a check failed or something
        unexpected; 2 something to mend, which one line on stderr names; 130 and 143 interrupted.""",
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        from rcad import __version__

        typer.echo(f"rcad {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    help_without_command(context)


app.command("train", help=TRAIN)(train)
app.command("evaluate", help=EVALUATE)(evaluate)
app.command("suggest-alpha", help=SUGGEST)(suggest_alpha)
app.command("tune", help=TUNE)(tune)
app.command("compare", help=COMPARE)(compare)
app.command("demo", help=DEMO)(demo)
app.add_typer(data, name="data")
app.add_typer(methods, name="methods")
app.add_typer(runs, name="runs")
app.add_typer(paper, name="paper")
app.command("doctor", help=DOCTOR)(doctor)
