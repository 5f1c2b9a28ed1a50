"""Can a model tell examples of its own kind from others? Scores from its logits, and how well they separate.

A score is larger for what the model takes for its own: "in". All areas and rates are fractions; examples with equal
scores are never told apart.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rcad.errors import InputError, fraction
from rcad.loss.likelihoods import Categorical
from rcad.loss.predictions import Check, fetch_numbers, finite_check, log_confidence, tie_bounds

SCORES = ("msp", "entropy", "energy", "max_logit")


@torch.no_grad()
def scores(output: Tensor) -> dict[str, Tensor]:
    """One number per example and score, float64 (B,), from logits (B, K).

    msp: the *logarithm* of the largest probability (Hendrycks and Gimpel, 2017), which ranks like the probability
        and is free of ties where that rounds to 1; entropy: minus the predictive entropy; energy: logsumexp of the
        logits, minus the energy of Liu et al. (2020) at T = 1; max_logit: the largest logit (Hendrycks et al., 2022).
    """
    if output.ndim != 2 or not output.is_floating_point() or output.shape[1] < 2:
        raise InputError(f"expected logits of shape (B, K), but got {output.dtype} of shape {tuple(output.shape)}")
    z = output.detach().double()
    return {
        "msp": log_confidence(z),
        "entropy": -Categorical().entropy(z),
        "energy": z.logsumexp(1),
        "max_logit": z.amax(1),
    }


def out_of_distribution(inside: Tensor, outside: Tensor) -> dict[str, float]:
    """`detection` by every score, from logits of known (B, K) and foreign (C, K) examples: names like `msp_auroc`."""
    if inside.ndim == outside.ndim == 2 and inside.shape[1] != outside.shape[1]:
        raise InputError(
            f"expected logits of one model for both sets, but got {inside.shape[1]} and {outside.shape[1]} classes"
        )
    known, foreign = scores(inside), scores(outside.to(inside.device))
    values: dict[str, Tensor] = {}
    for name in SCORES:
        separated = separation(*_checked_sizes(known[name], foreign[name]))
        values |= {f"{name}_{quantity}": value for quantity, value in separated.items()}
    return fetch_numbers(values, _checks("logits", inside, outside))


def detection(known: Tensor, foreign: Tensor, *, tpr: float = 0.95) -> dict[str, float]:
    """How well any score (N,), larger for known examples, separates them from foreign ones (M,).

    auroc: the chance that a known example scores higher than a foreign one, equal scores counting one half.
    aupr_in, aupr_out: average precision with the known, and with the foreign examples (by minus the score), as
        positives: sum of (recall gained) * precision over the distinct scores, without interpolation. A constant
        score gives the share of positives.
    fpr95: share of foreign examples accepted (score >= threshold) at the highest threshold that accepts at least
        `tpr` of the known ones.
    """
    fraction("tpr", tpr)
    known, foreign = known.detach().double(), foreign.detach().double().to(known.device)
    values = separation(*_checked_sizes(known, foreign), tpr=tpr)
    return fetch_numbers(values, _checks("scores", known, foreign))


def separation(known: Tensor, foreign: Tensor, tpr: float = 0.95) -> dict[str, Tensor]:
    """The numbers of `detection`, on the device, in O(n log n)."""
    below = foreign.sort().values
    ranks = torch.searchsorted(below, known) + torch.searchsorted(below, known, right=True)
    # k is the least whole number with k / N >= tpr; the tolerance is for products that should be whole.
    kept = max(1, math.ceil(tpr * len(known) - 1e-9))
    threshold = known.sort(descending=True).values[kept - 1]
    return {
        "auroc": 0.5 * ranks.double().mean() / len(foreign),
        "aupr_in": average_precision(known, foreign),
        "aupr_out": average_precision(-foreign, -known),
        "fpr95": (foreign >= threshold).double().mean(),
    }


def average_precision(positive: Tensor, negative: Tensor) -> Tensor:
    """The mean, over the positives, of the precision at their own score as threshold."""
    ordered, order = torch.cat([-positive, -negative]).sort()
    true = (order < len(positive)).double()
    _, after = tie_bounds(ordered)
    precision = true.cumsum(0)[after - 1] / after
    return (true * precision).sum() / len(positive)


def _checked_sizes(known: Tensor, foreign: Tensor) -> tuple[Tensor, Tensor]:
    if known.ndim != 1 or foreign.ndim != 1 or len(known) == 0 or len(foreign) == 0:
        raise InputError(
            "expected one score per example and at least one example of each kind, "
            f"but got shapes {tuple(known.shape)} and {tuple(foreign.shape)}"
        )
    return known, foreign


def _checks(name: str, known: Tensor, foreign: Tensor) -> tuple[Check, ...]:
    hint = "the model has diverged or its input is not finite"
    return tuple(finite_check(name, values.to(known.device), hint) for values in (known, foreign))
