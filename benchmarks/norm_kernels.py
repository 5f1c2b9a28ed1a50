"""Triton kernels for BatchNorm in training and what follows it, an addition and a ReLU; memory is (rows, channels).

A prototype: see `fused_norm.py`. Sums over rows are taken in two levels, always in the same order.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def statistics(x, means, squares, M, C, ROWS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr):
    """Mean and summed squared distance from it of each channel over one share of the rows."""
    share = tl.program_id(0)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    first = share * ROWS
    count = tl.minimum(M - first, ROWS)
    # Distances from one of the values, so that squares of a large mean do not swallow the differences.
    near = tl.load(x + first * C + c, mask=c < C, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK_C], tl.float32)
    square = tl.zeros([BLOCK_C], tl.float32)
    for start in range(0, ROWS, BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        inside = (m[:, None] < count) & (c[None, :] < C)
        at = (first + m)[:, None] * C + c[None, :]
        apart = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - near[None, :]
        apart = tl.where(inside, apart, 0.0)
        total += tl.sum(apart, 0)
        square += tl.sum(apart * apart, 0)
    shift = total / count
    tl.store(means + share * C + c, near + shift, mask=c < C)
    tl.store(squares + share * C + c, square - total * shift, mask=c < C)


@triton.jit
def settle(
    means, squares, mean, rstd, running_mean, running_var, M, C, eps, momentum,
    ROWS: tl.constexpr, SHARES: tl.constexpr, TRACK: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """The statistics of all rows from those of the shares, and the running averages."""
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    total = tl.zeros([BLOCK_C], tl.float32)
    for start in range(0, SHARES, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        inside = (s[:, None] < SHARES) & (c[None, :] < C)
        count = tl.maximum(tl.minimum(M - s * ROWS, ROWS), 0).to(tl.float32)
        total += tl.sum(tl.load(means + s[:, None] * C + c[None, :], mask=inside, other=0.0) * count[:, None], 0)
    middle = total / M
    spread = tl.zeros([BLOCK_C], tl.float32)
    for start in range(0, SHARES, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        inside = (s[:, None] < SHARES) & (c[None, :] < C)
        count = tl.maximum(tl.minimum(M - s * ROWS, ROWS), 0).to(tl.float32)
        at = s[:, None] * C + c[None, :]
        apart = tl.load(means + at, mask=inside, other=0.0) - middle[None, :]
        part = tl.load(squares + at, mask=inside, other=0.0) + apart * apart * count[:, None]
        spread += tl.sum(tl.where(inside, part, 0.0), 0)
    tl.store(mean + c, middle, mask=c < C)
    tl.store(rstd + c, 1.0 / tl.sqrt(spread / M + eps), mask=c < C)
    if TRACK:
        old = tl.load(running_mean + c, mask=c < C)
        tl.store(running_mean + c, old + momentum * (middle - old), mask=c < C)
        old = tl.load(running_var + c, mask=c < C)
        tl.store(running_var + c, old + momentum * (spread / (M - 1) - old), mask=c < C)


@triton.jit
def apply(
    x, residual, y, mean, rstd, weight, bias, M, C,
    ADD: tl.constexpr, RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """y = relu((x - mean) * rstd * weight + bias + residual)."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (m[:, None] < M) & (c[None, :] < C)
    at = m[:, None] * C + c[None, :]
    factor = tl.load(weight + c, mask=c < C, other=0.0) * tl.load(rstd + c, mask=c < C, other=0.0)
    offset = tl.load(bias + c, mask=c < C, other=0.0) - tl.load(mean + c, mask=c < C, other=0.0) * factor
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * factor[None, :] + offset[None, :]
    if ADD:
        value += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _arriving(dy, y, at, inside, RELU: tl.constexpr):
    """The gradient before the ReLU."""
    gradient = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        gradient = tl.where(tl.load(y + at, mask=inside, other=0.0).to(tl.float32) > 0, gradient, 0.0)
    return gradient


@triton.jit
def sums(
    dy, y, x, mean, rstd, plain, along, M, C,
    ROWS: tl.constexpr, RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Each channel's gradient, summed plainly and times the normalised value, over one share of the rows."""
    share = tl.program_id(0)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    middle = tl.load(mean + c, mask=c < C, other=0.0)
    scale = tl.load(rstd + c, mask=c < C, other=0.0)
    total = tl.zeros([BLOCK_C], tl.float32)
    product = tl.zeros([BLOCK_C], tl.float32)
    for start in range(0, ROWS, BLOCK_M):
        m = share * ROWS + start + tl.arange(0, BLOCK_M)
        inside = (m[:, None] < tl.minimum(M, (share + 1) * ROWS)) & (c[None, :] < C)
        at = m[:, None] * C + c[None, :]
        gradient = _arriving(dy, y, at, inside, RELU)
        normal = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - middle[None, :]) * scale[None, :]
        total += tl.sum(gradient, 0)
        product += tl.sum(gradient * normal, 0)
    tl.store(plain + share * C + c, total, mask=c < C)
    tl.store(along + share * C + c, product, mask=c < C)


@triton.jit
def add_up(plain, along, dbias, dweight, C, SHARES: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_C: tl.constexpr):
    """The gradients of bias and weight."""
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    total = tl.zeros([BLOCK_C], tl.float32)
    product = tl.zeros([BLOCK_C], tl.float32)
    for start in range(0, SHARES, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        inside = (s[:, None] < SHARES) & (c[None, :] < C)
        total += tl.sum(tl.load(plain + s[:, None] * C + c[None, :], mask=inside, other=0.0), 0)
        product += tl.sum(tl.load(along + s[:, None] * C + c[None, :], mask=inside, other=0.0), 0)
    tl.store(dbias + c, total, mask=c < C)
    tl.store(dweight + c, product, mask=c < C)


@triton.jit
def apply_back(
    dy, y, x, dx, dresidual, mean, rstd, weight, dbias, dweight, M, C,
    ADD: tl.constexpr, RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """The gradients of x and of what was added."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (m[:, None] < M) & (c[None, :] < C)
    at = m[:, None] * C + c[None, :]
    scale = tl.load(rstd + c, mask=c < C, other=0.0)
    factor = tl.load(weight + c, mask=c < C, other=0.0) * scale
    middle = tl.load(mean + c, mask=c < C, other=0.0)
    level = tl.load(dbias + c, mask=c < C, other=0.0) / M
    slope = tl.load(dweight + c, mask=c < C, other=0.0) / M
    gradient = _arriving(dy, y, at, inside, RELU)
    if ADD:
        tl.store(dresidual + at, gradient.to(dresidual.dtype.element_ty), mask=inside)
    normal = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - middle[None, :]) * scale[None, :]
    value = factor[None, :] * (gradient - level[None, :] - normal * slope[None, :])
    tl.store(dx + at, value.to(dx.dtype.element_ty), mask=inside)
