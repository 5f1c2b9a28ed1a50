"""Our statistics against scipy and statsmodels on random data, to 1e-10."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rcad.errors import InputError
from rcad.study.statistics import (
    Paired,
    Ranked,
    Summary,
    TooFew,
    against_published,
    averages,
    cohen_dz,
    describe,
    hedges_g,
    holm,
    paired,
    paired_t,
    power_paired,
    power_welch,
    seeds_needed,
    superiority,
    welch,
    wilcoxon,
)

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
    found = describe(values)
    low, high = stats.t.interval(0.95, n - 1, np.mean(values), stats.sem(values))
    assert (found.n, found.mean) == (n, CLOSE(np.mean(values), **ABOUT))
    assert (found.sd, found.low, found.high) == CLOSE((np.std(values, ddof=1), low, high), **ABOUT)
    assert describe([3.5]) == Summary(1, 3.5, None, None, None)
    # Splits that overlap widen the interval as they do that of a difference.
    wider, test = describe(values, test_ratio=0.25), paired(values, [0.0] * n, test_ratio=0.25)
    assert (wider.low, wider.high, wider.half) == CLOSE((test.low, test.high, test.half), **ABOUT)


def check(found: Paired, reference: Callable[[str], Any]) -> None:
    """Every number of a test against scipy's."""
    for side, p in (("less", found.p_less), ("greater", found.p_greater), ("two-sided", found.p_two)):
        assert p == CLOSE(reference(side).pvalue, **ABOUT)
    two, interval = reference("two-sided"), reference("two-sided").confidence_interval()
    assert (found.t, found.df) == CLOSE((two.statistic, two.df), **ABOUT)
    assert (found.low, found.high) == CLOSE((interval.low, interval.high), **ABOUT)


@pytest.mark.parametrize("n", SIZES)
def test_paired(n: int) -> None:
    a, b = groups(n, n)
    found = paired_t(a, b)
    assert found == paired(a, b)
    check(found, lambda side: stats.ttest_rel(a, b, alternative=side))  # type: ignore[arg-type]


@pytest.mark.parametrize(("n", "m"), [(3, 3), (5, 9), (40, 12)])
def test_welch(n: int, m: int) -> None:
    a, b = groups(n, n, m)
    check(welch(a, b), lambda side: stats.ttest_ind(a, b, equal_var=False, alternative=side))  # type: ignore[arg-type]


@pytest.mark.parametrize(("n", "method"), [(3, "exact"), (6, "exact"), (12, "exact"), (50, "exact"), (80, "approx")])
def test_wilcoxon(n: int, method: str) -> None:
    # Rounded differences are equal up to 1e-14 only, which is no tie to either program.
    a, b = (np.round(group, 1).tolist() if n == 80 else group for group in groups(n, n))
    found = ranked(a, b)
    assert found.exact == (method == "exact")
    for side, p in (("less", found.p_less), ("greater", found.p_greater), ("two-sided", found.p_two)):
        assert p == CLOSE(stats.wilcoxon(a, b, alternative=side, method=method).pvalue, **ABOUT)


def ranked(first: list[float], second: list[float]) -> Ranked:
    found = wilcoxon(first, second)
    assert isinstance(found, Ranked)
    return found


