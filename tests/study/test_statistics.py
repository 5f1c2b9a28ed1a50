"""Our statistics against scipy and statsmodels, to 1e-10; which test for which seeds; that 5% means 5%."""

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import verdict_rates

from one_line import refusals
from rcad.paper.tables import T1 as SUITE
from rcad.study import statistics as ours
from rcad.study.judge import Difference, compare_groups
from rcad.study.judge import judge_questions as adjusted

stats = pytest.importorskip("scipy.stats")
CLOSE = pytest.approx
ABOUT = {"rel": 1e-10, "abs": 1e-12}
SIZES = (3, 5, 10, 40)


def groups(seed: int, n: int, m: int | None = None) -> tuple[list[float], list[float]]:
    draw = np.random.default_rng(seed)
    a = draw.normal(70.3, 1.5, n)
    b = draw.normal(70.0, 0.7, m or n)
    return a.tolist(), b.tolist()


@pytest.mark.parametrize("n", SIZES)
def test_describe(n: int) -> None:
    values, _ = groups(n, n)
    found = ours.describe(values)
    low, high = stats.t.interval(0.95, n - 1, np.mean(values), stats.sem(values))
    assert (found.n, found.mean) == (n, CLOSE(np.mean(values), **ABOUT))
    assert (found.sd, found.low, found.high) == CLOSE((np.std(values, ddof=1), low, high), **ABOUT)
    assert ours.describe([3.5]) == ours.Summary(1, 3.5, None, None, None)
    # Splits that overlap widen the interval as they do that of a difference.
    wider, test = ours.describe(values, test_ratio=0.25), ours.paired(values, [0.0] * n, test_ratio=0.25)
    assert (wider.low, wider.high, wider.half) == CLOSE((test.low, test.high, test.half), **ABOUT)


def check_p(found: ours.Paired | ours.Ranked, reference: Callable[[str], Any]) -> None:
    for side, p in (("less", found.p_less), ("greater", found.p_greater), ("two-sided", found.p_two)):
        assert p == CLOSE(reference(side).pvalue, **ABOUT)


def check(found: ours.Paired, reference: Callable[[str], Any]) -> None:
    """Every number of a test against scipy's."""
    check_p(found, reference)
    two, interval = reference("two-sided"), reference("two-sided").confidence_interval()
    assert (found.t, found.df) == CLOSE((two.statistic, two.df), **ABOUT)
    assert (found.low, found.high) == CLOSE((interval.low, interval.high), **ABOUT)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (5, 9), (40, 12)])
def test_paired_and_welch(n: int, m: int) -> None:
    a, b = groups(n, n, m)
    check(ours.welch(a, b), lambda side: stats.ttest_ind(a, b, equal_var=False, alternative=side))  # type: ignore[arg-type]
    a, b = groups(n, n)
    found = ours.paired_t(a, b)
    assert found == ours.paired(a, b)
    check(found, lambda side: stats.ttest_rel(a, b, alternative=side))  # type: ignore[arg-type]


@pytest.mark.parametrize(("n", "method"), [(3, "exact"), (6, "exact"), (12, "exact"), (50, "exact"), (80, "approx")])
def test_wilcoxon(n: int, method: str) -> None:
    # Rounded differences are equal up to 1e-14 only, which is no tie to either program.
    a, b = (np.round(group, 1).tolist() if n == 80 else group for group in groups(n, n))
    found = ours.wilcoxon(a, b)
    assert found.exact == (method == "exact")
    check_p(found, lambda side: stats.wilcoxon(a, b, alternative=side, method=method))


