"""A convolution with a second form for torch.compile."""

from __future__ import annotations

from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn.functional import conv2d


class StridedPointwise(nn.Conv2d):
    """A 1x1 convolution with a stride; compiled, the pixels that it skips are left out before it runs.

    Then its gradient is made at the size of the output, and the zeros between are filled in by the kernel that adds the
    gradients of a block's two branches. Uncompiled, filling them in would take longer.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not is_compiling():
            return super().forward(x)
        down, right = self.stride
        return conv2d(x[:, :, ::down, ::right], self.weight, self.bias, groups=self.groups)
