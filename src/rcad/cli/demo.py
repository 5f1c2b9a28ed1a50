"""`rcad demo`: does RCAD help here, and is it the direction that helps?"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from rcad.cli.options import Json, Quiet, about

HELP = about(
    "See in a minute whether RCAD beats ERM and a random direction on small data.",
    "rcad demo",
    "rcad demo --runs demo-runs --quiet",
    "rcad demo --json",
    more="""Nine runs of a small network on scikit-learn's digits, three methods with three seeds each, end in a table
    and one honest sentence.""",
)


def demo(
    runs: Annotated[
        Path | None, typer.Option("--runs", metavar="DIR", help="Keep the runs here; else they go when it is over.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    from rcad.cli.results import run_object
    from rcad.cli.screen import say, say_json, warn
    from rcad.cli.sweep import open_store, sweep
    from rcad.cli.verdict import demo_configs, show_methods, verdict
    from rcad.cli.views import view

    with contextlib.ExitStack() as stack:
        folder = runs or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rcad-demo-")))
        store = open_store(folder)
        outcome = sweep(demo_configs(), store, view(quiet=quiet, as_json=as_json), device="cpu")
        objects = [run_object(record, store) for record in outcome.records]
    if as_json:
        say_json({"runs": objects, "verdict": "" if outcome.signal else verdict(outcome.records)})
    elif outcome.signal is None:
        if not quiet:
            say()
            show_methods(outcome.records)
            say()
        say(verdict(outcome.records))
    if outcome.signal is not None:
        warn("the demo was interrupted" + ("; the same command goes on from here" if runs else ""))
    raise typer.Exit(outcome.exit_code)
