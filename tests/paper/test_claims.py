"""What the paper claims is told from what we check besides, by one rule in records, pages and on the screen."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rcad.paper.claims import Tally, claims_in, is_check, scale_of
from rcad.paper.pages import verdict_counts, whose
from rcad.paper.report.reading import read

RESULTS = Path(__file__).parents[2] / "results"
RANDOM = "RCAD is more accurate than a random direction"


def claim(statement: str, verdict: str, published: float | None = 1.0) -> dict[str, Any]:
    return {"statement": statement, "verdict": verdict, "published": published}


@pytest.mark.parametrize(
    ("target", "statement", "published", "ours"),
    [
        ("T1", "RCAD is more accurate than ERM", 1.0, False),
        ("T1", "RCAD is more accurate than ERM", None, True),
        ("F7", "RCAD is more accurate than ERM", None, False),  # a figure prints no numbers
        ("T1", RANDOM, 1.0, True),
        ("F2", RANDOM, None, True),
        ("F5", "all of these in one draw", None, True),
    ],
)
def test_which_are_checks_of_ours(target: str, statement: str, published: float | None, ours: bool) -> None:
    assert is_check(target, statement, published) == ours
    assert whose(target, statement, published).endswith(" (our check)") == ours


def test_controls_have_the_names_that_the_suite_gives_them() -> None:
    statement = "RCAD + LS is more accurate than a random direction + LS"
    assert not is_check("T2", statement, 1.0)
    assert is_check("T2", statement, 1.0, ["random direction + LS"])


def test_verdicts_are_counted_on_either_side() -> None:
    judged = [claim("a", "reproduced"), claim("b", "opposite"), claim("c", "reproduced"), claim(RANDOM, "undecided")]
    found = Tally.of("T8", judged)
    assert str(found) == "3 claims of the paper: 2 reproduced, 1 opposite; 1 check of ours: 1 undecided"
    heading, line = verdict_counts(found)
    assert heading == "## 3 claims of the paper: 2 reproduced, 1 opposite"
    assert line.startswith("The table also has 1 check of ours: 1 undecided; ")
    assert verdict_counts(Tally.of("T8", judged[:1])) == ["## 1 claim of the paper: 1 reproduced"]
    assert str(Tally.of("T8", [])) == "0 claims of the paper"


def test_a_trial_has_no_verdict_whatever_an_old_record_says() -> None:
    claim = {"where": "a", "statement": "RCAD is more accurate than ERM", "verdict": "reproduced"}
    for record, verdict in (
        ({"scale": "smoke"}, "a trial"),
        ({"scale": "small"}, "reproduced"),
        ({"figure": {"settings": {"draws": 20}}}, "a trial"),
        ({"figure": {"settings": {"draws": 100}}}, "reproduced"),
        ({"figure": {"settings": {"draws": 1000}}}, "reproduced"),
    ):
        (found,) = claims_in({**record, "claims": [claim]})
        assert found == {**claim, "verdict": verdict}
    assert [scale_of({"figure": {"settings": {"draws": n}}}) for n in (20, 99, 100, 999, 1000)] == [
        "smoke", "smoke", "small", "small", "full",
    ]  # fmt: skip
    assert str(Tally.of("T8", [{**claim, "verdict": "a trial", "published": 1.0}] * 3)) == (
        "3 claims of the paper: a trial"
    )


def test_the_pages_that_are_kept_count_as_the_report_does() -> None:
    sides: Counter[bool] = Counter()
    for study in read(RESULTS).studies:
        if not study.claims or study.scale != "full":  # a trial that somebody made here
            continue
        added = [claim for claim in study.claims if study.added(claim)]
        sides[False] += len(study.claims) - len(added)
        sides[True] += len(added)
        if study.target == "costs":  # judged by benchmarks, which have no page of claims
            continue
        page = study.path.with_suffix(".md").read_text(encoding="utf-8")
        assert f"## {len(study.claims) - len(added)} claims of the paper: " in page
        assert page.count("(our check)") == len(added)
        judged = [claim(one.statement, one.verdict, one.published) for one in study.claims]
        assert all(line in page for line in verdict_counts(Tally.of(study.target, judged, study.controls)))
    readme = " ".join((RESULTS.parent / "README.md").read_text(encoding="utf-8").split())
    assert f"Of the paper's {sides[False]} claims judged so far" in readme
    assert f"of {sides[True]} further checks of ours" in readme
