"""What follows a convolution: a normalisation, perhaps an addition, perhaps a ReLU.

torch's layers take a pass over memory for each. In captured steps BatchNorm with what follows it runs in two kernels of
our own, and its backward in two; the numbers are rounded once at the end instead of after each part. Eager steps, where
launches are what costs, keep torch's layers; compiled ones are given kernels by the compiler.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import relu

# Rows, channels (a word has a bit for each) and shares of rows that a program takes at a time; its warps; its stages.
BLOCK_M, BLOCK_C, BLOCK_S, WARPS, STAGES = 64, 32, 32, 4, 3
# How many elements a program should have at least; the fewest and most programs that are worth it nevertheless.
ELEMENTS, PROGRAMS = 8192, (132, 528)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)  # what is computed in float32 without loss

_wanted: ContextVar[bool] = ContextVar("own_norm_kernels", default=False)


@contextmanager
def own_kernels() -> Iterator[None]:
    """Inside, forward passes in training use our kernels wherever these suit."""
    token = _wanted.set(True)
    try:
        yield
    finally:
        _wanted.reset(token)


def activated(norm: nn.Module, x: Tensor, residual: Tensor | None = None) -> Tensor:
    """relu(norm(x) + residual)."""
    if _suits(norm, x, residual):
        return _applied(norm, x, residual, active=True)
    return relu(norm(x) if residual is None else norm(x) + residual)


def normalised(norm: nn.Module, x: Tensor, *, torchs: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """norm(x); `torchs` is the layer's own pass, where the layer itself asks."""
    return _applied(norm, x, None, active=False) if _suits(norm, x, None) else (torchs or norm)(x)


def use_in(model: nn.Module) -> None:
    """Lets the BatchNorm layers of a model that was written elsewhere use our kernels, inside `own_kernels`."""
    for layer in model.modules():
        if type(layer) is nn.BatchNorm2d:
            layer.forward = partial(normalised, layer, torchs=partial(nn.BatchNorm2d.forward, layer))  # type: ignore[method-assign]


def forked(x: Tensor) -> tuple[Tensor, Tensor]:
    """x for two ways onward; if our kernels made it, their backward adds the two gradients as it reads them."""
    if torch.compiler.is_compiling() or not _wanted.get():
        return x, x
    maker: Any = x.grad_fn
    if getattr(maker, "_forward_cls", None) is not BatchNormFunction or maker.forked or x._backward_hooks:
        return x, x
    ways: tuple[Tensor, Tensor] = Fork.apply(x)  # type: ignore[no-untyped-call]
    return ways


def _suits(norm: nn.Module, x: Tensor, residual: Tensor | None) -> bool:
    if torch.compiler.is_compiling() or not _wanted.get():
        return False
    if type(norm) is not nn.BatchNorm2d or not norm.training or norm.momentum is None:
        return False
    if norm._forward_pre_hooks or norm._forward_hooks or norm._backward_pre_hooks or norm._backward_hooks:
        return False  # somebody wants to be told of the layer's passes, which are not taken here
    if not _in_rows(x) or x.dtype not in DTYPES:
        return False
    if x.numel() <= x.shape[1]:  # one value a channel, or none: torch has words for the one, an answer for the other
        return False
    if residual is not None and not (_in_rows(residual) and _facts(residual) == _facts(x)):
        return False
    wanted = x.shape[1:2], torch.float32, x.device
    own = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    if any(value is None or _facts(value) != wanted or not value.is_contiguous() for value in own):
        return False
    try:
        import rcad.kernels.bn_relu_triton  # noqa: F401
    except ImportError:
        return False
    return True


def _in_rows(x: Tensor) -> bool:
    return x.is_cuda and x.is_contiguous(memory_format=torch.channels_last) and x.numel() < 2**31


