"""What the networks are made of: a body and a head, layer zero, norms, two convolutions; and the perceptron."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn.functional import conv2d, pad, relu

from rcad.errors import InputError, check_parameters, shown


class Model(nn.Module):
    """A network cut in two: `forward(x) = head(features(x))`.

    Subclasses keep the last linear layer under the name in `head_name`, so that weights trained with another number of
    outputs can be loaded without it. Layer zero, which tables (channels=None) do not have, leaves pixels as they are
    until `build` gives it the mean and deviation of the images.
    """

    head_name: str = "fc"
    num_features: int
    fc: nn.Linear

    def __init__(self, channels: int | None = None) -> None:
        super().__init__()
        self.normalize = Normalize((0.0,) * channels, (1.0,) * channels) if channels else nn.Identity()

    def features(self, x: Tensor) -> Tensor:
        """Images (B, C, H, W) in [0, 1], or features (B, D) -> (B, F) with F = `num_features`."""
        raise NotImplementedError

    def head(self, features: Tensor) -> Tensor:
        """Map (B, F) features to (B, num_outputs): logits, or mean and log-variance."""
        output: Tensor = self.fc(features)
        return output

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class Normalize(nn.Module):
    """Subtract the mean and divide by the standard deviation of each channel, in the unit of x (pixels in [0, 1]).

    Both are saved with the weights: a checkpoint carries the scale that it was trained with.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_floating_point():
            # Integer pixels would pass through unnoticed at 255 times their size.
            raise InputError(f"expected floating-point pixels in [0, 1], but got {x.dtype}; divide by 255 first")
        return (x - self.mean.view(-1, 1, 1)) / self.std.view(-1, 1, 1)


class MLP(Model):
    """Linear layers with ReLU and dropout, then a linear head.

    Args:
        num_outputs: K logits for a categorical likelihood; 2 for a Gaussian one, (mean, log-variance).
        in_shape: (D,) for features, which should be standardised; (C, H, W) for images, which are flattened.
        hidden: units of each hidden layer; () is a linear model.
        dropout: probability in [0, 1) after each hidden layer.
    """

    def __init__(
        self, *, num_outputs: int, in_shape: Sequence[int], hidden: Sequence[int] = (128,), dropout: float = 0.0
    ) -> None:
        super().__init__(in_shape[0] if len(in_shape) == 3 else None)
        sizes = (math.prod(in_shape), *hidden)
        count = sum((a + 1) * b for a, b in pairwise((*sizes, num_outputs)))
        check_parameters(f"hidden layers of {shown(tuple(hidden))}", count)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.dropout = nn.Dropout(dropout)
        self.num_features = sizes[-1]
        self.fc = nn.Linear(sizes[-1], num_outputs)

    def features(self, x: Tensor) -> Tensor:
        x = self.normalize(x).flatten(1)
        for layer in self.layers:
            x = self.dropout(relu(layer(x)))
        return x


Norm = Literal["batch", "group", "none"]


class Affine(nn.Module):
    """In place of a normalisation, with norm="none": one factor, and one bias a channel.

    Both enter times sqrt(0.1), which is a tenth of the learning rate for them under SGD: Fixup's rule, kept here
    so that no optimizer needs to know it. Weight decay pulls the factor towards one.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = math.sqrt(0.1)
        self.scale = nn.Parameter(torch.zeros(()))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x * (1 + self.gain * self.scale) + self.gain * self.bias.view(-1, 1, 1)


def norm2d(norm: Norm, channels: int) -> nn.Module:
    """The layer after a convolution; "group" takes 32 groups, or fewer, of two channels at least."""
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "group":
        most = max(1, min(32, channels // 2))
        groups = next(g for g in range(most, 0, -1) if channels % g == 0)
        return nn.GroupNorm(groups, channels)
    return Affine(channels)


class Residual(nn.Module):
    """A block of convolutions conv1, conv2, ... beside a shortcut."""

    @property
    def branch(self) -> list[nn.Conv2d]:
        """Its convolutions in order, without that of the shortcut."""
        return [m for name, m in self.named_children() if name.startswith("conv") and isinstance(m, nn.Conv2d)]


def init_convs(model: nn.Module, norm: Norm) -> None:
    """He's start values for every convolution, and Fixup's for residual blocks without normalisation."""
    # With a normalisation the backward signal is what matters; without one the forward signal must keep its size.
    mode: Literal["fan_in", "fan_out"] = "fan_in" if norm == "none" else "fan_out"
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode=mode, nonlinearity="relu")
    if norm == "none":
        _init_fixup([module.branch for module in model.modules() if isinstance(module, Residual)])


@torch.no_grad()
def _init_fixup(branches: Sequence[Sequence[nn.Conv2d]]) -> None:
    """Fixup (Zhang, Dauphin and Ma, 2019) for a residual network without normalisation.

    The last convolution of every branch starts at zero, so that every block starts as its shortcut; the others shrink
    with the number of branches, so that a step changes a deep network's function no more than a shallow one's. Unlike
    in Fixup the head does not start at zero: that would leave no gradient in x to step along. Clip gradients to a norm
    of about 1: without it the wide networks diverge at a learning rate of 0.1.
    """
    for branch in branches:
        for conv in branch[:-1]:
            conv.weight.mul_(len(branches) ** (-1 / (2 * len(branch) - 2)))
        branch[-1].weight.zero_()


CHANNELS = 8  # what bf16 tensor cores take at a time


class FirstConv2d(nn.Conv2d):
    """A convolution over few channels, with zero channels added where that makes it faster.

    Three channels do not fit tensor cores: cuDNN falls back on slower kernels, or pads by itself in every pass. Zeros
    change nothing in the result. Where the channels come in groups, whoever groups them adds the zeros.
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


class StridedPointwise(nn.Conv2d):
    """A 1x1 convolution with a stride; compiled, the pixels that it skips are left out before it runs.

    Then the zeros between are filled in by the kernel that adds the gradients of a block's two branches.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not is_compiling():
            return super().forward(x)
        down, right = self.stride
        return conv2d(x[:, :, ::down, ::right], self.weight, self.bias, groups=self.groups)
