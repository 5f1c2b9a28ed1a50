"""Risk and coverage: by hand, over all orders of tied examples, and at the limits."""

from __future__ import annotations

import math
from itertools import pairwise, permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from predictions import cases, random_logits
from rcad import InputError
from rcad.evaluate.selective import risk_coverage, risk_coverage_by

CASES = cases()


def area(losses: list[float]) -> float:
    """The mean, over k, of the mean of the first k."""
    return sum(sum(losses[:k]) / k for k in range(1, len(losses) + 1)) / len(losses)


@pytest.mark.parametrize("case", ["random", "float32", "two classes", "many classes", "one class", "one example"])
def test_a_loop_gives_the_same(case: str) -> None:
    output, y = CASES[case]
    p = output.double().softmax(1)
    rows = sorted(zip((-p.amax(1)).tolist(), (output.argmax(1) != y).double().tolist(), strict=True))
    losses = [loss for _, loss in rows]
    found = risk_coverage(output, y)
    assert found.aurc == pytest.approx(area(losses), abs=1e-12)
    assert found.excess_aurc == pytest.approx(area(losses) - area(sorted(losses)), abs=1e-12)


def test_five_examples_by_hand() -> None:
    confidence, loss = torch.tensor([0.9, 0.5, 0.8, 0.6, 0.7]), torch.tensor([0.0, 1.0, 1.0, 0.0, 0.0])
    found = risk_coverage_by(confidence, loss)
    assert found.coverage == pytest.approx((0.2, 0.4, 0.6, 0.8, 1.0))
    assert found.risk == pytest.approx((0, 1 / 2, 1 / 3, 1 / 4, 2 / 5))
    assert found.aurc == pytest.approx((1 / 2 + 1 / 3 + 1 / 4 + 2 / 5) / 5)
    assert found.excess_aurc == pytest.approx(found.aurc - (1 / 4 + 2 / 5) / 5)


@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, 1.0, 2.5])), min_size=1, max_size=6),
)
@settings(max_examples=60, deadline=None)
def test_ties_count_as_the_mean_over_all_orders(rows: list[tuple[int, float]]) -> None:
    found = risk_coverage_by(torch.tensor([float(c) for c, _ in rows]), torch.tensor([loss for _, loss in rows]))
    allowed = [order for order in permutations(rows) if all(a[0] >= b[0] for a, b in pairwise(order))]
    expected = sum(area([loss for _, loss in order]) for order in allowed) / len(allowed)
    assert found.aurc == pytest.approx(expected, abs=1e-12)
    assert found.excess_aurc >= -1e-12
    assert found.risk[-1] == pytest.approx(sum(loss for _, loss in rows) / len(rows))


def test_limits() -> None:
    assert risk_coverage(*CASES["perfect"]).aurc == 0
    hopeless = risk_coverage(*CASES["hopeless"])
    assert (hopeless.aurc, hopeless.excess_aurc) == (1, 0)
    output, y = CASES["constant"]
    constant = risk_coverage(output, y)
    error = (y != 0).double().mean().item()
    assert constant.aurc == pytest.approx(error)
    assert constant.risk == pytest.approx((error,) * 100)
    knowing = risk_coverage_by(torch.arange(10.0), (torch.arange(10) < 4).double())
    assert knowing.excess_aurc == pytest.approx(0, abs=1e-15)
    assert knowing.aurc == pytest.approx((1 / 7 + 2 / 8 + 3 / 9 + 4 / 10) / 10)


def test_the_limit_of_many_examples_is_the_published_one() -> None:
    """Geifman et al. give r + (1 - r) log(1 - r) for the best order of infinitely many examples with error r."""
    count, r = 100_000, 0.3
    wrong = (torch.arange(count) < r * count).double()
    best = risk_coverage_by(-wrong, wrong)
    ranked = risk_coverage_by(torch.arange(count).double(), wrong)
    assert best.aurc == pytest.approx(r + (1 - r) * math.log(1 - r), abs=1e-5)
    assert ranked.aurc == pytest.approx(best.aurc)


@pytest.mark.parametrize(("points", "expected"), [(1, 1), (7, 7), (300, 300), (1000, 300)])
def test_points_of_the_curve(points: int, expected: int) -> None:
    output, y = CASES["random"]
    found, every = risk_coverage(output, y, points=points), risk_coverage(output, y, points=300)
    assert len(found.risk) == expected
    assert found.coverage[-1] == 1
    assert found.aurc == every.aurc == pytest.approx(sum(every.risk) / 300)
    kept = [math.ceil(j * 300 / expected) for j in range(1, expected + 1)]
    assert found.risk == tuple(every.risk[k - 1] for k in kept)
    assert found.coverage == pytest.approx([k / 300 for k in kept])


@given(seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_only_the_order_of_confidences_matters(seed: int) -> None:
    output, y = random_logits(60, 3, seed=seed)
    confidence, loss = output.amax(1), (output.argmax(1) != y).double()
    assert risk_coverage_by(confidence, loss) == risk_coverage_by(confidence.atan().exp(), loss)


def test_faults_are_named() -> None:
    with pytest.raises(InputError, match="expected one confidence and one loss per example"):
        risk_coverage_by(torch.ones(3), torch.ones(2))
    with pytest.raises(InputError, match="expected one confidence"):
        risk_coverage_by(torch.ones(0), torch.ones(0))
    with pytest.raises(InputError, match="expected finite confidences"):
        risk_coverage_by(torch.tensor([1.0, torch.nan]), torch.ones(2))
    with pytest.raises(InputError, match="expected finite losses"):
        risk_coverage_by(torch.ones(2), torch.tensor([1.0, torch.inf]))
    with pytest.raises(InputError, match="expected points to be a whole number >= 1, but got 0"):
        risk_coverage(*CASES["random"], points=0)
