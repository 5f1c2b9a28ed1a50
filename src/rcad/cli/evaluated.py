"""An evaluation on the terminal: the tables of the page, in columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rcad.cli.screen import say, table
from rcad.evaluate.saved_run.page import TITLES, comparison_notes, notes, texts
from rcad.evaluate.saved_run.tables import differences, tables


def show(summary: Mapping[str, Any]) -> None:
    """Each suite under its title, then the differences to ERM."""
    groups = summary["groups"]
    for suite in summary["suites"]:
        say(f"\n{TITLES[suite]}")
        for note in notes(summary, suite):
            say(note)
        for one in tables(groups, suite):
            say()
            if one.caption:
                say(one.caption)
            table(one.header, texts(one))
    compared = differences(groups, summary["suites"])
    told = comparison_notes(summary)
    if compared is not None or told:
        say("\nAgainst ERM")
        for note in told:
            say(note)
    if compared is not None:
        say()
        say(compared.caption)
        table(compared.header, texts(compared))
