"""Claims: paired by seed, silent where the data are; sentences on a whole figure, each rule on cells made by hand.

test_tables judges those of the committed records again.
"""

from collections.abc import Sequence

import pytest
from scipy.stats import binomtest

from rcad.paper import claims
from rcad.paper.claims import CONTROLS, Cells, Claim, Seeds, Side, Summary, gain_of, judge_all
from rcad.paper.record import Study
from rcad.paper.tables import SUITES
from rcad.study.statistics import paired

RANDOM = "RCAD is more accurate than a random direction"
PLANNED = SUITES["T3"].claims
ERM = {0: 30.0, 1: 30.5, 2: 30.2, 3: 30.4}
WHERE = "CIFAR-100-2k"


def column(**rows: Seeds) -> dict[Side, Seeds]:
    base: dict[Side, Seeds] = {(row, WHERE): ERM for row in ("ERM", "ME-ADA", "RCAD", "random direction")}
    return base | {(row, WHERE): seeds for row, seeds in rows.items()}


def test_seeds_are_paired_by_number_and_not_by_place() -> None:
    shuffled = {seed: ERM[seed] + 1.0 + 0.01 * seed for seed in (3, 1, 0, 2)}
    gain, note = gain_of(shuffled, ERM)
    assert (note, gain) == ("", paired([31.0, 31.51, 31.22, 31.43], [30.0, 30.5, 30.2, 30.4]))
    lower, _ = gain_of(shuffled, ERM, higher_is_better=False)
    assert lower.mean == pytest.approx(-gain.mean)


@pytest.mark.parametrize(
    ("seeds", "note", "verdict"),
    [
        ({0: 32.0, 1: 32.5}, "too few seeds", "undecided"),
        ({0: 32.0, 1: None, 2: 31.0}, "a run diverged", "undecided"),
        ({}, "not run", "not run"),
        ({9: 1.0}, "not run", "not run"),
    ],
)
def test_silence_has_a_reason(seeds: Seeds, note: str, verdict: str) -> None:
    found, *_ = judge_all(PLANNED, column(RCAD=seeds))
    assert (found.where, found.statement) == (WHERE, "RCAD is more accurate than ERM")
    assert (found.verdict, found.note) == (verdict, note)
    assert found.gain is found.p_holm is found.p_reverse_holm is None


def test_three_seeds_are_enough_the_scale_is_noted_and_what_is_not_measured_has_not_diverged() -> None:
    cells = column(RCAD={0: 32.0, 1: 32.5, 2: 32.1})
    first, *_ = judge_all(PLANNED, cells, remark="small scale")
    assert (first.gain["df"], first.note) == (2, "small scale")
    assert {one.verdict for one in judge_all(PLANNED, cells, trial=True)} == {"a trial", "not run"}
    first, *_ = judge_all(PLANNED, column(RCAD=dict.fromkeys(range(4))), not_measured=frozenset({("RCAD", WHERE)}))
    assert (first.verdict, first.note) == ("undecided", "not measured")


def test_verdicts_are_counted_on_either_side() -> None:
    found = [
        Claim("", name, verdict, published=1.0)
        for name, verdict in (("a", "reproduced"), ("b", "opposite"), ("c", "not run"), (RANDOM, "undecided"))
    ]
    assert Study("T8", controls=CONTROLS, claims=found).findings == (
        "3 claims of the paper: 1 reproduced, 1 opposite, 1 not run; 1 check of ours: 1 undecided"
    )


def cell(mean: float, wobble: float = 1.0) -> Seeds:
    return {seed: mean + wobble * noise for seed, noise in enumerate((0.0, 0.1, -0.1, 0.05))}


def duel(gains: Sequence[float], wobble: float = 1.0) -> Cells:
    """Rows "ours" and "theirs" with these mean differences, a column each."""
    theirs = {("theirs", str(k)): cell(50, 0) for k in range(len(gains))}
    return theirs | {("ours", str(k)): cell(50 + gain, wobble) for k, gain in enumerate(gains)}


PAIRS = [(("ours", str(k)), ("theirs", str(k))) for k in range(24)]
MOST = claims.most_pairs("all", "better", PAIRS, (22, 24))
NONE = claims.none_ahead("all", "equal", PAIRS[:15])
FEW = claims.as_good("all", "as good", PAIRS[:4])


