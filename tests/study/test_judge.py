"""Which test is used for which seeds, and that 5% means 5%."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rcad.study.judge import Difference, compare_groups
from rcad.study.judge import judge_questions as adjusted
from rcad.study.statistics import LEVEL, POWER, Paired, holm, paired, power_paired, welch

pytest.importorskip("scipy.stats")
OURS = {0: 71.2, 1: 70.4, 2: 72.0, 3: 70.9}
BASE = {0: 70.1, 1: 70.2, 2: 70.3, 3: 70.0}


def test_seeds_that_agree_are_paired_and_a_lower_metric_is_turned_round() -> None:
    found = compare_groups(OURS, dict(reversed(BASE.items())), higher_is_better=True)
    reference = paired(list(OURS.values()), list(BASE.values()))
    assert (found.test, found.n, found.note) == ("paired t", 4, "")
    assert (found.mean, found.low, found.high) == (reference.mean, reference.low, reference.high)
    assert (found.p_better, found.p_worse, found.p_two) == (reference.p_greater, reference.p_less, reference.p_two)
    assert found.superiority == 1.0
    low = compare_groups(OURS, BASE, higher_is_better=False)
    assert (low.mean, low.low, low.high) == pytest.approx((-found.mean, -found.high, -found.low))  # type: ignore[operator]
    assert (low.p_better, low.superiority) == pytest.approx((found.p_worse, 0.0))


def test_splits_that_overlap_are_less_sure() -> None:
    plain = compare_groups(OURS, BASE, higher_is_better=True)
    found = compare_groups(OURS, BASE, higher_is_better=True, test_ratio=0.25)
    assert found.test == "paired t, Nadeau-Bengio"
    assert found.p_two == paired(list(OURS.values()), list(BASE.values()), test_ratio=0.25).p_two
    assert found.power < plain.power  # type: ignore[operator]
    assert found.seeds_needed is None or found.seeds_needed > plain.seeds_needed  # type: ignore[operator]


def test_seeds_without_a_partner_are_named_and_other_seeds_are_not_paired() -> None:
    found = compare_groups({**OURS, 9: 99.0}, BASE, higher_is_better=True)
    assert (found.test, found.n, found.note) == ("paired t", 4, "1 seeds without a partner are left out")
    assert found.mean == compare_groups(OURS, BASE, higher_is_better=True).mean
    found = compare_groups({seed + 10: value for seed, value in OURS.items()}, BASE, higher_is_better=True)
    reference = welch(list(OURS.values()), list(BASE.values()))
    assert isinstance(reference, Paired)
    assert (found.test, found.p_two, found.mean) == ("Welch", reference.p_two, reference.mean)
    assert found.superiority == 1.0


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_too_few_seeds_give_no_p_value(seeds: tuple[int, ...]) -> None:
    found = compare_groups({s: OURS[s] for s in seeds}, {s: BASE[s] for s in seeds}, higher_is_better=True)
    assert (found.test, found.p_two, found.outcome) == ("none", None, "undecided")
    assert found.note == f"too few seeds for a test: {len(seeds)}, at least 3 are needed"
    assert found.mean is not None


@pytest.mark.parametrize("lost", [None, math.nan, math.inf])
def test_a_run_that_diverged_is_not_left_out(lost: float | None) -> None:
    found = compare_groups({**OURS, 1: lost}, BASE, higher_is_better=True)
    assert (found.test, found.p_two) == ("none", None)
    assert "1 of the runs diverged" in found.note


def test_equal_differences_are_no_proof() -> None:
    ours = {seed: value + 1.0 for seed, value in BASE.items()}
    found = compare_groups(ours, BASE, higher_is_better=True)
    assert (found.test, found.outcome, found.mean) == ("none", "undecided", pytest.approx(1.0))
    same = compare_groups(BASE, BASE, higher_is_better=True)
    assert (same.p_two, same.outcome, same.seeds_needed) == (1.0, "undecided", None)


def test_holm_counts_tests_only() -> None:
    some = [Difference("paired t", 5, mean=1.0, p_two=p) for p in (0.01, 0.04, 0.03)]
    found = adjusted([*some, Difference("none", 2, mean=1.0)])
    assert [one.p_holm for one in found] == [*holm([0.01, 0.04, 0.03]), None]
    assert [one.outcome for one in found] == ["better", "undecided", "undecided", "undecided"]


def within(share: float, expected: float, trials: int) -> bool:
    """Four standard deviations of a binomial share: a right rate fails once in 15,000 seeds, and this seed is fixed."""
    return abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / trials)


def test_five_percent_is_five_percent() -> None:
    """Equal methods; results of overlapping splits have the correlation that Nadeau and Bengio assume."""
    trials, n, ratio = 1500, 6, 0.25
    draw = np.random.default_rng(1)
    correlation = ratio / (1 + ratio)
    common = math.sqrt(correlation) * draw.normal(size=(trials, 1))
    gains = common + math.sqrt(1 - correlation) * draw.normal(size=(trials, n))
    tests = [paired(row, [0.0] * n, test_ratio=ratio) for row in gains.tolist()]
    assert within(np.mean([one.p_greater < 0.05 for one in tests]), 0.05, trials)
    assert within(np.mean([one.p_two < 0.05 for one in tests]), 0.05, trials)
    plain = np.mean([paired(row, [0.0] * n).p_two < 0.05 for row in gains[:500].tolist()])
    assert plain > 0.12  # what the correction is for


@pytest.mark.parametrize("test_ratio", [0.0, 0.25])
@pytest.mark.parametrize("family", [1, 6])
def test_the_seeds_needed_obey_the_rule_of_the_verdict(family: int, test_ratio: float) -> None:
    """As many as give 80% at the level that the verdict is held to: fewer than were run only where it is decided."""
    draw, n = np.random.default_rng(family), 8
    gains = draw.normal(draw.uniform(-2.0, 2.0, (40, family, 1)), 1.0, (40, family, n))
    seen = set()
    for some in gains:
        pairs = [
            compare_groups(
                dict(enumerate(one)), dict.fromkeys(range(n), 0.0), higher_is_better=True, test_ratio=test_ratio
            )
            for one in some
        ]
        for one in adjusted(pairs):
            assert one.effect is not None
            needed, decided = one.seeds_needed, one.outcome != "undecided"
            assert decided or needed is None or needed > n
            seen.add((decided, needed is None or needed > n))
            if needed is not None and needed > 3:
                options = {"test_ratio": test_ratio, "sides": "two", "level": LEVEL / family}
                power = [power_paired(abs(one.effect), k, **options) for k in (needed - 1, needed)]  # type: ignore[arg-type]
                assert power[0] < POWER <= power[1]
    assert {(True, False), (False, True)} <= seen
