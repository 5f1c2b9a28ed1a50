"""The list of the paper's sentences: no section left out, and every claim that it names exists."""

import re
from functools import cache
from pathlib import Path

import pytest

from rcad.paper.report.reading import read
from rcad.paper.tables import SUITES

ROOT = Path(__file__).parents[2]
PAPER = ROOT.parent / "shared" / "paper" / "rcad-paper.tex"
NAMED = re.compile(r"\b(T\d|F\d|costs) `([^`]+)`")


def sections() -> dict[str, list[tuple[str, str]]]:
    """By heading: what the paper says, and by what it is judged."""
    found: dict[str, list[tuple[str, str]]] = {}
    for part in (ROOT / "docs/evidence/sentences.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        rows = [line.strip("| ").split(" | ") for line in body.splitlines() if line.startswith("|")][2:]
        found[title] = [(said, judged) for said, judged in rows]
    return found


ROWS = [(title, said, judged) for title, rows in sections().items() for said, judged in rows]


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


def test_the_sections_are_the_papers() -> None:
    if not PAPER.is_file():
        pytest.skip("the paper's text is not here")
    text = PAPER.read_text(encoding="utf-8")
    text = text[text.index(r"\begin{document}") :]
    numbers, counts, appendix = ["Abstract"], [0, 0], False
    for command in re.findall(r"\\(appendix\b|section\{|subsection\{)", text):
        if command == "appendix":
            counts, appendix = [0, 0], True
            continue
        counts = [counts[0] + 1, 0] if command == "section{" else [counts[0], counts[1] + 1]
        first = chr(ord("A") + counts[0] - 1) if appendix else str(counts[0])
        numbers.append(first + (f".{counts[1]}" if counts[1] else ""))
    assert [title.split()[0] for title in sections()] == numbers
    assert len(numbers) > 15


@pytest.mark.parametrize(("title", "said", "judged"), ROWS)
def test_every_sentence_is_judged_or_says_why_not(title: str, said: str, judged: str) -> None:
    named = NAMED.findall(judged.replace("\\|", "|"))
    assert named or re.match(r"not judged: \S+ \S+", judged), "expected a claim or a reason"
    for target, statement in named:
        assert statement in statements()[target], f"no such claim of {target}"


def test_every_table_and_figure_is_named_and_no_claim_of_the_paper_is_judged_without_a_sentence() -> None:
    """Claims against controls are ours, and some tables print more pairs than sentences speak of."""
    said = {pair for _, _, judged in ROWS for pair in NAMED.findall(judged.replace("\\|", "|"))}
    assert {target for target, _ in said} == {*SUITES, "T7", "T8", "F5", "F7", "costs"}
    for study in read(ROOT / "results").studies:
        if study.target in ("F5", "F7", "costs"):
            left = {c.statement for c in study.claims if not study.added(c)} - {s for t, s in said if t == study.target}
            assert left <= (UNSAID if study.target == "F5" else set()), study.target


UNSAID = {
    "alpha=0.7 has the better test accuracy",
    "|w1| rises and ||w2|| falls at every iteration",
    "sample gradients approach the derivative of M (gamma=0.5, alpha=0.7)",
}
"""Further readings of a sentence that stands in the list already."""
