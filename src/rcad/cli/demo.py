"""`rcad demo`: where RCAD helps, whether its direction is why, and where it does not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

from rcad.cli.options import Json, Quiet, about, option

HELP = about(
    "See in two minutes where RCAD helps and where it does not: a table, verdicts, a page of figures.",
    "rcad demo",
    "rcad demo --out demo --quiet",
    "rcad demo --fast --json",
    more="""Four experiments without a download: the paper's linear theory, two moons with noise, and rcad compare on
    digits with 100 labels and on diabetes. They end in a table, a verdict for each by a rule fixed beforehand, the
    next commands, and OUT/index.html.""",
)


WIDE = 110
"""Columns that the whole table takes."""


def demo(
    out: Annotated[Path, option("--out DIR", "Folder for the page and its numbers.")] = Path("rcad-demo"),
    fast: Annotated[
        bool, option("--fast", "Run in seconds on tiny data, to try the command; the numbers mean nothing.")
    ] = False,
    show: Annotated[bool, option("--open", "Open the page in a browser at the end.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    # The networks are small: several threads would only wait for each other. Before anything loads numpy.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from rcad.cli.screen import say, say_json, show_parts
    from rcad.errors import expanded
    from rcad.train.progress import show_progress

    folder = expanded(out)
    with show_progress(quiet=quiet or as_json) as progress:
        progress.overall(0, 100, "loading torch, scipy and matplotlib")
        from rcad.demo.acts import run_demo

        found = run_demo(folder, progress, fast=fast)
    from rcad.demo.acts import TRIAL
    from rcad.demo.page import HEADER, NEXT, table
    from rcad.report.document import Part
    from rcad.report.terminal import paragraph

    if as_json:
        rows = [dict(zip(HEADER, map(str, row), strict=True)) for row in table(found.record).rows]
        files = {"page": str(found.page), "record": str(found.record_file)}
        say_json({**files, "verdicts": found.record["verdicts"], "table": rows})
    elif quiet:
        say(str(found.page))
    else:
        titles = ("Linear theory", "Moons", "")
        texts = [
            f"{title}: {text}".removeprefix(": ")
            for title, text in zip(titles, found.record["verdicts"].values(), strict=True)
        ]
        trial = [TRIAL] if fast else []
        narrow = shutil.get_terminal_size().columns < WIDE
        shown_parts: list[Part] = [*trial, table(found.record, judged=narrow), *([] if fast else texts), *NEXT]
        show_parts(shown_parts)
        say("\n".join(["", *paragraph("The whole of it, with pictures:"), f"  {found.page}"]))
    if show:
        import webbrowser

        webbrowser.open(found.page.resolve().as_uri())
