"""The Brier score's parts: their sum, double loops, and forecasts for which Murphy's three are complete."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from predictions import calibrated, cases, random_logits
from rcad.evaluate.brier import BrierParts, brier_parts

CASES = cases()


def total(parts: BrierParts) -> float:
    return parts.reliability - parts.resolution + parts.uncertainty + parts.within_bins


def by_loops(output: Tensor, y: Tensor, bins: int) -> dict[str, float]:
    p, labels = output.double().softmax(1).tolist(), y.tolist()
    sums = dict.fromkeys(("reliability", "resolution", "uncertainty", "within_bins"), 0.0)
    for k in range(len(p[0])):
        base = labels.count(k) / len(labels)
        sums["uncertainty"] += base * (1 - base)
        for b in range(bins):
            inside = [i for i in range(len(p)) if b / bins < p[i][k] <= (b + 1) / bins or (b == 0 and p[i][k] == 0)]
            if not inside:
                continue
            share = len(inside) / len(labels)
            mean = sum(p[i][k] for i in inside) / len(inside)
            seen = sum(labels[i] == k for i in inside) / len(inside)
            variance = sum((p[i][k] - mean) ** 2 for i in inside) / len(inside)
            covariance = sum((p[i][k] - mean) * ((labels[i] == k) - seen) for i in inside) / len(inside)
            sums["reliability"] += share * (mean - seen) ** 2
            sums["resolution"] += share * (seen - base) ** 2
            sums["within_bins"] += share * (variance - 2 * covariance)
    return sums


@pytest.mark.parametrize("bins", [1, 3, 15])
@pytest.mark.parametrize("case", [name for name in CASES if name != "many classes"])
def test_loops_give_the_same(case: str, bins: int) -> None:
    output, y = CASES[case]
    parts = brier_parts(output, y, bins=bins)
    for name, value in by_loops(output, y, bins).items():
        assert getattr(parts, name) == pytest.approx(value, abs=1e-12), name


@pytest.mark.parametrize("case", CASES)
def test_torchmetrics_mean_squared_error_gives_the_score(case: str) -> None:
    functional = pytest.importorskip("torchmetrics.functional")
    output, y = CASES[case]
    p, classes = output.double().softmax(1), output.shape[1]
    truth = torch.nn.functional.one_hot(y, classes).double()
    other = classes * functional.mean_squared_error(p.reshape(-1), truth.reshape(-1)).item()
    assert brier_parts(output, y).brier == pytest.approx(other, abs=1e-6)


@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 60),
    classes=st.integers(2, 9),
    bins=st.integers(1, 40),
    scale=st.floats(0, 30),
)
@settings(max_examples=80, deadline=None)
def test_the_parts_add_up_exactly(seed: int, count: int, classes: int, bins: int, scale: float) -> None:
    parts = brier_parts(*random_logits(count, classes, seed=seed, scale=scale), bins=bins)
    assert total(parts) == pytest.approx(parts.brier, abs=1e-12)
    assert min(parts.reliability, parts.resolution, parts.uncertainty) >= 0
    assert parts.resolution <= parts.uncertainty + 1e-12


def test_murphy_s_three_are_complete_when_a_bin_holds_one_forecast() -> None:
    """Two forecasts: (0.8, 0.2) ten times, right 7 times; (0.3, 0.7) ten times, right 9 times."""
    p = torch.tensor([[0.8, 0.2], [0.3, 0.7]], dtype=torch.float64).repeat_interleave(10, 0)
    y = torch.tensor([0] * 7 + [1] * 3 + [1] * 9 + [0])
    parts = brier_parts(p.log(), y)
    assert parts.within_bins == pytest.approx(0, abs=1e-14)
    assert parts.reliability == pytest.approx(2 * (0.5 * 0.1**2 + 0.5 * 0.2**2))
    assert parts.resolution == pytest.approx(2 * (0.5 * 0.3**2 + 0.5 * 0.3**2))
    assert parts.uncertainty == pytest.approx(2 * 0.4 * 0.6)
    assert parts.brier == pytest.approx(total(parts))


def test_what_each_part_means() -> None:
    honest = brier_parts(*calibrated(20_000))
    logits, y = calibrated(20_000)
    loud = brier_parts(3 * logits, y)
    assert honest.reliability < 0.002 < 0.05 < loud.reliability
    assert honest.resolution > 0.1
    constant = brier_parts(*CASES["constant"])
    assert constant.resolution == pytest.approx(0, abs=1e-14)
    one = brier_parts(*CASES["one class"])
    assert one.uncertainty == 0
