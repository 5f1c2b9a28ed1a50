"""`rcad paper`: the paper's tables and figures, made again and judged."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from rcad.cli.options import DataFolder, Json, about, help_without_command

app = typer.Typer(
    invoke_without_command=True,
    callback=help_without_command,
    help=about(
        "The paper's tables and figures: computed again, judged, beside the published numbers.",
        "rcad paper list",
        "rcad paper run T8 --scale smoke",
    ),
)
SCALES = ("smoke", "full")


@app.command("list", help=about("What can be made.", "rcad paper list", "rcad paper list --json"))
def list_targets(as_json: Json = False) -> None:
    from rcad.cli.screen import say_json, table
    from rcad.experiments.suites.targets import TARGETS

    rows = [
        [one.name, f"{one.folder}/{one.stem}", f"{one.minutes:g} min", "yes" if one.needs_data else "no", one.about]
        for one in TARGETS.values()
    ]
    header = ["name", "files", "full scale", "needs data", "what"]
    if as_json:
        say_json([dict(zip(header, row, strict=True)) for row in rows])
        return
    table(header, rows, spare=["files", "needs data"])


@app.command(
    "run",
    help=about(
        "Make a table or a figure: OUT/<suite>/<suite>.json, .md and .png.",
        "rcad paper run T7 --scale smoke",
        "rcad paper run F7 --scale smoke --out results",
        more="""Numbers that were computed before with the same settings are not computed again. The smoke scale is a
        trial of seconds on tiny data; the full scale takes minutes on one core, and T7 needs the UCI files.""",
    ),
)
def run_target(
    name: Annotated[str, typer.Argument(metavar="NAME", help="T7, T8, F5 or F7; see: rcad paper list.")],
    scale: Annotated[str, typer.Option("--scale", metavar="smoke|full", help="A trial, or the real thing.")] = "full",
    data_dir: DataFolder = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the results.")] = Path("results"),
    again: Annotated[bool, typer.Option("--again", help="Compute again what is there already.")] = False,
) -> None:
    from rcad.cli.screen import say, warn
    from rcad.experiments.suites.targets import TARGETS, make
    from rcad.validate import one_of

    wanted = name.upper()
    one_of("NAME", wanted, tuple(TARGETS))
    one_of("--scale", scale, SCALES)
    with _progress(wanted) as progress:
        outcome = make(
            wanted,
            "full" if scale == "full" else "smoke",
            out,
            None if data_dir is None else data_dir.expanduser(),
            progress,
            again=again,
        )
    if outcome.reused:
        say(f"{wanted}: the numbers were there already, with the same settings; --again computes them again")
    for file in outcome.files:
        say(str(file))
    if outcome.note:
        warn(outcome.note)
    say(f"{wanted}: {outcome.line}")


@contextlib.contextmanager
def _progress(name: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on a terminal; elsewhere a line on stderr for each new piece of work."""
    from rcad.cli.screen import is_terminal

    started, last = time.monotonic(), ""
    if not is_terminal(sys.stderr):

        def line(what: str, done: int, total: int) -> None:
            nonlocal last
            if what != last:
                last = what
                print(f"[{time.monotonic() - started:5.0f} s] {name}: {what}", file=sys.stderr, flush=True)

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(name, total=None)

        def draw(what: str, done: int, total: int) -> None:
            bar.update(task, description=f"{name}: {what}", completed=done, total=total)

        yield draw
