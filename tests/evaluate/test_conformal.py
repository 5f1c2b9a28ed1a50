"""Split conformal sets and intervals hold what they promise, by the formula, over seeds, and for any model."""

from __future__ import annotations

import math

import pytest
import torch

from rcad import InputError
from rcad.evaluate.conformal import (
    class_scores,
    conformal_classes,
    conformal_values,
    prediction_sets,
    threshold,
    value_scores,
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
    assert class_scores(logits, y).tolist() == pytest.approx([0.4, 0.8, 0.67], abs=1e-6)
    sets = prediction_sets(logits, 0.68)  # every class of probability 0.32 or more, and the first in any case
    assert sets.tolist() == [[True, False, False], [False, True, False], [True, True, True]]
    assert prediction_sets(logits, 0.0).sum(1).tolist() == [1, 1, 1]
    output = torch.tensor([[0.0, 0.0], [1.0, math.log(4.0)]])  # deviations 1 and 2
    assert value_scores(output, torch.tensor([1.5, -2.0])).tolist() == pytest.approx([1.5, 1.5])
    found = conformal_values(
        (output.repeat(9, 1), torch.tensor([1.5, -2.0] * 9)), (output, torch.tensor([1.4, 9.0])), 10.0
    )
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


@pytest.mark.parametrize("coverage", [0.0, 1.0, 1.5, "much"])
def test_a_coverage_that_is_none_is_refused(coverage: float) -> None:
    with pytest.raises(InputError, match="expected coverage to be a number between 0 and 1"):
        threshold(torch.rand(10), coverage)
    with pytest.raises(InputError, match="expected held-out examples to calibrate on"):
        threshold(torch.rand(0), 0.9)