def test_wilcoxon_counts_ties_exactly() -> None:
    equal = ours.wilcoxon([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert (equal.n, equal.p_two) == (0, 1.0)
    difference = [1.0, 1.0, -1.0, 2.0, 2.0, 0.0, 3.0]
    found = ours.wilcoxon(difference, [0.0] * len(difference))
    ranks = np.array([2.0, 2.0, 2.0, 4.5, 4.5, 6.0])
    sums = np.array(list(itertools.product([0, 1], repeat=len(ranks)))) @ ranks
    w = ranks.sum() - 2.0
    assert (found.n, found.w) == (6, w)
    assert (found.p_greater, found.p_less) == CLOSE((np.mean(sums >= w), np.mean(sums <= w)), **ABOUT)


@pytest.mark.parametrize(("effect", "n"), [(0.3, 5), (0.8, 10), (1.5, 4), (0.05, 200), (0.0, 10)])
def test_power(effect: float, n: int) -> None:
    power = pytest.importorskip("statsmodels.stats.power")
    for sides, alternative in (("one", "larger"), ("two", "two-sided")):
        one = power.TTestPower().power(effect, n, 0.05, alternative=alternative)
        assert ours.power_paired(effect, n, sides=sides) == CLOSE(one, **ABOUT)  # type: ignore[arg-type]
    two = power.TTestIndPower().power(effect, n, 0.05, alternative="larger")
    assert ours.power_welch(2 * effect, 2.0, n, 2.0, n) == CLOSE(two, **ABOUT)


def test_effect_sizes() -> None:
    a, b = groups(5, 8, 8)
    difference = np.subtract(a, b)
    assert ours.cohen_dz(a, b) == CLOSE(difference.mean() / difference.std(ddof=1), **ABOUT)
    c, d = groups(6, 7, 4)
    pooled = math.sqrt((6 * np.var(c, ddof=1) + 3 * np.var(d, ddof=1)) / 9)
    # Hedges' correction for 9 degrees of freedom by the gamma function itself.
    factor = math.gamma(4.5) / (math.sqrt(4.5) * math.gamma(4.0))
    assert ours.hedges_g(c, d) == CLOSE((np.mean(c) - np.mean(d)) / pooled * factor, **ABOUT)
    assert ours.cohen_dz([2.0, 3.0, 4.0], [1.0, 2.0, 3.0]) is None


def test_superiority() -> None:
    a, b = [1.0, 2.0, 3.0, 3.0], [1.0, 0.0, 3.0, 5.0, 2.0]
    assert ours.superiority(a, b) == CLOSE(stats.mannwhitneyu(a, b).statistic / 20, **ABOUT)
    assert ours.superiority(a, b[:4], paired=True) == CLOSE((0.5 + 1 + 0.5 + 0) / 4, **ABOUT)


@pytest.mark.parametrize("effect", [0.15, 0.4, -0.4, 1.0, 3.0, 60.0])
def test_seeds_needed_is_the_fewest_that_do(effect: float) -> None:
    size = abs(effect)
    for by_pairs, power in ((True, ours.power_paired), (False, lambda size, k: ours.power_welch(size, 1.0, k, 1.0, k))):
        n = ours.seeds_needed(effect, paired=by_pairs)
        assert n is not None
        assert power(size, n) >= 0.8
        assert n == 3 or power(size, n - 1) < 0.8


def test_more_splits_of_the_same_data_reach_a_floor() -> None:
    """The standard error never falls below sqrt(ratio) deviations: 0.5 here, so an effect of 1 is out of reach."""
    assert [ours.seeds_needed(effect) for effect in (1.0, 0.0)] == [8, None]
    assert [ours.seeds_needed(effect, test_ratio=0.25) for effect in (1.0, 2.0)] == [None, 6]
    assert ours.power_paired(1.0, 10, test_ratio=0.25) < ours.power_paired(1.0, 10)


def test_against_published() -> None:
    values, _ = groups(3, 5)
    found = ours.against_published(values, 69.0, 0.4, n=10)
    sd = 0.4 * math.sqrt(10) / stats.t.ppf(0.975, 9)
    reference = stats.ttest_ind_from_stats(np.mean(values), np.std(values, ddof=1), 5, 69.0, sd, 10, equal_var=False)
    assert (found.test.p_two, found.difference) == CLOSE((reference.pvalue, np.mean(values) - 69.0), **ABOUT)
    exact = ours.against_published(values, 69.0, None)  # a published mean without a spread
    assert exact.test.p_greater == CLOSE(stats.ttest_1samp(values, 69.0, alternative="greater").pvalue, **ABOUT)


def test_too_few_results_have_no_p_value() -> None:
    two = [1.0, 2.0]
    for found in (ours.paired_t(two, [0.0, 1.0]), ours.welch(two, [1.0, 2.0, 3.0]), ours.wilcoxon(two, two)):
        assert found == ours.TooFew(2)
    assert ours.against_published(two, 1.0, 0.1).test is None


test_bad_input_is_one_line = refusals(
    (ours.describe, [], "expected a list of at least 1 results"),
    (ours.describe, [1.0, math.nan], "expected finite results"),
    (ours.paired_t, [1.0, 2.0, 3.0], [1.0, 2.0], "expected two lists of equally many results to pair, but got 3 and 2"),
    (ours.power_paired, 0.5, 1, "expected n to be a whole number >= 2"),
    (ours.power_paired, math.nan, 5, "expected effect to be a finite number"),
    (ours.against_published, [1.0, 2.0, 3.0], 1.0, -0.1, "expected half to be a finite number >= 0"),
    (ours.welch, [1.0, 1.0, 1.0], [2.0, 2.0, 2.0], "expected results that spread, but got two constant groups"),
)


def test_overlapping_splits_widen_the_error_as_nadeau_and_bengio_say() -> None:
    first, second = [1.0, 2.0, 4.0], [0.0, 2.0, 1.0]
    # By hand: differences 1, 0, 3; mean 4/3; variance ((1/3)^2 + (4/3)^2 + (5/3)^2) / 2 = 7/3.
    found = ours.paired(first, second, test_ratio=10 / 90)
    error = math.sqrt(7 / 3 * (1 / 3 + 1 / 9))
    assert (found.mean, found.se) == CLOSE((4 / 3, error), **ABOUT)
    t = 4 / 3 / error
    # Student's distribution with 2 degrees of freedom in closed form.
    above = 0.5 - t / (2 * math.sqrt(2 + t * t))
    assert (found.p_greater, found.p_less, found.p_two) == CLOSE((above, 1 - above, 2 * above), **ABOUT)
    assert found.p_greater > ours.paired(first, second).p_greater


def test_holm_agrees_with_statsmodels() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p = np.random.default_rng(3).uniform(0, 0.1, 40)
    assert ours.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert (ours.holm([0.9, 0.8]), ours.holm([])) == ([1.0, 1.0], [])
    assert ours.holm(p.tolist()) == pytest.approx(multitest.multipletests(p, method="holm")[1].tolist(), abs=1e-10)


OURS = {0: 71.2, 1: 70.4, 2: 72.0, 3: 70.9}
BASE = {0: 70.1, 1: 70.2, 2: 70.3, 3: 70.0}


def test_seeds_that_agree_are_paired_and_a_lower_metric_is_turned_round() -> None:
    found = compare_groups(OURS, dict(reversed(BASE.items())), higher_is_better=True)
    reference = ours.paired(list(OURS.values()), list(BASE.values()))
    assert (found.test, found.n, found.note, found.superiority) == ("paired t", 4, "", 1.0)
    assert (found.mean, found.low, found.high) == (reference.mean, reference.low, reference.high)
    assert (found.p_better, found.p_worse, found.p_two) == (reference.p_greater, reference.p_less, reference.p_two)
    low = compare_groups(OURS, BASE, higher_is_better=False)
    assert (low.mean, low.low, low.high) == pytest.approx((-found.mean, -found.high, -found.low))  # type: ignore[operator]
    assert (low.p_better, low.superiority) == pytest.approx((found.p_worse, 0.0))


def test_seeds_without_a_partner_are_named_and_other_seeds_are_not_paired() -> None:
    found = compare_groups({**OURS, 9: 99.0}, BASE, higher_is_better=True)
    assert (found.test, found.n, found.note) == ("paired t", 4, "1 seeds without a partner are left out")
    assert found.mean == compare_groups(OURS, BASE, higher_is_better=True).mean
    found = compare_groups({seed + 10: value for seed, value in OURS.items()}, BASE, higher_is_better=True)
    reference = ours.welch(list(OURS.values()), list(BASE.values()))
    assert (found.test, found.p_two, found.mean) == ("Welch", reference.p_two, reference.mean)  # type: ignore[union-attr]


def test_too_few_seeds_and_a_run_that_diverged_give_no_p_value() -> None:
    found = compare_groups({0: OURS[0], 1: OURS[1]}, {0: BASE[0], 1: BASE[1]}, higher_is_better=True)
    assert (found.test, found.p_two, found.outcome) == ("none", None, "undecided")
    assert found.note == "too few seeds for a test: 2, at least 3 are needed"
    for lost in (None, math.nan, math.inf):
        found = compare_groups({**OURS, 1: lost}, BASE, higher_is_better=True)
        assert (found.test, found.p_two) == ("none", None)
        assert "1 of the runs diverged" in found.note


def test_equal_differences_are_no_proof() -> None:
    gained = {seed: value + 1.0 for seed, value in BASE.items()}
    found = compare_groups(gained, BASE, higher_is_better=True)
    assert (found.test, found.outcome, found.mean) == ("none", "undecided", pytest.approx(1.0))
    same = compare_groups(BASE, BASE, higher_is_better=True)
    assert (same.p_two, same.outcome, same.seeds_needed) == (1.0, "undecided", None)
    for shift, p_greater, t in ((0.0, 0.5, 0.0), (1.0, 0.0, math.inf), (-1.0, 1.0, -math.inf)):
        equal = ours.paired([1.0 + shift, 2.0 + shift], [1.0, 2.0])
        assert (equal.p_greater, equal.t) == (p_greater, t)


def test_holm_counts_tests_only() -> None:
    some = [Difference("paired t", 5, mean=1.0, p_two=p) for p in (0.01, 0.04, 0.03)]
    found = adjusted([*some, Difference("none", 2, mean=1.0)])
    assert [one.p_holm for one in found] == [*ours.holm([0.01, 0.04, 0.03]), None]
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
    tests = [ours.paired(row, [0.0] * n, test_ratio=ratio) for row in gains.tolist()]
    assert within(np.mean([one.p_greater < 0.05 for one in tests]), 0.05, trials)
    assert within(np.mean([one.p_two < 0.05 for one in tests]), 0.05, trials)
    plain = np.mean([ours.paired(row, [0.0] * n).p_two < 0.05 for row in gains[:500].tolist()])
    assert plain > 0.12  # what the correction is for


@pytest.mark.parametrize("test_ratio", [0.0, 0.25])
@pytest.mark.parametrize("family", [1, 6])
def test_the_seeds_needed_obey_the_rule_of_the_verdict(family: int, test_ratio: float) -> None:
    """As many as give 80% at the level that the verdict is held to: fewer than were run only where it is decided."""
    draw, n = np.random.default_rng(family), 8
    gains = draw.normal(draw.uniform(-2.0, 2.0, (40, family, 1)), 1.0, (40, family, n))
    seen = set()
    for some in gains:
        base, options = dict.fromkeys(range(n), 0.0), {"higher_is_better": True, "test_ratio": test_ratio}
        for one in adjusted([compare_groups(dict(enumerate(gain)), base, **options) for gain in some]):
            assert one.effect is not None
            needed, decided = one.seeds_needed, one.outcome != "undecided"
            assert decided or needed is None or needed > n
            seen.add((decided, needed is None or needed > n))
            if needed is not None and needed > 3:
                options = {"test_ratio": test_ratio, "sides": "two", "level": ours.LEVEL / family}
                power = [ours.power_paired(abs(one.effect), k, **options) for k in (needed - 1, needed)]  # type: ignore[arg-type]
                assert power[0] < ours.POWER <= power[1]
    assert {(True, False), (False, True)} <= seen


ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "results/statistics/verdict_rates.json").read_text(encoding="utf-8"))


