"""Every number of the paired comparisons against scipy, or derived again by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from rcad.errors import InputError
from rcad.study.judge import judge_claim as judge
from rcad.study.statistics import Paired, holm, paired, summary

A = np.random.default_rng(0).normal(1.0, 0.3, 20)
B = A + np.random.default_rng(1).normal(0.05, 0.1, 20)


def test_independent_draws_give_the_paired_t_test() -> None:
    ours = paired(A.tolist(), B.tolist())
    for side, p in (("two-sided", ours.p_two), ("less", ours.p_less), ("greater", ours.p_greater)):
        theirs = stats.ttest_rel(A, B, alternative=side)
        assert p == pytest.approx(theirs.pvalue, abs=1e-10)
        assert ours.t == pytest.approx(theirs.statistic, abs=1e-10)
    interval = stats.ttest_rel(A, B).confidence_interval(0.95)
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high), abs=1e-10)
    assert ours.p_less < 0.5 < ours.p_greater


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


def test_holm_is_the_step_down_rule() -> None:
    p = np.random.default_rng(2).uniform(0, 0.2, 15)
    p[3] = p[7]
    order = np.argsort(p, kind="stable")
    # As statsmodels defines it: running maximum of (m, m-1, ..., 1) times the sorted p, at most 1.
    expected = np.empty(15)
    expected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(15, 0, -1)), 1)
    assert holm(p.tolist()) == pytest.approx(expected.tolist(), abs=1e-12)
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_agrees_with_statsmodels() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p = np.random.default_rng(3).uniform(0, 0.1, 40)
    assert holm(p.tolist()) == pytest.approx(multitest.multipletests(p, method="holm")[1].tolist(), abs=1e-10)


@pytest.mark.parametrize(("shift", "p_greater", "t"), [(0.0, 0.5, 0.0), (1.0, 0.0, math.inf), (-1.0, 1.0, -math.inf)])
def test_equal_differences_have_a_sign_only(shift: float, p_greater: float, t: float) -> None:
    ours = paired([1.0 + shift, 2.0 + shift], [1.0, 2.0])
    assert (ours.p_greater, ours.t) == (p_greater, t)


@pytest.mark.parametrize("second", [[1.0], [1.0, math.nan], [1.0, 2.0, 3.0]])
def test_what_has_no_pairs_is_refused(second: list[float]) -> None:
    with pytest.raises(InputError, match="expected"):
        paired([1.0, 2.0], second)


def test_summary_counts_what_diverged() -> None:
    assert summary([1.0, None, 3.0, math.nan, 8.0]) == {
        "mean": 4.0,
        "median": 3.0,
        "sd": pytest.approx(math.sqrt(13)),
        "runs": 5,
        "diverged": 2,
    }
    assert summary([None])["mean"] is None


def gain(low: float, high: float) -> Paired:
    return Paired((low + high) / 2, 1.0, low, high, 0.0, 4, 0.5, 0.5, 1.0)


@pytest.mark.parametrize(
    ("found", "p_for", "p_against", "published", "verdict"),
    [
        (gain(0.1, 0.3), 0.01, 1.0, 0.25, "reproduced"),
        (gain(-0.3, -0.1), 1.0, 0.01, 0.25, "opposite"),
        (gain(-0.1, 0.2), 0.3, 1.0, 0.25, "not reproduced"),
        (gain(-0.1, 0.3), 0.3, 1.0, 0.25, "undecided"),
        (gain(-0.1, 0.2), 0.3, 1.0, None, "undecided"),
        (None, 0.01, 1.0, 0.25, "undecided"),
    ],
)
def test_the_rule(found: Paired | None, p_for: float, p_against: float, published: float, verdict: str) -> None:
    assert judge(found, p_for, p_against, published) == verdict
