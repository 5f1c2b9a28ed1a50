"""Layer zero of every image model: pixels in [0, 1] go in, so that distances in x are distances in pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rcad.errors import InputError


class Normalize(nn.Module):
    """Subtract the mean and divide by the standard deviation of each channel.

    Both are saved with the weights: a checkpoint carries the scale that it was trained with.

    Args:
        mean: one number a channel, in the unit of x (pixels in [0, 1]).
        std: one positive number a channel.

    Shape:
        (B, C, H, W) -> the same.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if not mean or len(mean) != len(std):
            raise InputError(
                f"expected mean and std with one number a channel each, but got {len(mean)} and {len(std)}"
            )
        if not all(math.isfinite(m) for m in mean):
            raise InputError(f"expected mean to hold finite numbers, but got {tuple(mean)}")
        if not all(math.isfinite(s) and s > 0 for s in std):
            raise InputError(f"expected std to hold finite numbers > 0, but got {tuple(std)}")
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_floating_point():
            # Integer pixels would pass through unnoticed at 255 times their size.
            raise InputError(f"expected floating-point pixels in [0, 1], but got {x.dtype}; divide by 255 first")
        return (x - self.mean.view(-1, 1, 1)) / self.std.view(-1, 1, 1)

    def extra_repr(self) -> str:
        return f"channels={self.mean.numel()}"


def layer_zero(channels: int, mean: Sequence[float] | None, std: Sequence[float] | None) -> Normalize:
    """The `Normalize` for images of that many channels; without `mean` and `std`, the identity."""
    mean = (0.0,) * channels if mean is None else mean
    std = (1.0,) * channels if std is None else std
    if len(mean) != channels or len(std) != channels:
        raise InputError(f"expected mean and std with {channels} numbers each, but got {len(mean)} and {len(std)}")
    return Normalize(mean, std)
