"""A trial: wide grouped 3x3 convolutions as batched matrix products, which run on newer kernels.

A joined layer of few pixels and many channels is cut out into windows once, and is then one product for every network;
its backward two more. `joined_as_products` builds joined networks that do so; `floor.py --trial products` times them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rcad.models import joined


class GroupedProducts(torch.autograd.Function):
    """conv2d(x, weight, padding=1, groups=groups) for 3x3 weights, all in channels-last order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, groups: int) -> Tensor:
        rows, w = _windows(x, groups), _rows_of(weight, groups)
        ctx.save_for_backward(rows, w)
        ctx.shape, ctx.groups = weight.shape, groups
        return _product(rows, w.transpose(1, 2), x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        rows, w = ctx.saved_tensors
        (wide, inputs, _, _), groups = ctx.shape, ctx.groups
        outputs = wide // groups
        down = dy.permute(0, 2, 3, 1).reshape(-1, groups, outputs).permute(1, 2, 0)
        dw = torch.bmm(down, rows).view(wide, 3, 3, inputs).permute(0, 3, 1, 2)
        dx = None
        if ctx.needs_input_grad[0]:
            turned = w.view(groups, outputs, 3, 3, inputs).flip(2, 3).permute(0, 2, 3, 1, 4)
            dx = _product(_windows(dy, groups), turned.reshape(groups, 9 * outputs, inputs), dy.shape)
        return dx, dw, None


def _rows_of(weight: Tensor, groups: int) -> Tensor:
    """(groups, outputs, 9 * inputs)."""
    return weight.permute(0, 2, 3, 1).reshape(groups, len(weight) // groups, -1)


def _windows(x: Tensor, groups: int) -> Tensor:
    """The 3x3 surroundings of every pixel, (groups, pixels, 9 * channels)."""
    batch, channels, high, wide = x.shape
    room = x.new_zeros(batch, high + 2, wide + 2, channels)
    room[:, 1:-1, 1:-1] = x.permute(0, 2, 3, 1)
    each = channels // groups
    b, h, w, c = room.stride()
    seen = room.as_strided((groups, batch, high, wide, 3, 3, each), (each, b, h, w, h, w, c))
    return seen.reshape(groups, batch * high * wide, 9 * each)


def _product(rows: Tensor, w: Tensor, like: torch.Size) -> Tensor:
    """rows @ w for each group, written where channels-last order wants it: (B, groups * outputs, H, W)."""
    groups, pixels, _ = rows.shape
    batch, _, high, wide = like
    y = rows.new_empty(batch, high, wide, groups * w.shape[2])
    torch.bmm(rows, w, out=y.view(pixels, groups, -1).transpose(0, 1))
    return y.permute(0, 3, 1, 2)


class ProductConv2d(nn.Conv2d):
    """A grouped convolution that is taken as products."""

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != self.weight.dtype:
            return super().forward(x)
        y: Tensor = GroupedProducts.apply(x, self.weight, self.groups)  # type: ignore[no-untyped-call]
        return y


@contextmanager
def joined_as_products(narrowest: int) -> Iterator[None]:
    """Inside, networks are joined with products for 3x3 layers of at least so many channels and stride 1."""
    usual = joined.JOINS[nn.Conv2d]

    def conv(layers: Any) -> nn.Module:
        made = usual(layers)
        assert isinstance(made, nn.Conv2d)
        first = layers[0]
        if first.kernel_size == (3, 3) and first.stride == (1, 1) and first.in_channels >= narrowest:
            made.__class__ = ProductConv2d
        return made

    joined.JOINS[nn.Conv2d] = conv
    try:
        yield
    finally:
        joined.JOINS[nn.Conv2d] = usual
