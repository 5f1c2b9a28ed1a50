"""The list of the paper's sentences: every claim that it names exists."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from rcad.paper.report.reading import read
from rcad.paper.tables import SUITES

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"\b(T\d|F\d|costs) `([^`]+)`")


def sentences() -> Iterator[tuple[str, str]]:
    """What the paper says, and by what it is judged."""
    for part in (ROOT / "docs/evidence/sentences.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")][2:]
        yield from ((said, judged) for said, judged in rows)


ROWS = [*sentences()]


@cache
def statements() -> dict[str, set[str]]:
    """By table or figure, what its claims state: those planned, and those of the committed records."""
    found = {
        name: {claim.statement for claim in suite.claims} | {one.statement for one in suite.summaries}
        for name, suite in SUITES.items()
    }
    for study in read(ROOT / "results").studies:
        found.setdefault(study.target, set()).update(claim.statement for claim in study.claims)
    return found


@pytest.mark.parametrize(("said", "judged"), ROWS)
def test_every_sentence_is_judged_or_says_why_not(said: str, judged: str) -> None:
    named = NAMED.findall(judged.replace("\\|", "|"))
    assert named or re.match(r"not judged: \S+ \S+", judged), "expected a claim or a reason"
    for target, statement in named:
        assert statement in statements()[target], f"no such claim of {target}"


def test_every_table_and_figure_is_named() -> None:
    named = {target for _, judged in ROWS for target, _ in NAMED.findall(judged)}
    assert named == {*SUITES, "T7", "T8", "F5", "F7", "costs"}
