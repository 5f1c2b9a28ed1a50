"""The temperature: against scipy, by its defining equation, and where there is nothing to fit."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn.functional import cross_entropy

from predictions import calibrated, cases, random_logits
from rcad.evaluate import temperature
from rcad.evaluate.classification import classification
from rcad.evaluate.temperature import COLDEST, HOTTEST, before_and_after, fit_temperature

CASES = cases()
LOOSE = ("perfect", "hopeless", "constant", "one example", "tied rows")  # no best temperature, or none inside the range


def nll(output: Tensor, y: Tensor, t: float) -> float:
    return cross_entropy(output.double() / t, y).item()


@pytest.mark.parametrize("case", [name for name in CASES if name not in LOOSE])
def test_scipy_finds_the_same(case: str) -> None:
    output, y = CASES[case]
    found = fit_temperature(output, y)
    other = minimize_scalar(
        lambda b: nll(output, y, math.exp(-b)), bounds=(-6.9, 6.9), method="bounded", options={"xatol": 1e-12}
    )
    assert not found.at_limit
    assert found.nll_after == pytest.approx(other.fun, abs=1e-12)
    assert found.value == pytest.approx(math.exp(-other.x), rel=1e-5)
    assert found.nll_before == pytest.approx(nll(output, y, 1.0), rel=1e-12)
    assert found.nll_after == pytest.approx(nll(output, y, found.value), rel=1e-12)


@given(seed=st.integers(0, 10_000), count=st.integers(1, 80), classes=st.integers(2, 8), power=st.floats(-4, 4))
@settings(max_examples=100, deadline=None)
def test_validation_nll_never_rises(seed: int, count: int, classes: int, power: float) -> None:
    output, y = random_logits(count, classes, seed=seed, scale=10**power)
    found = fit_temperature(output, y)
    assert found.nll_after <= found.nll_before
    assert COLDEST * (1 - 1e-12) <= found.value <= HOTTEST * (1 + 1e-12)
    for nearby in (0.5, 0.99, 1.01, 2.0):
        if COLDEST <= nearby * found.value <= HOTTEST:
            assert found.nll_after <= nll(output, y, nearby * found.value) + 1e-12


@given(seed=st.integers(0, 1000), factor=st.floats(0.05, 20))
@settings(max_examples=40, deadline=None)
def test_the_slope_vanishes_and_the_scale_of_the_logits_carries_over(seed: int, factor: float) -> None:
    output, y = random_logits(200, 4, seed=seed)
    found = fit_temperature(output, y)
    beta = torch.tensor(1 / found.value, dtype=torch.float64, requires_grad=True)
    cross_entropy(beta * output, y).backward()
    assert abs(beta.grad.item()) < 1e-12  # to rounding: logits are of size 10, and 200 of them are averaged
    again = fit_temperature(factor * output, y)
    assert again.value == pytest.approx(factor * found.value, rel=1e-11)
    assert again.nll_after == pytest.approx(found.nll_after, rel=1e-12)


def test_a_known_temperature_is_found() -> None:
    logits, y = calibrated(40_000)
    assert fit_temperature(3 * logits, y).value == pytest.approx(3, rel=0.03)
    assert fit_temperature(logits, y).value == pytest.approx(1, rel=0.03)


def test_where_there_is_nothing_to_fit() -> None:
    """A perfect predictor wants T = 0, a hopeless one T = infinity, a constant one nothing."""
    output, y = CASES["perfect"]
    cold = fit_temperature(output / 20, y)
    assert (cold.value, cold.at_limit) == (pytest.approx(COLDEST), True)
    assert cold.nll_after == 0
    hot = fit_temperature(*CASES["hopeless"])
    assert (hot.value, hot.at_limit) == (pytest.approx(HOTTEST), True)
    assert math.log(7) < hot.nll_after < hot.nll_before
    still = fit_temperature(*CASES["constant"])
    assert (still.value, still.at_limit) == (1, False)
    assert still.nll_after == still.nll_before == pytest.approx(math.log(7))
    sure = fit_temperature(1000 * output, y)
    assert (sure.value, sure.nll_before, sure.nll_after) == (1, 0, 0)


def test_huge_logits_are_no_obstacle() -> None:
    output, y = CASES["random"]
    small, large = fit_temperature(output, y), fit_temperature(300 * output, y)
    assert large.value == pytest.approx(300 * small.value, rel=1e-10)


@given(seed=st.integers(0, 1000), power=st.floats(-2, 2))
@settings(max_examples=40, deadline=None)
def test_few_passes_suffice(seed: int, power: float) -> None:
    passes = 0

    def counted(margin: Tensor, b: float) -> tuple[float, float]:
        nonlocal passes
        passes += 1
        return slopes(margin, b)

    slopes = temperature._slopes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(temperature, "_slopes", counted)
        output, y = random_logits(60, 4, seed=seed)
        fit_temperature(10**power * output, y)
    assert passes <= 15


def test_before_and_after_on_other_examples() -> None:
    logits, y = calibrated(6000)
    fitted = fit_temperature(4 * logits[:3000], y[:3000])
    test = 4 * logits[3000:], y[3000:]
    found = before_and_after(fitted, *test)
    assert found["temperature"] == fitted.value
    plain, scaled = classification(*test), classification(test[0] / fitted.value, test[1])
    assert {name: found[name] for name in plain} == plain
    for name in ("nll", "brier", "ece", "ece_mass", "ece_classwise", "aurc", "brier_reliability"):
        assert found[f"{name}_scaled"] == scaled[name]
    assert found["nll_scaled"] < found["nll"]
    assert found["ece_scaled"] < 0.3 * found["ece"]
    assert "accuracy_scaled" not in found
    assert scaled["accuracy"] == plain["accuracy"]
