"""Records of `rcad evaluate` that lie among the results, as chapters."""

from __future__ import annotations

from pathlib import Path

from rcad.evaluate.saved_run.tables import differences, tables
from rcad.paper.report.study import Record
from rcad.paper.report.tables import Links
from rcad.report.document import Cell, Section, Table

KIND = "rcad evaluation"


def section(path: Path, summary: Record, links: Links) -> Section:
    """Calibration, attacks, corruptions and other data, as far as they were measured; the runs behind them."""
    groups, suites = summary["groups"], list(summary["suites"])
    parts = [table for suite in suites for table in tables(groups, suite)]
    gaps = differences(groups, suites)
    rows: list[list[str | Cell]] = [
        [str(group["name"]), str(group["data"]), str(seed), Cell(str(run), href=links.run(str(run)))]
        for group in groups
        for seed, run in zip(group["seeds"], group["runs"], strict=True)
    ]
    runs = Table(["method", "data", "seed", "record"], rows, f"From {path.name}.", folded=f"Every run ({len(rows)})")
    return Section(
        f"Evaluation: {path.parent.name}",
        [f"What `rcad evaluate` measured ({', '.join(suites)}); no claim of the paper is judged by it."],
        [*parts, *([gaps] if gaps is not None else []), runs],
    )
