"""ADA and ME-ADA for many replicas: `FeatureAscent` on every replica's training set at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rcad.errors import InputError
from rcad.loss.growth import FeatureAscent
from rcad.stacked.method import StackedLikelihood
from rcad.stacked.model import StackedMLP

ROWS = 128
"""Examples of each replica that ascend at a time: bounds the memory of the activations."""


def grow(
    growth: Sequence[FeatureAscent], model: StackedMLP, x: Tensor, target: Tensor, likelihood: StackedLikelihood
) -> Tensor:
    """The new examples of each replica, (R, n, D), in the order of the old; their targets are the old ones'.

    Args:
        growth: one per replica; eta, gamma and step_size may differ.
        x: all training examples, (R, n, D).
        target: (R, n).
    """
    first = growth[0]
    if x[0].numel() * x.element_size() > first.max_bytes:
        raise InputError(f"expected training sets within max_bytes={first.max_bytes}, but got {tuple(x.shape)}")
    eta, gamma, size = (
        x.new_tensor([getattr(one, name) for one in growth])[:, None] for name in ("eta", "gamma", "step_size")
    )
    with_entropy = any(one.eta for one in growth)

    def ascended(start: Tensor, y: Tensor) -> Tensor:
        rows = start.shape[:2]
        with torch.no_grad():
            anchor = model.features(start)
        moved = start
        for _ in range(first.steps):
            moved = moved.detach().requires_grad_(True)
            features = model.features(moved)
            output = model.head(features).flatten(0, 1)
            gain = likelihood.nll(output, y.reshape(-1)).view(rows) - gamma * (features - anchor).square().mean(2)
            if with_entropy:
                gain = gain + eta * likelihood.entropy(output).view(rows)
            (gradient,) = torch.autograd.grad(gain.sum(), moved)
            moved = moved.detach() + size[..., None] * gradient
        return moved.detach()

    parts = zip(torch.split(x, ROWS, dim=1), torch.split(target, ROWS, dim=1), strict=True)
    return torch.cat([ascended(start, y) for start, y in parts], dim=1)
