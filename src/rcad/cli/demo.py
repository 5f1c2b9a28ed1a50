"""`rcad demo`: where RCAD helps, whether its direction is why, and where it does not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rcad.cli import options
from rcad.cli.options import option
from rcad.cli.screen import say, say_json, show_parts
from rcad.errors import expanded
from rcad.report.document import Part
from rcad.report.terminal import paragraph
from rcad.train.progress import show_progress

WIDE = 110
"""Columns that the whole table takes."""


def demo(
    out: Path = option("--out DIR", "Folder for the page and its numbers.", Path("rcad-demo")),
    fast: bool = option("--fast", "Run in seconds on tiny data, to try the command; the numbers mean nothing.", False),
    show: bool = option("--open", "Open the page in a browser at the end.", False),
    as_json: bool = options.JSON,
    quiet: bool = options.QUIET,
) -> None:
    """See in two minutes where RCAD helps and where it does not: a table, verdicts, a page of figures.

    Four experiments without a download: the paper's linear theory, two moons with noise, and rcad compare on digits
    with 100 labels and on diabetes. They end in a table, a verdict for each by a rule fixed beforehand, the next
    commands, and OUT/index.html.

    rcad demo
    rcad demo --out demo --quiet
    rcad demo --fast --json
    """
    # The networks are small: several threads would only wait for each other. Before anything loads numpy.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    folder = expanded(out)
    with show_progress(quiet=quiet or as_json) as progress:
        progress.overall(0, 100, "loading torch, scipy and matplotlib")
        from rcad.demo import HEADER, NEXT, TRIAL, run_demo, table

        record, file, page = run_demo(folder, progress, fast=fast)
    if as_json:
        rows = [dict(zip(HEADER, map(str, row), strict=True)) for row in table(record).rows]
        say_json({"page": str(page), "record": str(file), "verdicts": record["verdicts"], "table": rows})
    elif quiet:
        say(str(page))
    else:
        linear, moons, few_labels = record["verdicts"].values()
        results = table(record, judged=shutil.get_terminal_size().columns < WIDE)
        parts: list[Part] = [results, f"Linear theory: {linear}", f"Moons: {moons}", few_labels]
        show_parts([*([TRIAL, results] if fast else parts), *NEXT])
        say("\n".join(["", *paragraph("The full report, with figures:"), f"  {page}"]))
    if show:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