def test_wilcoxon_counts_ties_exactly() -> None:
    equal = ranked([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert (equal.n, equal.p_two) == (0, 1.0)
    difference = [1.0, 1.0, -1.0, 2.0, 2.0, 0.0, 3.0]
    found = ranked(difference, [0.0] * len(difference))
    ranks = [2.0, 2.0, 2.0, 4.5, 4.5, 6.0]
    sums = [
        sum(r for r, sign in zip(ranks, signs, strict=True) if sign)
        for signs in itertools.product([0, 1], repeat=len(ranks))
    ]
    w = sum(ranks) - 2.0
    assert (found.n, found.w) == (6, w)
    assert found.p_greater == CLOSE(np.mean(np.asarray(sums) >= w), **ABOUT)
    assert found.p_less == CLOSE(np.mean(np.asarray(sums) <= w), **ABOUT)


@pytest.mark.parametrize(("effect", "n"), [(0.3, 5), (0.8, 10), (1.5, 4), (0.05, 200), (0.0, 10)])
def test_power(effect: float, n: int) -> None:
    power = pytest.importorskip("statsmodels.stats.power")
    for sides, alternative in (("one", "larger"), ("two", "two-sided")):
        one = power.TTestPower().power(effect, n, 0.05, alternative=alternative)
        assert power_paired(effect, n, sides=sides) == CLOSE(one, **ABOUT)  # type: ignore[arg-type]
    two = power.TTestIndPower().power(effect, n, 0.05, alternative="larger")
    assert power_welch(2 * effect, 2.0, n, 2.0, n) == CLOSE(two, **ABOUT)


def test_effect_sizes() -> None:
    a, b = groups(5, 8, 8)
    difference = np.subtract(a, b)
    assert cohen_dz(a, b) == CLOSE(difference.mean() / difference.std(ddof=1), **ABOUT)
    c, d = groups(6, 7, 4)
    pooled = math.sqrt((6 * np.var(c, ddof=1) + 3 * np.var(d, ddof=1)) / 9)
    # Hedges' correction for 9 degrees of freedom by the gamma function itself.
    factor = math.gamma(4.5) / (math.sqrt(4.5) * math.gamma(4.0))
    assert hedges_g(c, d) == CLOSE((np.mean(c) - np.mean(d)) / pooled * factor, **ABOUT)
    assert cohen_dz([2.0, 3.0, 4.0], [1.0, 2.0, 3.0]) is None


def test_superiority() -> None:
    a, b = [1.0, 2.0, 3.0, 3.0], [1.0, 0.0, 3.0, 5.0, 2.0]
    assert superiority(a, b) == CLOSE(stats.mannwhitneyu(a, b).statistic / 20, **ABOUT)
    assert superiority(a, b[:4], paired=True) == CLOSE((0.5 + 1 + 0.5 + 0) / 4, **ABOUT)


@pytest.mark.parametrize("effect", [0.15, 0.4, -0.4, 1.0, 3.0, 60.0])
def test_seeds_needed_is_the_fewest_that_do(effect: float) -> None:
    size = abs(effect)
    for by_pairs, power in ((True, power_paired), (False, lambda size, k: power_welch(size, 1.0, k, 1.0, k))):
        n = seeds_needed(effect, paired=by_pairs)
        assert n is not None
        assert power(size, n) >= 0.8
        assert n == 3 or power(size, n - 1) < 0.8


def test_more_splits_of_the_same_data_reach_a_floor() -> None:
    """The standard error never falls below sqrt(ratio) deviations: 0.5 here, so an effect of 1 is out of reach."""
    assert seeds_needed(1.0) == 8
    assert seeds_needed(0.0) is None
    assert seeds_needed(1.0, test_ratio=0.25) is None
    assert seeds_needed(2.0, test_ratio=0.25) == 6
    assert power_paired(1.0, 10, test_ratio=0.25) < power_paired(1.0, 10)


def test_against_published() -> None:
    ours, _ = groups(3, 5)
    found = against_published(ours, 69.0, 0.4, n=10)
    sd = 0.4 * math.sqrt(10) / stats.t.ppf(0.975, 9)
    reference = stats.ttest_ind_from_stats(np.mean(ours), np.std(ours, ddof=1), 5, 69.0, sd, 10, equal_var=False)
    assert found.test.p_two == CLOSE(reference.pvalue, **ABOUT)
    assert found.difference == CLOSE(np.mean(ours) - 69.0, **ABOUT)
    exact = against_published(ours, 69.0, None)  # a published mean without a spread
    assert exact.test.p_greater == CLOSE(stats.ttest_1samp(ours, 69.0, alternative="greater").pvalue, **ABOUT)


def test_too_few_results_have_no_p_value() -> None:
    two = [1.0, 2.0]
    for found in (paired_t(two, [0.0, 1.0]), welch(two, [1.0, 2.0, 3.0]), wilcoxon(two, two)):
        assert found == TooFew(2)
        assert str(found) == "too few seeds for a test: 2, at least 3 are needed"
    assert against_published(two, 1.0, 0.1).test is None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: describe([]),
        lambda: describe([1.0, math.nan]),
        lambda: paired_t([1.0, 2.0, 3.0], [1.0, 2.0]),
        lambda: paired([1.0, 2.0], [1.0]),
        lambda: welch([1.0, 2.0, 3.0], [math.inf, 2.0, 3.0]),
        lambda: power_paired(0.5, 1),
        lambda: power_paired(math.nan, 5),
        lambda: power_paired(0.5, 5, sides="three"),  # type: ignore[arg-type]
        lambda: against_published([1.0, 2.0, 3.0], 1.0, -0.1),
        lambda: against_published([1.0, 2.0, 3.0], 1.0, 0.1, n=1),
        lambda: welch([1.0, 1.0, 1.0], [2.0, 2.0, 2.0]),
    ],
)
def test_bad_input_is_one_line(wrong: object) -> None:
    with pytest.raises(InputError, match=r"^expected [^\n]*$"):
        wrong()  # type: ignore[operator]


def test_overlapping_splits_widen_the_error_as_nadeau_and_bengio_say() -> None:
    first, second = [1.0, 2.0, 4.0], [0.0, 2.0, 1.0]
    # By hand: differences 1, 0, 3; mean 4/3; variance ((1/3)^2 + (4/3)^2 + (5/3)^2) / 2 = 7/3.
    ours = paired(first, second, test_ratio=10 / 90)
    error = math.sqrt(7 / 3 * (1 / 3 + 1 / 9))
    assert ours.mean == pytest.approx(4 / 3, abs=1e-12)
    assert ours.se == pytest.approx(error, abs=1e-12)
    t = 4 / 3 / error
    # Student's distribution with 2 degrees of freedom in closed form.
    below = 0.5 + t / (2 * math.sqrt(2 + t * t))
    assert ours.p_greater == pytest.approx(1 - below, abs=1e-10)
    assert ours.p_less == pytest.approx(below, abs=1e-10)
    assert ours.p_two == pytest.approx(2 * (1 - below), abs=1e-10)
    assert ours.p_greater > paired(first, second).p_greater


def test_holm_agrees_with_statsmodels() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p = np.random.default_rng(3).uniform(0, 0.1, 40)
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert (holm([0.9, 0.8]), holm([])) == ([1.0, 1.0], [])
    assert holm(p.tolist()) == pytest.approx(multitest.multipletests(p, method="holm")[1].tolist(), abs=1e-10)


@pytest.mark.parametrize(("shift", "p_greater", "t"), [(0.0, 0.5, 0.0), (1.0, 0.0, math.inf), (-1.0, 1.0, -math.inf)])
def test_equal_differences_have_a_sign_only(shift: float, p_greater: float, t: float) -> None:
    ours = paired([1.0 + shift, 2.0 + shift], [1.0, 2.0])
    assert (ours.p_greater, ours.t) == (p_greater, t)


def test_averages_are_those_of_the_finite_results() -> None:
    assert averages([1.0, None, 3.0, math.nan, 8.0]) == {"mean": 4.0, "median": 3.0, "sd": pytest.approx(13**0.5)}
    assert averages([None]) == {"mean": None, "median": None, "sd": None}
