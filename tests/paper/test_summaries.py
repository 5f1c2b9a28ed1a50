"""Sentences about a whole figure: each rule on cells made by hand, and what the suites ask of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from scipy.stats import binomtest

from rcad.paper.claims import Cells, Seeds, Summary, as_good, fewer_is_more, most_pairs, none_ahead, steeper_trend
from rcad.paper.tables import SUITES

SEEDS = range(4)
NOISE = (0.0, 0.1, -0.1, 0.05)


def cell(mean: float, wobble: float = 1.0) -> Seeds:
    return {seed: mean + wobble * NOISE[seed] for seed in SEEDS}


def duel(gains: Sequence[float], wobble: float = 1.0) -> Cells:
    """Rows "ours" and "theirs" with these mean differences, a column each."""
    theirs = {("theirs", str(k)): dict.fromkeys(SEEDS, 50.0) for k in range(len(gains))}
    return theirs | {("ours", str(k)): cell(50 + gain, wobble) for k, gain in enumerate(gains)}


def pairs(count: int) -> tuple[tuple[tuple[str, str], tuple[str, str]], ...]:
    return tuple((("ours", str(k)), ("theirs", str(k))) for k in range(count))


MOST, NONE, FEW = (
    most_pairs("all", "better", pairs(24), (22, 24)),
    none_ahead("all", "equal", pairs(15)),
    as_good("all", "as good", pairs(4)),
)


@pytest.mark.parametrize(
    ("summary", "gains", "verdict"),
    [
        (MOST, [1.0] * 22 + [-1.0] * 2, "reproduced"),
        (MOST, [1.0] * 2 + [-1.0] * 22, "opposite"),
        (MOST, [1.0] * 12 + [-1.0] * 12, "not reproduced"),
        (MOST, [1.0] * 3 + [-1.0], "undecided"),
        (NONE, [1.0, -1.0] * 7 + [1.0], "reproduced"),
        (NONE, [1.0] * 14 + [-1.0], "not reproduced"),
        (NONE, [1.0] * 5, "undecided"),
        (FEW, [0.1, -1.0, 3.0, 3.0], "reproduced"),
        (FEW, [0.1, 3.0, 3.0, 3.0], "not reproduced"),
        (FEW, [0.1, 3.0], "undecided"),
    ],
)
def test_rules_over_pairs(summary: Summary, gains: list[float], verdict: str) -> None:
    claim = summary.test(duel(gains))
    assert claim.verdict == verdict
    assert ("more were not run" in claim.ours) == (len(gains) < {MOST: 24, NONE: 15, FEW: 4}[summary])
    wins = sum(gain > 0 for gain in gains)
    if summary is MOST:
        p = binomtest(wins, len(gains), alternative="greater").pvalue
        assert f"better in {wins} of {len(gains)} pairs, p = {p:.2g}" in claim.ours


def test_a_wide_interval_is_not_as_good() -> None:
    assert FEW.test(duel([0.0] * 4, wobble=20.0)).verdict == "not reproduced"


SIZES = (("a", 100), ("b", 1000), ("c", 10_000))


def trend(ours: float, theirs: float) -> Cells:
    """Rows that lose so many points per tenfold fewer examples."""
    return {
        (row, name): cell(60 - slope * (4 - math.log10(count)), wobble=k + 1)
        for row, slope, k in (("ours", -ours, 0), ("theirs", -theirs, 1))
        for name, count in SIZES
    }


def test_a_trend_is_the_difference_of_slopes() -> None:
    assert fewer_is_more([(100, 7.0), (1000, 5.0), (10_000, 3.0)]) == pytest.approx(2.0)
    steeper = steeper_trend("by size", "steeper", ("ours", "theirs"), SIZES, published=0.65)
    found = steeper.test(trend(-5.0, -6.0))
    assert found.verdict == "reproduced"
    assert found.gain["mean"] == pytest.approx(1.0)
    assert steeper.test(trend(-6.0, -5.0)).verdict == "opposite"
    assert found.ours.startswith("+1.00 [")
    fewer = {side: seeds for side, seeds in trend(-5.0, -6.0).items() if side[1] != "c"}
    assert steeper.test(fewer) is None


def test_what_the_paper_says_of_corruptions() -> None:
    """F6 has no committed record: those of F2 and F3 are judged again in test_tables."""
    far = [claim for claim in SUITES["F6"].claims if claim.published == 25.0]
    assert [(claim.winner[0], claim.where) for claim in far] == [
        (row, f"CIFAR-10, {name}") for name in ("gaussian_noise", "glass_blur") for row in ("RCAD", "ME-ADA")
    ]


def test_summaries_are_claims() -> None:
    suite = SUITES["F6"]
    cells = {
        (row, column.name): cell(50.0 + k)
        for k, row in enumerate(("ERM", "ME-ADA", "RCAD"))
        for column in suite.columns
    }
    told = [one.judge(cells, "", trial=False) for one in suite.summaries]
    assert [one.verdict for one in told] == ["reproduced", "reproduced", "not reproduced"]
    assert all(one.ours and one.rule and one.gain is None for one in told)
    assert all("of 15" in one.ours for one in told)
    assert {one.judge(cells, "", trial=True).verdict for one in suite.summaries} == {"a trial"}
    seen = {side: seeds for side, seeds in cells.items() if side[0] != "RCAD"}
    assert suite.summaries[0].judge(seen, "", trial=False).verdict == "not run"
