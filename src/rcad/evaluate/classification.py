"""All numbers of a classifier's predictions at once.

Percent: `accuracy` and `top5`, as the engine reports accuracy. All others are fractions or, for `nll` and `entropy`,
nats.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rcad.errors import whole
from rcad.evaluate.brier import decomposed
from rcad.evaluate.selective import areas
from rcad.loss.calibration import BINS, class_bins, classwise_error, top_label_error
from rcad.loss.likelihoods import Categorical
from rcad.loss.predictions import Labelled, fetch_numbers, label_scores


@torch.no_grad()
def classification(output: Tensor, y: Tensor, *, bins: int = BINS) -> dict[str, float]:
    """Every number that needs nothing but logits (B, K) and labels (B,), with one synchronisation.

    `accuracy`, `nll` and `brier` are those of `rcad.train.metrics.scores`. `brier_*` are the parts of `brier`, `ece`,
    `ece_mass` and `ece_classwise` the calibration errors of `calibration.ece`, `aurc` and `excess_aurc` those of
    `selective.risk_coverage`; `confidence` is the mean of the largest probability, `entropy` the mean entropy.
    """
    seen = Labelled.of(output, y)
    found = class_bins(seen, bins)
    rows = label_scores(seen.logits, seen.y)
    values = {
        "accuracy": 100 * rows["hit"].mean(),
        "top5": 100 * within_top(seen, 5).mean(),
        "nll": rows["nll"].mean(),
        "brier": rows["brier"].mean(),
        **{f"brier_{name}": part for name, part in decomposed(seen, found).items()},
        "ece": top_label_error(seen, bins, "width"),
        "ece_mass": top_label_error(seen, bins, "mass"),
        "ece_classwise": classwise_error(seen, found),
        **areas(seen.log_confidence, 1 - seen.hit),
        "confidence": seen.confidence.mean(),
        "entropy": Categorical().entropy(seen.logits).mean(),
    }
    return fetch_numbers(values, seen.checks)


def top_accuracy(output: Tensor, y: Tensor, k: int = 5) -> float:
    """Percent of labels among the k largest logits; of equal logits those of smaller index come first.

    With k = 1 it is the accuracy; with k at least the number of classes it is 100.
    """
    whole("k", k, minimum=1)
    seen = Labelled.of(output, y)
    return fetch_numbers({"top": 100 * within_top(seen, k).mean()}, seen.checks)["top"]


def within_top(seen: Labelled, k: int) -> Tensor:
    """1.0 where the label is among the k largest logits."""
    own = seen.logits.gather(1, seen.y[:, None])
    earlier = torch.arange(seen.logits.shape[1], device=seen.y.device) < seen.y[:, None]
    before = (seen.logits > own) | ((seen.logits == own) & earlier)
    return (before.sum(1) < k).double()
