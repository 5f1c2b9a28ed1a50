"""Sentences about a whole figure: each rule on cells made by hand, and what the suites ask of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from scipy.stats import binomtest

from rcad.paper.claims import Cells, Seeds, judge_all
from rcad.paper.published import P_VALUES, T1, T2, T4
from rcad.paper.summaries import AsGood, MostPairs, NoneAhead, SteeperTrend, fewer_is_more
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


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ([1.0] * 22 + [-1.0] * 2, "reproduced"),
        ([1.0] * 2 + [-1.0] * 22, "opposite"),
        ([1.0] * 12 + [-1.0] * 12, "not reproduced"),
        ([1.0] * 3 + [-1.0], "undecided"),
    ],
)
def test_most_pairs_is_a_sign_test(gains: list[float], verdict: str) -> None:
    found = MostPairs("all", "better", pairs(24), (22, 24)).test(duel(gains))
    assert found.verdict == verdict
    wins = sum(gain > 0 for gain in gains)
    p = binomtest(wins, len(gains), alternative="greater").pvalue
    assert f"better in {wins} of {len(gains)} pairs, p = {p:.2g}" in found.ours
    assert ("more were not run" in found.ours) == (len(gains) < 24)


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [([1.0, -1.0] * 7 + [1.0], "reproduced"), ([1.0] * 14 + [-1.0], "not reproduced"), ([1.0] * 5, "undecided")],
)
def test_none_ahead(gains: list[float], verdict: str) -> None:
    assert NoneAhead("all", "equal", pairs(15)).test(duel(gains)).verdict == verdict


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [([0.1, -1.0, 3.0, 3.0], "reproduced"), ([0.1, 3.0, 3.0, 3.0], "not reproduced"), ([0.1, 3.0], "undecided")],
)
def test_as_good_on_a_few(gains: list[float], verdict: str) -> None:
    assert AsGood("all", "as good", pairs(4)).test(duel(gains)).verdict == verdict


def test_a_wide_interval_is_not_as_good() -> None:
    assert AsGood("all", "as good", pairs(4)).test(duel([0.0] * 4, wobble=20.0)).verdict == "not reproduced"


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
    steeper = SteeperTrend("by size", "steeper", "ours", "theirs", SIZES, published=0.65)
    found = steeper.test(trend(-5.0, -6.0))
    assert found.verdict == "reproduced"
    assert found.gain["mean"] == pytest.approx(1.0)
    assert steeper.test(trend(-6.0, -5.0)).verdict == "opposite"
    assert found.ours.startswith("+1.00 [")
    fewer = {side: seeds for side, seeds in trend(-5.0, -6.0).items() if side[1] != "c"}
    assert steeper.test(fewer) is None


def test_the_suites_ask_what_the_paper_says() -> None:
    (pairs_of_f2,) = SUITES["F2"].summaries
    assert len(pairs_of_f2.pairs) == 30
    assert (("CutMix + RCAD", "SVHN"), ("CutMix", "SVHN")) in pairs_of_f2.pairs
    assert pairs_of_f2.printed == (22, 24)
    (smoothed,) = (c for c in SUITES["F2"].claims if c.winner == ("LS + RCAD", "CIFAR-100-2k"))
    assert smoothed.published == 3.0
    large_step, trend_of_f3 = SUITES["F3"].summaries
    assert [pair for pair in large_step.pairs if pair[0][1] == "SVHN"] == [
        (("RCAD", "SVHN"), ("LS on Adv, large step", "SVHN"))
    ]
    assert len(large_step.pairs) == 6
    gains = [(n, T4[name]["RCAD"].mean - T4[name]["LS"].mean) for name, n in trend_of_f3.columns]
    assert trend_of_f3.published == pytest.approx(fewer_is_more(gains))
    assert trend_of_f3.published > 0
    far = [c for c in SUITES["F6"].claims if c.published == 25.0]
    assert [(c.winner[0], c.where) for c in far] == [
        (row, f"CIFAR-10, {name}") for name in ("gaussian_noise", "glass_blur") for row in ("RCAD", "ME-ADA")
    ]
    assert [len(one.pairs) for one in SUITES["F6"].summaries] == [15, 15, 15]


def test_the_p_values_of_the_text_stand_beside_ours() -> None:
    assert set(P_VALUES["RCAD", "ME-ADA"]) == set(T1)
    assert set(P_VALUES["RCAD + LS", "ME-ADA + LS"]) == set(T2)
    for name, p in (("T1", "0.009"), ("T2", "0.0478")):
        first, second = ("RCAD", "ME-ADA") if name == "T1" else ("RCAD + LS", "ME-ADA + LS")
        cells = {(first, "CIFAR-10"): cell(95.8), (second, "CIFAR-10"): dict.fromkeys(SEEDS, 95.6)}
        claims = {(one.where, one.statement): one for one in judge_all(SUITES[name].claims, cells)}
        found = claims["CIFAR-10", f"{first} is more accurate than {second}"]
        assert found.published_p == p
        assert found.note == f"p in the paper {p}; ours {found.gain['p_greater']:.2g}, before Holm"
        other = claims["CIFAR-100", f"{first} is more accurate than {second}"]
        assert (other.note, other.published_p) == ("not run", "< 1e-4")
    assert judge_all(SUITES["T3"].claims, {})[0].published_p == ""


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
    assert {one.judge(cells, "", trial=True).verdict for one in suite.summaries} == {"a trial"}
    seen = {side: seeds for side, seeds in cells.items() if side[0] != "RCAD"}
    assert suite.summaries[0].judge(seen, "", trial=False).verdict == "not run"