@pytest.mark.parametrize(
    ("summary", "gains", "verdict"),
    [
        (MOST, [1.0] * 22 + [-1.0] * 2, "reproduced"),
        (MOST, [1.0] * 2 + [-1.0] * 22, "opposite"),
        (MOST, [1.0] * 12 + [-1.0] * 12, "not reproduced"),
        (MOST, [1.0] * 3 + [-1.0], "undecided"),
        (NONE, [1.0, -1.0] * 7 + [1.0], "reproduced"),
        (NONE, [1.0] * 14 + [-1.0], "not reproduced"),
        (FEW, [0.1, -1.0, 3.0, 3.0], "reproduced"),
        (FEW, [0.1, 3.0, 3.0, 3.0], "not reproduced"),
    ],
)
def test_rules_over_pairs(summary: Summary, gains: list[float], verdict: str) -> None:
    claim = summary.test(duel(gains))
    assert claim.verdict == verdict
    assert ("more were not run" in claim.ours) == (len(gains) < {MOST: 24, NONE: 15, FEW: 4}[summary])
    assert FEW.test(duel([0.0] * 4, wobble=20.0)).verdict == "not reproduced"  # a wide interval is not as good
    wins = sum(gain > 0 for gain in gains)
    if summary is MOST:
        p = binomtest(wins, len(gains), alternative="greater").pvalue
        assert f"better in {wins} of {len(gains)} pairs, p = {p:.2g}" in claim.ours


def test_pairs_that_are_level_were_run() -> None:
    level = [0.0] * 4
    assert MOST.test(duel([*level, *[1.0] * 20], wobble=0.0)).ours.startswith("better in 20 of 20 pairs, 4 level,")
    assert NONE.test(duel(level, wobble=0.0)).ours.startswith("0 pairs, 4 level (11 more were not run)")
    assert MOST.test(duel([0.0] * 24, wobble=0.0)).verdict == "undecided"


def test_a_trend_is_the_difference_of_slopes() -> None:
    assert claims.fewer_is_more([(100, 7.0), (1000, 5.0), (10_000, 3.0)]) == pytest.approx(2.0)
    sizes = {"a": 100, "b": 1000, "c": 10_000}

    def judged(ours: float, theirs: float, columns: str = "abc", noise: float = 1) -> Claim | None:
        """Rows that lose so many points per tenfold fewer examples."""
        slopes = {"ours": (ours, 1), "theirs": (theirs, 2)}
        cells = {
            (row, name): cell(60 + slope * "cba".index(name), noise * wobble * "cba".index(name))
            for row, (slope, wobble) in slopes.items()
            for name in columns
        }
        return claims.steeper_trend("", "", ("ours", "theirs"), [*sizes.items()], published=0.65).test(cells)

    found = judged(-5.0, -6.0)
    assert (found.verdict, found.ours[:7]) == ("reproduced", "+0.99 [")
    assert found.gain["mean"] == pytest.approx(0.9875)
    assert judged(-6.0, -5.0).verdict == "opposite"
    assert judged(-5.0, -6.0, "ab") is None
    assert judged(-5.0, -6.0, noise=0).verdict == "undecided"  # slopes that all differ by the same amount


def test_what_the_paper_says_of_corruptions() -> None:
    """F6 has no committed record: those of F2 and F3 are judged again in test_tables."""
    suite, rows = SUITES["F6"], {"ERM": 50.0, "ME-ADA": 51.0, "RCAD": 52.0}
    cells = {(row, column.name): cell(mean) for row, mean in rows.items() for column in suite.columns}
    told = [one.judge(cells, "", trial=False) for one in suite.summaries]
    assert [one.verdict for one in told] == ["reproduced", "reproduced", "not reproduced"]
    assert all("of 15" in one.ours and one.rule and one.gain is None for one in told)
    assert {one.judge(cells, "", trial=True).verdict for one in suite.summaries} == {"a trial"}
    seen = {side: seeds for side, seeds in cells.items() if side[0] != "RCAD"}
    assert suite.summaries[0].judge(seen, "", trial=False).verdict == "not run"


@pytest.mark.parametrize("gap", [0.5, 0.1])  # of 0.1 only rounding makes the differences differ
def test_equal_differences_in_every_pair_show_nothing(gap: float) -> None:
    first, *_ = judge_all(PLANNED, column(RCAD={seed: value + gap for seed, value in ERM.items()}))
    assert (first.verdict, first.gain, first.p_holm) == ("undecided", None, None)
    assert first.note == "every pair differs by the same amount: nothing to test"
    most = MOST.test(duel([gap] * 24, wobble=0.0))  # signs are all that it asks for
    assert most.verdict == "reproduced"
    assert most.ours.endswith("with p < 0.001 each in 0")
