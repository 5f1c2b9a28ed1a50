"""A Gaussian head: against scipy and scikit-learn, by integration; conformal sets: by hand, over seeds."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from sklearn import metrics
from torch import Tensor

from one_line import refusals
from rcad.evaluate import conformal
from rcad.evaluate.conformal import conformal_classes, conformal_values, prediction_sets, threshold
from rcad.evaluate.regression import Predicted, crps, interval_coverage, regression

NAMES = "nll rmse mae crps sharpness pit_error coverage_50 coverage_80 coverage_90 coverage_95"


def head(count: int = 200, *, seed: int = 0, spread: float = 1.0) -> tuple[Tensor, Tensor]:
    """A head and targets drawn from what it says, with deviations `spread` times as large."""
    generator = torch.Generator().manual_seed(seed)
    mean, log_variance, noise = torch.randn(3, count, generator=generator, dtype=torch.float64)
    return torch.stack([mean, log_variance], 1), mean + spread * (0.5 * log_variance).exp() * noise


OUTPUT, Y = head()
CASES = {
    "right": (OUTPUT, Y),
    "float32": (OUTPUT.float(), Y.float()),
    "overconfident": head(spread=5.0),
    "ties": (OUTPUT[torch.arange(200) // 20], Y[torch.arange(200) // 10]),
    "perfect means": (OUTPUT, OUTPUT[:, 0].clone()),
    "constant": (torch.zeros(200, 2, dtype=torch.float64), Y),
    "one example": (OUTPUT[:1], Y[:1]),
    "below the floor": (torch.stack([OUTPUT[:, 0], OUTPUT[:, 1] - 50], 1), Y),
}


@pytest.mark.parametrize("scale", [1.0, 7.5])
@pytest.mark.parametrize("case", CASES)
def test_scipy_and_scikit_learn_give_the_same(case: str, scale: float) -> None:
    output, y = CASES[case]
    found = regression(output.clone().requires_grad_(), y[:, None], scale)  # a column is one number each
    assert " ".join(found) == NAMES
    mean, target = (scale * output[:, 0].double()).numpy(), (scale * y.double()).numpy()
    deviation = scale * np.exp(0.5 * np.maximum(output[:, 1].double().numpy(), -20))
    law = stats.norm(mean, deviation)
    assert found["nll"] == pytest.approx(-law.logpdf(target).mean(), rel=1e-6)
    assert found["rmse"] == pytest.approx(metrics.root_mean_squared_error(target, mean), rel=1e-6, abs=1e-12)
    assert found["mae"] == pytest.approx(metrics.mean_absolute_error(target, mean), abs=1e-12)
    assert found["sharpness"] == pytest.approx(deviation.mean())
    assert found["crps"] == pytest.approx(scale * regression(output, y)["crps"])
    for level in (0.5, 0.8, 0.9, 0.95):
        low, high = law.interval(level)
        assert found[f"coverage_{100 * level:g}"] == ((low <= target) & (target <= high)).mean()
    u = np.sort(law.cdf(target))
    by_integration = sum(
        integrate.quad(lambda t, v=v: abs(v - t), i / len(u), (i + 1) / len(u), points=[v])[0] for i, v in enumerate(u)
    )
    assert found["pit_error"] == pytest.approx(by_integration, abs=1e-9)


@given(mean=st.floats(-5, 5), log_variance=st.floats(-6, 6), y=st.floats(-8, 8))
@settings(max_examples=25, deadline=None)
def test_crps_is_its_integral(mean: float, log_variance: float, y: float) -> None:
    deviation = math.exp(0.5 * log_variance)
    law = stats.norm(mean, deviation)
    far = 12 * deviation + abs(mean - y)
    below = integrate.quad(lambda t: law.cdf(t) ** 2, min(mean, y) - far, y, limit=500, points=[mean])[0]
    above = integrate.quad(lambda t: law.sf(t) ** 2, y, max(mean, y) + far, limit=500, points=[mean])[0]
    seen = Predicted.of(torch.tensor([[mean, log_variance]]).double(), torch.tensor([y]).double())
    found = crps(seen).item()
    assert found >= 0
    assert found == pytest.approx(below + above, rel=1e-5, abs=1e-6)


def test_an_interval_s_ends_count_as_inside() -> None:
    quantile = stats.norm.ppf(0.75)
    y = torch.tensor([quantile, -quantile, math.nextafter(quantile, 9), 0.0], dtype=torch.float64)
    assert interval_coverage(torch.zeros(4, 2).double(), y, [0.5]) == (0.75,)


def test_levels_are_chosen() -> None:
    output, y = CASES["right"]
    found = regression(output, y, levels=(0.25, 0.995))
    assert {name for name in found if name.startswith("coverage")} == {"coverage_25", "coverage_99.5"}
    assert interval_coverage(output, y, (0.25, 0.995)) == (found["coverage_25"], found["coverage_99.5"])


test_faults_are_named = refusals(
    (torch.zeros(3, 4), torch.zeros(3), "expected a mean and a log-variance per example, shape (B, 2)"),
    (torch.zeros(3, 2), torch.zeros(4), "expected a target of shape"),
    (torch.zeros(0, 2), torch.zeros(0), "expected at least one example, but got none"),
    (torch.full((3, 2), torch.nan), torch.zeros(3), "expected finite outputs, but got NaN or inf"),
    (torch.zeros(3, 2), torch.tensor([0, 1, torch.inf]), "expected finite targets"),
    (torch.zeros(3, 2), torch.zeros(3), (0.9, 1.0), "expected coverage to be a number between 0 and 1, but got 1.0"),
    of=lambda output, y, levels=(0.5,): regression(output, y, levels=levels),
)


def test_the_threshold_is_the_kth_smallest_score() -> None:
    scores = torch.tensor([0.4, 0.1, 0.3, 0.2, 0.9, 0.5, 0.6, 0.8, 0.7])  # n = 9
    assert threshold(scores, 0.9) == 0.9  # k = 0.9 * 10 = 9, and not 10
    assert threshold(scores, 0.85) == 0.9  # k = ceil(8.5)
    assert threshold(scores, 0.5) == 0.5
    assert threshold(scores, 0.95) == math.inf  # k = 10 of 9
    several = torch.stack([scores, 2 * scores], 1)
    assert threshold(several, 0.5).tolist() == pytest.approx([0.5, 1.0])


def test_scores_sets_and_widths_by_hand() -> None:
    logits = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.34, 0.33, 0.33]]).log()
    y = torch.tensor([0, 0, 2])
    assert conformal.class_scores(logits, y).tolist() == pytest.approx([0.4, 0.8, 0.67], abs=1e-6)
    sets = prediction_sets(logits, 0.68)  # every class of probability 0.32 or more, and the first in any case
    assert sets.tolist() == [[True, False, False], [False, True, False], [True, True, True]]
    assert prediction_sets(logits, 0.0).sum(1).tolist() == [1, 1, 1]
    output = torch.tensor([[0.0, 0.0], [1.0, math.log(4.0)]])  # deviations 1 and 2
    assert conformal.value_scores(output, torch.tensor([1.5, -2.0])).tolist() == pytest.approx([1.5, 1.5])
    held = output.repeat(9, 1), torch.tensor([1.5, -2.0] * 9)
    found = conformal_values(held, (output, torch.tensor([1.4, 9.0])), 10.0)
    assert found["conformal_width_90"] == pytest.approx(2 * 1.5 * 1.5 * 10)
    assert found["conformal_coverage_90"] == 0.5
    assert "conformal_width_95" not in found  # 18 are too few


def draw(count: int, generator: torch.Generator, *, reals: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """What a poor model says, sure of itself and wrong about scale, and the truth."""
    x = torch.randn(count, 3, generator=generator)
    if reals:
        y = x[:, 0] + 2 * torch.randn(count, generator=generator)
        return torch.stack([0.5 * x[:, 0], 0.3 * x[:, 1] - 2], 1), y
    y = (2 * x).softmax(1).multinomial(1, generator=generator)[:, 0]
    return 6 * x + torch.randn(count, 3, generator=generator), y


@pytest.mark.parametrize("reals", [False, True])
def test_coverage_over_seeds_is_what_theory_says(reals: bool) -> None:
    """Its mean over splits is k / (n + 1): 72 / 81 of n = 80 at 0.88, within four standard errors over 200 seeds."""
    found, measured = [], conformal_values if reals else conformal_classes
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        held, test = draw(80, generator, reals=reals), draw(200, generator, reals=reals)
        found.append(measured(held, test, levels=(0.88,))["conformal_coverage_88"])
    coverage = torch.tensor(found, dtype=torch.float64)
    error = coverage.std().item() / math.sqrt(200)
    expected = math.ceil(0.88 * 81) / 81
    assert error < 0.004
    assert abs(coverage.mean().item() - expected) < 4 * error


test_a_threshold_that_cannot_be_is_refused = refusals(
    *((10, coverage, "expected coverage to be a number between 0 and 1") for coverage in (0.0, 1.0, 1.5, "much")),
    (0, 0.9, "expected held-out examples to calibrate on"),
    of=lambda count, coverage: threshold(torch.rand(count), coverage),
)
