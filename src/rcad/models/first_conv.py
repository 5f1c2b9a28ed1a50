"""The convolution that sees the image itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

CHANNELS = 8
"""What bf16 tensor cores take at a time."""


class FirstConv2d(nn.Conv2d):
    """A convolution over few channels, with zero channels added where that makes it faster.

    Three channels do not fit tensor cores: cuDNN falls back on slower kernels, or copies and pads by itself in every
    pass. Zeros change nothing in the result; parameters and their names are those of `nn.Conv2d`.
    """

    def forward(self, x: Tensor) -> Tensor:
        missing = -self.in_channels % CHANNELS
        if not missing or self.groups != 1 or not _on_tensor_cores(x):
            return super().forward(x)
        zeros = (0, 0, 0, 0, 0, missing)
        y: Tensor = self._conv_forward(pad(x, zeros), pad(self.weight, zeros), self.bias)
        return y


def _on_tensor_cores(x: Tensor) -> bool:
    """Whether the convolution will run in bf16 on a GPU."""
    if not x.is_cuda:
        return False
    if torch.is_autocast_enabled("cuda"):
        return torch.get_autocast_dtype("cuda") == torch.bfloat16
    return x.dtype == torch.bfloat16
