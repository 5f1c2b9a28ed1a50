"""Equal scores: which examples share a place in an order, so that no result hangs on how a sort breaks ties."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def tie_bounds(ordered: Tensor) -> tuple[Tensor, Tensor]:
    """For each place of an ascending order, the first place of its group of equals and the one after the last."""
    return torch.searchsorted(ordered, ordered), torch.searchsorted(ordered, ordered, right=True)


def tie_means(ordered: Tensor, values: Tensor) -> Tensor:
    """Each value replaced by the mean of its group: what it is on average when equals are put in random order."""
    first, after = tie_bounds(ordered)
    total = F.pad(values.cumsum(0), (1, 0))
    means = (total[after] - total[first]) / (after - first)
    # A group of one keeps its value to the last bit.
    return torch.where(after - first == 1, values, means)
