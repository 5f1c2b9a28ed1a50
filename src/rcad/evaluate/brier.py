"""The Brier score and its parts.

Brier (1950): the mean of |p - e_y|^2 over all K classes, between 0 and 2. For each class k the forecasts p_k are put
into M right-closed bins of equal width, as in `calibration`. With n_kb examples in a bin, their mean forecast f_kb,
the frequency o_kb of the class among them and o_k among all N, summed over classes and bins:

    reliability = sum n_kb / N (f_kb - o_kb)^2      how far stated and seen frequencies are apart; 0 is best
    resolution  = sum n_kb / N (o_kb - o_k)^2       how much the forecasts tell examples apart; large is good
    uncertainty = sum o_k (1 - o_k)                 a property of the labels alone
    within_bins = sum n_kb / N (var_kb(p) - 2 cov_kb(p, outcome))

The identity  brier = reliability - resolution + uncertainty + within_bins  holds exactly. The first three terms are
Murphy's (1973), complete when all forecasts of a bin are equal; the last is what binning leaves over (Stephenson,
Coelho and Jolliffe, 2008).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rcad.loss.calibration import BINS, Binned, class_bins
from rcad.loss.predictions import Labelled, fetch_numbers, label_scores


@dataclass(frozen=True)
class BrierParts:
    """brier = reliability - resolution + uncertainty + within_bins."""

    brier: float
    reliability: float
    resolution: float
    uncertainty: float
    within_bins: float


def brier_parts(output: Tensor, y: Tensor, *, bins: int = BINS) -> BrierParts:
    """The Brier score of logits (B, K) for labels (B,), and what it is made of."""
    seen = Labelled.of(output, y)
    parts = decomposed(seen, class_bins(seen, bins))
    brier = label_scores(seen.logits, seen.y)["brier"].mean()
    return BrierParts(**fetch_numbers({"brier": brier, **parts}, seen.checks))


def decomposed(seen: Labelled, found: Binned) -> dict[str, Tensor]:
    """The four parts, each computed from its own formula."""
    count, total = found.size.clamp(min=1), len(seen.y)
    base = found.outcome.view(seen.p.shape[1], -1).sum(1, keepdim=True) / total
    forecast, outcome = found.forecast / count, found.outcome / count
    spread = (outcome.view(len(base), -1) - base).square().view(-1)
    variance = seen.p.square().sum() - (found.forecast * forecast).sum()
    covariance = seen.p.gather(1, seen.y[:, None]).sum() - (found.outcome * forecast).sum()
    return {
        "reliability": (found.size * (forecast - outcome).square()).sum() / total,
        "resolution": (found.size * spread).sum() / total,
        "uncertainty": (base * (1 - base)).sum(),
        "within_bins": (variance - 2 * covariance) / total,
    }
