"""`rcad demo`: where RCAD helps, whether its direction is why, and where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rcad.cli.options import Json, Quiet, about

HELP = about(
    "See in two minutes where RCAD helps and where it does not, with statistics and a page of pictures.",
    "rcad demo",
    "rcad demo --out demo --quiet",
    "rcad demo --fast --json",
    more="""Three acts without a download: the paper's linear theory, two moons among noise, and real data with few
    labels, each against ERM, FGSM and two controls. They end in a table, one verdict each by a rule that was written
    beforehand, and OUT/index.html. Without --fast it takes about two minutes on two cores.""",
)
ACTS = ("linear theory", "moons", "few labels")


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the page and of its numbers.")] = Path(
        "rcad-demo"
    ),
    fast: Annotated[bool, typer.Option("--fast", help="A trial of seconds on tiny data.")] = False,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser at the end.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    from rcad.cli.screen import say, say_json, table
    from rcad.demo.run import check_packages

    check_packages()
    from rcad.demo.page import HEADER
    from rcad.demo.run import run_demo
    from rcad.train.progress import shown

    with shown(quiet=quiet or as_json) as progress:

        def told(act: str, what: str, share: float) -> None:
            number = ACTS.index(act)
            progress.overall(number + share, len(ACTS), f"act {number + 1} of {len(ACTS)}, {act}: {what}")

        outcome = run_demo(out.expanduser(), told, fast=fast)
    if as_json:
        files = {"page": str(outcome.page), "record": str(outcome.record_file)}
        rows = [dict(zip(HEADER, row, strict=True)) for row in outcome.rows]
        say_json({**files, "verdicts": outcome.record["verdicts"], "table": rows})
    else:
        if not quiet:
            table(HEADER, outcome.rows)
            say()
            for sentence in outcome.record["verdicts"].values():
                say(f"{sentence}\n")
            if fast:
                say("This was a trial on tiny data: its numbers mean nothing.")
        say(str(outcome.page))
    if show:
        import webbrowser

        webbrowser.open(outcome.page.resolve().as_uri())
