"""All numbers of a classifier: accuracy, likelihood, Brier score, calibration, selective prediction, temperature.

Percent: `accuracy` and `top5`, as the engine reports accuracy, and `overconfidence`. All others are fractions or, for
`nll` and `entropy`, nats.

The Brier score (1950) is the mean of |p - e_y|^2 over all K classes, between 0 and 2. For each class k the forecasts
p_k are put into M right-closed bins of equal width, as in `calibration`. With n_kb examples in a bin, their mean
forecast f_kb, the frequency o_kb of the class among them and o_k among all N, summed over classes and bins:

    reliability = sum n_kb / N (f_kb - o_kb)^2      how far stated and seen frequencies are apart; 0 is best
    resolution  = sum n_kb / N (o_kb - o_k)^2       how much the forecasts tell examples apart; large is good
    uncertainty = sum o_k (1 - o_k)                 a property of the labels alone
    within_bins = sum n_kb / N (var_kb(p) - 2 cov_kb(p, outcome))

The identity  brier = reliability - resolution + uncertainty + within_bins  holds exactly. The first three terms are
Murphy's (1973), complete when all forecasts of a bin are equal; the last is what binning leaves over (Stephenson,
Coelho and Jolliffe, 2008).

Risk against coverage (Geifman and El-Yaniv, 2017): the risk at coverage k / N is the mean loss of the k most confident
examples, and AURC is its mean over k = 1 .. N. Equal confidences count with their mean loss, which is the exact
expectation over a random order among them. Excess AURC subtracts the AURC of the best order for the same losses
(Geifman, Uziel and El-Yaniv, 2019, here for N examples and not in the limit), so that 0 is a perfect ranking.

One temperature for all logits (Guo et al., 2017), fitted on held-out examples, tells what part of a miscalibration is
mere scale. With b = 1 / T the NLL of softmax(b z) is convex in b, so its derivative has at most one sign change, which
is found to rounding by halving the range of log b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rcad.errors import whole
from rcad.loss.likelihoods import Categorical
from rcad.loss.predictions import (
    BINS,
    Binned,
    Labelled,
    class_bins,
    classwise_error,
    fetch,
    fetch_numbers,
    label_scores,
    tie_means,
    top_label_error,
)


@torch.no_grad()
def classification(output: Tensor, y: Tensor, *, bins: int = BINS) -> dict[str, float]:
    """Every number that needs nothing but logits (B, K) and labels (B,), with one synchronisation.

    `accuracy`, `nll` and `brier` are those of `rcad.train.task.scores`. `brier_*` are the parts of `brier`, `ece`,
    `ece_mass` and `ece_classwise` the calibration errors of `calibration.ece`, `aurc` and `excess_aurc` those of
    `risk_coverage`; `confidence` is the mean of the largest probability, `overconfidence` how many points it is above
    the accuracy, `entropy` the mean entropy.
    """
    seen = Labelled.of(output, y)
    binned = class_bins(seen, bins)
    rows = label_scores(seen.logits, seen.y)
    values = {
        "accuracy": 100 * rows["hit"].mean(),
        "top5": 100 * seen.within_top(5).mean(),
        "nll": rows["nll"].mean(),
        "brier": rows["brier"].mean(),
        **{f"brier_{name}": part for name, part in decomposed(seen, binned).items()},
        "ece": top_label_error(seen, bins, "width"),
        "ece_mass": top_label_error(seen, bins, "mass"),
        "ece_classwise": classwise_error(seen, binned),
        **areas(seen.log_confidence, 1 - seen.hit),
        "confidence": seen.confidence.mean(),
        "overconfidence": 100 * (seen.confidence - rows["hit"]).mean(),
        "entropy": Categorical().entropy(seen.logits).mean(),
    }
    return fetch_numbers(values, seen.checks)


def top_accuracy(output: Tensor, y: Tensor, k: int = 5) -> float:
    """Percent of labels among the k largest logits; of equal logits those of smaller index come first.

    With k = 1 it is the accuracy; with k at least the number of classes it is 100.
    """
    whole("k", k, minimum=1)
    seen = Labelled.of(output, y)
    return fetch_numbers({"top": 100 * seen.within_top(k).mean()}, seen.checks)["top"]


def decomposed(seen: Labelled, binned: Binned) -> dict[str, Tensor]:
    """The four parts of the Brier score, each computed from its own formula."""
    count, total = binned.size.clamp(min=1), len(seen.y)
    base = binned.outcome.view(seen.p.shape[1], -1).sum(1, keepdim=True) / total
    forecast, outcome = binned.forecast / count, binned.outcome / count
    spread = (outcome.view(len(base), -1) - base).square().view(-1)
    variance = seen.p.square().sum() - (binned.forecast * forecast).sum()
    covariance = seen.p.gather(1, seen.y[:, None]).sum() - (binned.outcome * forecast).sum()
    return {
        "reliability": (binned.size * (forecast - outcome).square()).sum() / total,
        "resolution": (binned.size * spread).sum() / total,
        "uncertainty": (base * (1 - base)).sum(),
        "within_bins": (variance - 2 * covariance) / total,
    }


@dataclass(frozen=True)
class RiskCoverage:
    """The risk among the `coverage` most confident examples, and the area under it."""

    coverage: tuple[float, ...]
    risk: tuple[float, ...]
    aurc: float
    excess_aurc: float


def risk_coverage(output: Tensor, y: Tensor) -> RiskCoverage:
    """For logits (B, K) and labels (B,): the share of errors among the examples of largest probability.

    The curve is given at every hundredth of coverage, rounded up to whole examples; the areas use every example.
    """
    seen = Labelled.of(output, y)
    confidence, loss, total = seen.log_confidence, 1 - seen.hit, len(seen.y)
    points = min(100, total)
    count = -(-torch.arange(1, points + 1, device=loss.device) * total // points)
    values = {"coverage": count.double() / total, "risk": risks(confidence, loss)[count - 1], **areas(confidence, loss)}
    curve = fetch(values, seen.checks)
    return RiskCoverage(tuple(curve["coverage"]), tuple(curve["risk"]), curve["aurc"][0], curve["excess_aurc"][0])


def areas(confidence: Tensor, loss: Tensor) -> dict[str, Tensor]:
    """`aurc` and `excess_aurc`."""
    aurc = risks(confidence, loss).mean()
    return {"aurc": aurc, "excess_aurc": aurc - risks(-loss, loss).mean()}


def risks(confidence: Tensor, loss: Tensor) -> Tensor:
    """The mean loss of the k most confident examples, for k = 1 .. N."""
    ordered, order = (-confidence).sort()
    expected = tie_means(ordered, loss[order])
    return expected.cumsum(0) / torch.arange(1, len(loss) + 1, device=loss.device)


# Beyond these the optimum is at 0 (every validation example right) or at infinity (logits worse than none).
COLDEST, HOTTEST = 1e-3, 1e3
HALVINGS = 60


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
    low, high = ends = math.log(1 / HOTTEST), math.log(1 / COLDEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        slope = ((math.exp(middle) * margin).softmax(1) * margin).sum(1).mean().item()
        low, high = (middle, high) if slope <= 0 else (low, middle)
    b = math.exp(high)
    after = _nll(margin, b).item()
    if after < before:
        return Temperature(1 / b, before, after, at_limit=low == ends[0] or high == ends[1])
    # Where nothing is to be gained, rounding must not decide: the logits stay as they are.
    return Temperature(1.0, before, before, at_limit=False)


def before_and_after(fitted: Temperature, output: Tensor, y: Tensor) -> dict[str, float]:
    """`classification` of other examples as they are, and again with the suffix `_scaled` at the fitted temperature."""
    plain = classification(output, y)
    scaled = classification(output.detach().double() / fitted.value, y)
    # Accuracies do not change, so they are given once.
    again = {f"{name}_scaled": value for name, value in scaled.items() if name not in ("accuracy", "top5")}
    return {"temperature": fitted.value, **plain, **again}


def _nll(margin: Tensor, b: float) -> Tensor:
    return (b * margin).logsumexp(1).mean()
