"""Layers with a second form for torch.compile: the same numbers, fewer bytes moved by what it fuses."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn import functional


def relu(x: Tensor) -> Tensor:
    """max(x, 0), for an x that comes straight from a norm.

    Compiled, the backward sees from x where the gradient passes: x is recomputed from what the norm's backward reads
    anyhow, so the result need not be read besides. NaN stays NaN in both forms.
    """
    return torch.where(x <= 0, 0.0, x) if is_compiling() else functional.relu(x)


class StridedPointwise(nn.Conv2d):
    """A 1x1 convolution with a stride; compiled, the pixels that it skips are left out before it runs.

    Then its gradient is made at the size of the output, and the zeros between are filled in by the kernel that adds the
    gradients of a block's two branches. Uncompiled, filling them in would take longer.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not is_compiling():
            return super().forward(x)
        down, right = self.stride
        return functional.conv2d(x[:, :, ::down, ::right], self.weight, self.bias)
