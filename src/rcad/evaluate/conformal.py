"""Sets of classes and intervals that hold the answer as often as they promise: split conformal prediction.

Held-out examples get a score each, large where the model is wrong: 1 - p(y) for classes (Sadinle, Lei and Wasserman,
2019), |y - mean| / deviation for a Gaussian head (Lei et al., 2018). With n of them the threshold for a coverage c is
their k-th smallest score, k = ceil(c (n + 1)). A new example's set holds every class, its interval every value, whose
score is at most the threshold. If held-out and new examples are exchangeable, that holds the truth with probability
k / (n + 1) >= c (if no scores are equal), whatever the model: over splits, not for each example or class. A set holds
the most probable class in any case, so that a model that is right more often than c has sets of one class that hold the
truth more often. A model that knows more has smaller sets and narrower intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from rcad.errors import InputError
from rcad.evaluate.regression import Predicted, check_coverage
from rcad.loss.predictions import Labelled, fetch, fetch_numbers

LEVELS = (0.8, 0.9, 0.95, 0.99)


def class_scores(output: Tensor, y: Tensor) -> Tensor:
    """1 - p(y) of logits (B, K) for labels (B,), float64."""
    seen = Labelled.of(output, y)
    fetch({}, seen.checks)
    return 1 - seen.p.gather(1, seen.y[:, None])[:, 0]


def value_scores(output: Tensor, y: Tensor) -> Tensor:
    """|y - mean| / deviation of a Gaussian head (B, 2), float64."""
    seen = Predicted.of(output, y)
    fetch({}, seen.checks)
    return seen.z.abs()


def threshold(scores: Tensor, coverage: float) -> Tensor:
    """The k-th smallest of the held-out scores, (n,) or (n, T) for several targets, along the first dimension.

    It is inf where n < coverage / (1 - coverage): too few to promise that.
    """
    check_coverage(coverage)
    if not len(scores):
        raise InputError("expected held-out examples to calibrate on, but got none")
    k = math.ceil(coverage * (len(scores) + 1) - 1e-9)  # 0.9 * 10 is 9 and a rounding error
    if k > len(scores):
        return scores.new_full(scores.shape[1:], math.inf)
    return scores.sort(dim=0).values[k - 1]


def prediction_sets(output: Tensor, limit: Tensor | float) -> Tensor:
    """Which classes belong to the set of each example, bool (B, K); the most probable one always does."""
    p = output.detach().double().softmax(1)
    return (1 - p <= limit) | (p >= p.amax(1, keepdim=True))


def conformal_classes(
    held_out: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], levels: Sequence[float] = LEVELS
) -> dict[str, float]:
    """What sets that were calibrated on held-out logits and labels hold of the test examples.

    For each level L in percent: `conformal_coverage_L`, the share of sets with the label, and `conformal_size_L`, the
    mean number of classes in them. Levels for which there are too few held-out examples are left out.
    """
    seen, values = Labelled.of(*test), {}
    for level, limit in _limits(class_scores(*held_out), levels):
        sets = prediction_sets(seen.logits, limit)
        values[f"conformal_coverage_{level}"] = sets.gather(1, seen.y[:, None]).double().mean()
        values[f"conformal_size_{level}"] = sets.sum(1).double().mean()
    return fetch_numbers(values, seen.checks)


def conformal_values(
    held_out: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], scale: float = 1.0, levels: Sequence[float] = LEVELS
) -> dict[str, float]:
    """The same for intervals: `conformal_coverage_L`, and `conformal_width_L`, their mean width times `scale`."""
    seen, values = Predicted.of(*test), {}
    for level, limit in _limits(value_scores(*held_out), levels):
        values[f"conformal_coverage_{level}"] = (seen.z.abs() <= limit).double().mean()
        values[f"conformal_width_{level}"] = 2 * limit * seen.deviation.mean() * scale
    return fetch_numbers(values, seen.checks)


def _limits(scores: Tensor, levels: Sequence[float]) -> list[tuple[str, Tensor]]:
    """The levels in percent that can be promised, and their thresholds."""
    limits = [(f"{100 * level:g}", threshold(scores, level)) for level in levels]
    return [(level, limit) for level, limit in limits if bool(limit.isfinite())]