def test_the_page_is_made_from_a_record_of_enough_studies_and_of_the_rule_as_it_stands() -> None:
    assert (ROOT / "results/statistics/verdict_rates.md").read_text(encoding="utf-8") == verdict_rates.page(RECORD)
    assert (RECORD["studies"] >= 2000, RECORD["rule"]) == (True, verdict_rates.RULE)
    assert RECORD["T1"] == [f"{claim.where}: {claim.statement}" for claim in SUITE.claims]


def test_the_level_that_the_rule_promises_was_kept() -> None:
    error = 3 * (0.05 * 0.95 / RECORD["studies"]) ** 0.5
    for name in ("T1, 10 seeds", "T1, 3 seeds", "T7, 20 splits of 90/10"):
        assert max(RECORD["null"][name]["page"][verdict] for verdict in ("reproduced", "opposite")) < 0.05 + error
    for cell in RECORD["two_sided"].values():
        assert cell["page_decided"] < 0.05 + error


def test_groups_that_do_not_pair_are_held_to_the_same_rule() -> None:
    """Overlapping splits widen the error, and power and seeds are told at the level of the family."""
    others = {seed + 10: value for seed, value in OURS.items()}
    plain, wide = (compare_groups(others, BASE, higher_is_better=True, test_ratio=ratio) for ratio in (0.0, 0.25))
    assert (wide.test, wide.mean) == ("Welch, Nadeau-Bengio", plain.mean)
    # Four results each: 1/4 becomes 1/4 + 0.25 in both parts of the error.
    assert wide.high - wide.mean == pytest.approx(math.sqrt(2) * (plain.high - plain.mean))
    for alone in (plain, wide):
        among = adjusted([alone] * 10)[0]
        rule = {"test_ratio": alone.test_ratio, "sides": "two", "level": ours.LEVEL / 10}
        assert among.power == ours.power_welch(among.mean, *among.spreads[0], *among.spreads[1], **rule) < alone.power
        assert among.seeds_needed == ours.seeds_needed(among.effect, paired=False, **rule)
