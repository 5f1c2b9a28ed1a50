"""What one example adds to the numbers of a run: averaged by the engine every epoch, by an evaluation afterwards.

Nothing here is checked and nothing is fetched: a diverged model gives NaN, and the caller synchronises once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rcad.loss.likelihoods import Categorical, Gaussian


@torch.no_grad()
def label_scores(output: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Float64 (B,) each: `hit` (1 where the largest logit, the first of equals, is the label's), `nll`, `brier`."""
    wide = output.double()
    miss = wide.softmax(1)
    miss.scatter_add_(1, y[:, None], miss.new_full((len(y), 1), -1.0))
    hit = (output.argmax(1) == y).double()
    return {"hit": hit, "nll": Categorical().nll(wide, y), "brier": miss.square().sum(1)}


@torch.no_grad()
def value_scores(output: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Float64 (B,) each, in the unit of y: `nll` of a Gaussian head (B, 2), `square` of the error of its mean.

    Each is computed in the output's own precision, as in training; only what follows is wider.
    """
    return {"nll": Gaussian().nll(output, y).double(), "square": (output[:, 0] - y).double().square()}
