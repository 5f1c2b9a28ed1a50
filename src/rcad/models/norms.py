"""The three choices of normalisation, and the start values that let a network without any train."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from rcad.errors import InputError

Norm = Literal["batch", "group", "none"]


class Affine(nn.Module):
    """What stands where a normalisation would be when there is none: one factor, one bias a channel.

    Both enter times sqrt(0.1), which is a tenth of the learning rate for them under SGD: Fixup's rule, kept here
    so that no optimizer needs to know it. Weight decay pulls the factor towards one.

    Shape:
        (B, C, H, W) -> the same.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = math.sqrt(0.1)
        self.scale = nn.Parameter(torch.zeros(()))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x * (1 + self.gain * self.scale) + self.gain * self.bias.view(-1, 1, 1)


def norm2d(norm: Norm, channels: int) -> nn.Module:
    """The layer that follows a convolution of `channels` outputs.

    "group" takes 32 groups (Wu and He, 2018), fewer where that would leave less than two channels a group.
    """
    check_norm(norm)
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "group":
        most = max(1, min(32, channels // 2))
        groups = next(g for g in range(most, 0, -1) if channels % g == 0)
        return nn.GroupNorm(groups, channels)
    return Affine(channels)


def check_norm(norm: str) -> None:
    if norm not in get_args(Norm):
        raise InputError(f"expected norm to be one of {', '.join(get_args(Norm))}, but got {norm!r}")


def init_convs(model: nn.Module, norm: Norm) -> None:
    """He's start values for every convolution.

    With a normalisation the backward signal is what matters (fan out, as torchvision does); without one the
    forward signal must keep its size from layer to layer (fan in).
    """
    mode: Literal["fan_in", "fan_out"] = "fan_in" if norm == "none" else "fan_out"
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode=mode, nonlinearity="relu")


@torch.no_grad()
def init_fixup(branches: Sequence[Sequence[nn.Conv2d]]) -> None:
    """Fixup (Zhang, Dauphin and Ma, 2019) for a residual network without normalisation.

    The last convolution of every branch starts at zero, so that every block starts as its shortcut; the
    others shrink with the number of branches L by L^(-1/(2m-2)) for m convolutions a branch, so that one step
    at a learning rate of 0.1 changes a deep network's function no more than a shallow one's. Unlike in Fixup
    the head does not start at zero: that would leave no gradient in x to step along. Clip gradients to a norm
    of about 1: without it the wide networks diverge at 0.1.
    """
    for branch in branches:
        for conv in branch[:-1]:
            conv.weight.mul_(len(branches) ** (-1 / (2 * len(branch) - 2)))
        branch[-1].weight.zero_()
