"""One temperature for all logits, fitted on held-out examples: what part of a miscalibration is mere scale?

Guo et al. (2017). With b = 1 / T the NLL of softmax(b z) is convex in b, so its derivative has at most one sign
change, and Newton's method inside a shrinking bracket finds it to rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rcad.evaluate.classification import classification
from rcad.loss.predictions import Labelled, fetch_numbers

# Beyond these the optimum is at 0 (every validation example right) or at infinity (logits worse than none).
COLDEST, HOTTEST = 1e-3, 1e3
STEPS = 100


@dataclass(frozen=True)
class Temperature:
    """A fitted temperature; `nll_before` (at T = 1) and `nll_after` are those of the examples it was fitted on.

    `at_limit` is set where the NLL still fell at 1e-3 or 1e3, the ends of the range searched.
    """

    value: float
    nll_before: float
    nll_after: float
    at_limit: bool


@torch.no_grad()
def fit_temperature(output: Tensor, y: Tensor) -> Temperature:
    """The T in [1e-3, 1e3] with the least NLL of softmax(logits / T); never worse than T = 1.

    Args:
        output: logits (B, K) of a model on examples that it was not trained on.
        y: labels (B,).
    """
    seen = Labelled.of(output, y)
    # The NLL is the log of the sum of exp(b margin), margins being taken to the label's logit.
    margin = seen.logits - seen.logits.gather(1, seen.y[:, None])
    before = fetch_numbers({"nll": _nll(margin, 1.0)}, seen.checks)["nll"]
    low, high = 1 / HOTTEST, 1 / COLDEST
    if _slopes(margin, low)[0] >= 0:
        return _chosen(margin, low, before, at_limit=True)
    if _slopes(margin, high)[0] <= 0:
        return _chosen(margin, high, before, at_limit=True)
    return _chosen(margin, _root(margin, low, high), before, at_limit=False)


def before_and_after(fitted: Temperature, output: Tensor, y: Tensor) -> dict[str, float]:
    """`classification` of other examples as they are, and again with the suffix `_scaled` at the fitted temperature.

    Accuracies do not change, so they are given once.
    """
    plain = classification(output, y)
    scaled = classification(output.detach().double() / fitted.value, y)
    again = {f"{name}_scaled": value for name, value in scaled.items() if name not in ("accuracy", "top5")}
    return {"temperature": fitted.value, **plain, **again}


def _root(margin: Tensor, low: float, high: float) -> float:
    """Where the slope changes sign, from negative at `low` to positive at `high`."""
    b = 1.0
    for _ in range(STEPS):
        slope, curvature = _slopes(margin, b)
        step = slope / curvature if curvature > 0 else math.inf
        # Newton squares the error: after a step this small, only rounding is left.
        if abs(step) <= 1e-8 * b:
            return b - step
        low, high = (b, high) if slope < 0 else (low, b)
        # A step that leaves the bracket is replaced by one to the bracket's geometric middle.
        b = b - step if low < b - step < high else math.sqrt(low * high)
    return b


def _slopes(margin: Tensor, b: float) -> tuple[float, float]:
    """The first and second derivative of the mean NLL in b."""
    p = (b * margin).softmax(1)
    mean = (p * margin).sum(1, keepdim=True)
    curvature = (p * (margin - mean).square()).sum(1).mean()
    slope, curve = torch.stack([mean.mean(), curvature]).tolist()
    return slope, curve


def _nll(margin: Tensor, b: float) -> Tensor:
    return (b * margin).logsumexp(1).mean()


def _chosen(margin: Tensor, b: float, before: float, *, at_limit: bool) -> Temperature:
    after = _nll(margin, b).item()
    if after < before:
        return Temperature(1 / b, before, after, at_limit)
    # Where nothing is to be gained, rounding must not decide: the logits stay as they are.
    return Temperature(1.0, before, before, at_limit=False)
