"""Several networks of one architecture as one, side by side in the channels of grouped layers.

A small network leaves most of a GPU idle. Joined, every kernel works for all networks; no value of one enters another.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from rcad.errors import InputError
from rcad.models.convnets import ResNet, SmallCNN, WideResNet
from rcad.models.layers import CHANNELS, Affine, FirstConv2d, StridedPointwise, on_tensor_cores

JOINABLE = (ResNet, WideResNet, SmallCNN)
# Channels from which on a GPU was seen to keep groups apart. Narrower ones it seems to take together with zeros between
# them, and zero times what is not a number is not zero: that of one network was seen in others.
NARROWEST = 16
ALIGNED = 8  # short rows of numbers begin at multiples of this many, so that wide loads can read each network's


class Joined(nn.Module):
    """R networks as one: (B * R, C, H, W) -> (B * R, K), the examples of all networks in turn.

    The parameters and buffers of the given networks become views of this one's: training it trains them.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        _check_joinable(networks)
        self.runs = len(networks)
        self.network: Any = copy.deepcopy(networks[0])
        for name in ("mean", "std"):
            own = [network.get_submodule("normalize").get_buffer(name) for network in networks]
            self.register_buffer(name, torch.stack(own)[:, :, None, None])
        self.network.normalize = nn.Identity()
        for name, module in list(self.network.named_modules()):
            if type(module) in JOINS:
                parent, _, last = name.rpartition(".")
                layers = [network.get_submodule(name) for network in networks]
                setattr(self.network.get_submodule(parent), last, JOINS[type(module)](layers))

    def forward(self, x: Tensor) -> Tensor:
        x = (x.reshape(-1, self.runs, *x.shape[1:]) - self.mean) / self.std
        if on_tensor_cores(x):
            x = pad(x, (0, 0, 0, 0, 0, -x.shape[2] % CHANNELS))
        x = x.permute(0, 3, 4, 1, 2).flatten(3).permute(0, 3, 1, 2)  # channels last, those of one network together
        y: Tensor = self.network(x)
        return y.reshape(len(y) * self.runs, -1)


class JoinedLinear(nn.Linear):
    """R linear layers: (B, R * F) -> (B, R * K)."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__(layers[0].in_features, layers[0].out_features, device="meta")
        self.weight = _side_by_side([layer.weight for layer in layers], torch.stack)
        self.bias = _rows([layer.bias for layer in layers])

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(len(x), len(self.weight), -1).transpose(0, 1)
        y = torch.baddbmm(self.bias[:, None, : self.out_features], rows, self.weight.transpose(1, 2))
        return y.transpose(0, 1).flatten(1)


class JoinedAffine(nn.Module):
    """R layers of `Affine`: (B, R * C, H, W) -> the same."""

    def __init__(self, layers: Sequence[Affine]) -> None:
        super().__init__()
        self.gain = layers[0].gain
        self.scale = _rows([layer.scale for layer in layers])
        self.bias = _side_by_side([layer.bias for layer in layers])

    def forward(self, x: Tensor) -> Tensor:
        factor = (1 + self.gain * self.scale[:, :1]).expand(-1, len(self.bias) // len(self.scale))
        return x * factor.reshape(-1, 1, 1) + self.gain * self.bias.view(-1, 1, 1)


def _conv(layers: Sequence[nn.Conv2d]) -> nn.Conv2d:
    first, runs = layers[0], len(layers)
    sizes: dict[str, Any] = {name: getattr(first, name) for name in ("kernel_size", "stride", "padding")}
    inputs, outputs = first.in_channels * runs, first.out_channels * runs
    joined = type(first)(inputs, outputs, **sizes, groups=runs, bias=False, device="meta")
    joined.weight = _side_by_side([layer.weight for layer in layers])
    return joined


def _norm(layers: Sequence[nn.BatchNorm2d] | Sequence[nn.GroupNorm]) -> nn.Module:
    first, runs = layers[0], len(layers)
    joined: nn.BatchNorm2d | nn.GroupNorm
    if isinstance(first, nn.BatchNorm2d):
        joined = nn.BatchNorm2d(first.num_features * runs, first.eps, first.momentum, device="meta")
    else:
        joined = nn.GroupNorm(first.num_groups * runs, first.num_channels * runs, first.eps, device="meta")
    joined.weight = _side_by_side([layer.weight for layer in layers])
    joined.bias = _side_by_side([layer.bias for layer in layers])
    for name, buffer in first.named_buffers():
        own = [layer.get_buffer(name) for layer in layers]
        joined_buffer = torch.cat(own) if buffer.ndim else torch.stack(own)
        joined.register_buffer(name, joined_buffer)
        for i, layer in enumerate(layers):
            layer._buffers[name] = joined_buffer[i] if buffer.ndim == 0 else joined_buffer.chunk(runs)[i]
    return joined


JOINS: dict[type[nn.Module], Callable[[Any], nn.Module]] = {
    nn.Conv2d: _conv,
    FirstConv2d: _conv,
    StridedPointwise: _conv,
    nn.BatchNorm2d: _norm,
    nn.GroupNorm: _norm,
    Affine: JoinedAffine,
    nn.Linear: JoinedLinear,
}


@torch.no_grad()
def _side_by_side(own: Sequence[Tensor], put: Callable[..., Tensor] = torch.cat) -> nn.Parameter:
    """One parameter of which the given ones become views, in their own memory order."""
    joined = put(list(own))
    if own[0].ndim == 4 and own[0].is_contiguous(memory_format=torch.channels_last):
        joined = joined.contiguous(memory_format=torch.channels_last)
    for parameter, view in zip(own, joined.chunk(len(own)), strict=True):
        parameter.data = view.view_as(parameter) if view.ndim == parameter.ndim else view[0]
    return nn.Parameter(joined, requires_grad=own[0].requires_grad)


@torch.no_grad()
def _rows(own: Sequence[Tensor]) -> nn.Parameter:
    """Short parameters as the beginnings of longer rows, (R, padded)."""
    size = own[0].numel()
    joined = own[0].new_zeros(len(own), size + -size % ALIGNED)
    for parameter, row in zip(own, joined, strict=True):
        row[:size] = parameter.flatten()
        parameter.data = row[:size].view(parameter.shape)
    return nn.Parameter(joined, requires_grad=own[0].requires_grad)


def _check_joinable(networks: Sequence[nn.Module]) -> None:
    first = networks[0]
    if type(first) not in JOINABLE:
        names = ", ".join(kind.__name__ for kind in JOINABLE)
        raise InputError(f"expected networks that can be joined ({names}), but got {type(first).__name__}")
    shapes = [[(name, value.shape) for name, value in network.state_dict().items()] for network in networks]
    if any(type(network) is not type(first) for network in networks) or any(s != shapes[0] for s in shapes):
        raise InputError("expected networks of one architecture to join, but they differ")
    convs = [module for module in first.modules() if isinstance(module, nn.Conv2d)]
    # Images come with channels added.
    inputs = [conv.in_channels for conv in convs if not isinstance(conv, FirstConv2d)]
    narrowest = min(*inputs, *(conv.out_channels for conv in convs))
    if narrowest < NARROWEST and next(first.parameters()).is_cuda:
        raise InputError(
            f"expected networks of at least {NARROWEST} channels to join on a GPU, but got {narrowest}; narrower ones "
            "would lose each other if one diverged"
        )
    if any(isinstance(module, nn.Dropout) and module.p for module in first.modules()):
        raise InputError("expected networks without dropout to join, but got some; it draws for all of them at once")