def _facts(x: Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return x.shape, x.dtype, x.device


def _applied(norm: Any, x: Tensor, residual: Tensor | None, *, active: bool) -> Tensor:
    if norm.track_running_stats and norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
    y: Tensor = BatchNormFunction.apply(x, norm.weight, norm.bias, residual, active, norm)  # type: ignore[no-untyped-call]
    return y


class BatchNormFunction(torch.autograd.Function):
    """relu(BatchNorm(x) + residual) with the batch's statistics, in channels-last order."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, active: bool, norm: nn.BatchNorm2d
    ) -> Tensor:
        from rcad.kernels import bn_relu_triton as kernels

        grid, y = _Grid.of(x), torch.empty_like(x)
        means, squares = torch.empty(2, grid.shares, grid.channels, dtype=torch.float32, device=x.device)
        mean, rstd = torch.empty(2, grid.channels, dtype=torch.float32, device=x.device)
        kernels.statistics[grid.programs](x, means, squares, grid.rows, grid.channels, **grid.blocks)
        kinds = {"ADD": residual is not None, "RELU": active}
        passed = None
        if all(kinds.values()):
            passed = torch.empty(grid.rows, grid.columns, dtype=torch.int32, device=x.device)
        kernels.apply[grid.programs](
            x, residual, y, passed, means, squares, mean, rstd, norm.running_mean, norm.running_var, weight, bias,
            grid.rows, grid.channels, norm.eps, norm.momentum, int(norm.track_running_stats),
            BLOCK_S=BLOCK_S, **kinds, **grid.blocks,
        )  # fmt: skip
        ctx.save_for_backward(x, passed, mean, rstd, weight, bias)
        ctx.grid, ctx.kinds = grid, kinds
        ctx.forked, ctx.second = False, None
        ctx.set_materialize_grads(False)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None) -> tuple[Tensor | None, ...]:
        from rcad.kernels import bn_relu_triton as kernels

        if dy is None:
            return (None,) * 6
        x, passed, mean, rstd, weight, bias = ctx.saved_tensors
        grid, adds, active = ctx.grid, ctx.kinds["ADD"], ctx.kinds["RELU"]
        x = _ordered(x)  # where saved tensors were packed, they may come back in another order
        first, second = _ordered(dy), None if ctx.second is None else _ordered(ctx.second)
        ctx.second = None
        plain, along = torch.empty(2, grid.shares, grid.channels, dtype=torch.float32, device=x.device)
        writes = adds or second is not None
        before = torch.empty_like(x) if writes else first
        kernels.sums[grid.programs](
            first, second, passed, x, before, mean, rstd, weight, bias, plain, along, grid.rows, grid.channels,
            MEET=second is not None, **ctx.kinds, **grid.blocks,
        )  # fmt: skip
        dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(bias)
        kernels.apply_back[grid.programs](
            before, x, dx, mean, rstd, weight, bias, plain, along, dweight, dbias, grid.rows, grid.channels,
            RELU=active and not writes, BLOCK_S=BLOCK_S, **grid.blocks,
        )  # fmt: skip
        return dx, dweight, dbias, before if adds else None, None, None


class Fork(torch.autograd.Function):
    """What `BatchNormFunction` made, twice and in the same memory.

    Of the two gradients one is left with the maker's backward, which runs next, unless somebody still holds x.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.maker, ctx.held = x.grad_fn, weakref.ref(x)
        ctx.maker.forked = True
        ctx.set_materialize_grads(False)
        return x.detach(), x.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, first: Tensor | None, second: Tensor | None) -> Tensor | None:
        ctx.maker.second = None  # what a backward that was broken off may have left
        if first is None or second is None:
            return second if first is None else first
        if ctx.held() is not None:
            return first + second
        ctx.maker.second = second
        return first


def _ordered(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


class _Grid(NamedTuple):
    """How the work on (rows, channels) is divided: a program has some columns and every `shares`-th block of rows."""

    rows: int
    channels: int
    shares: int
    columns: int

    @classmethod
    def of(cls, x: Tensor) -> _Grid:
        rows, channels = x.numel() // x.shape[1], x.shape[1]
        columns, (fewest, most) = -(-channels // BLOCK_C), PROGRAMS
        programs = max(1, min(max(fewest, x.numel() // ELEMENTS), most) // columns)
        return cls(rows, channels, min(-(-rows // BLOCK_M), programs), columns)

    @property
    def programs(self) -> tuple[int, int]:
        return self.shares, self.columns

    @property
    def blocks(self) -> dict[str, int]:
        return {"BLOCK_M": BLOCK_M, "BLOCK_C": BLOCK_C, "STAGES": STAGES, "num_warps": WARPS}
