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
    pass. Zeros change nothing in the result; parameters and their names are those of `nn.Conv2d`. Where the channels
    come in groups, whoever groups them adds the zeros.
    """

    def forward(self, x: Tensor) -> Tensor:
        each = self.in_channels // self.groups
        zeros = (0, 0, 0, 0, 0, -each % CHANNELS)
        widens = bool(zeros[-1]) and self.groups == 1 and on_tensor_cores(x)
        if not widens and (self.groups == 1 or x.shape[1] == self.in_channels):
            return super().forward(x)
        weight = pad(self.weight, zeros)
        if widens:
            if weight.is_contiguous(memory_format=torch.channels_last):
                # Else the large gradient of the output is brought into the order of x, and back, to find that of x.
                x = x.to(memory_format=torch.channels_last)  # contiguous() would not tell a single channel the order
            x = pad(x, zeros)
        y: Tensor = self._conv_forward(x, weight, self.bias)
        return y


def on_tensor_cores(x: Tensor) -> bool:
    """Whether the convolution will run in bf16 on a GPU."""
    if not x.is_cuda:
        return False
    if torch.is_autocast_enabled("cuda"):
        return torch.get_autocast_dtype("cuda") == torch.bfloat16
    return x.dtype == torch.bfloat16
