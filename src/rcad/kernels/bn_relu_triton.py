"""Triton kernels of `activated`: BatchNorm in training with what follows it; memory is (rows, channels).

Sums over the rows are taken in shares and then over the shares, always in the same order. The kernels that sum read
from the end, where what they read was written last; those that follow read from the start, which is still in the cache.
Sizes are not compiled into the kernels: layers of any size share them.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _tile(first, last, c, C, BLOCK_M: tl.constexpr):
    """Where a block of rows lies, and which of its places are inside."""
    m = first + tl.arange(0, BLOCK_M)
    return m[:, None] * C + c[None, :], (m[:, None] < last) & (c[None, :] < C)


@triton.jit
def _blocks(share, M, SHARES, BLOCK_M: tl.constexpr):
    """How many blocks of rows a share has: every SHARES-th."""
    return tl.cdiv(tl.cdiv(M, BLOCK_M) - share, SHARES)


@triton.jit
def _rows(share, M, SHARES, BLOCK_M: tl.constexpr):
    """How many rows a share has; one share may have a block that is not full."""
    blocks = tl.cdiv(M, BLOCK_M)
    missing = tl.where(share == (blocks - 1) % SHARES, blocks * BLOCK_M - M, 0)
    return _blocks(share, M, SHARES, BLOCK_M) * BLOCK_M - missing


@triton.jit
def statistics(
    x, means, squares, M, C, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Mean and summed squared distance from it of each channel over one share of the rows."""
    share, shares = tl.program_id(0), tl.num_programs(0)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    # Distances from one of the values, so that squares of a large mean do not swallow the differences.
    near = tl.load(x + share * BLOCK_M * C + c, mask=c < C, other=0.0).to(tl.float32)
    totals = tl.zeros([BLOCK_M, BLOCK_C], tl.float32)
    powers = tl.zeros([BLOCK_M, BLOCK_C], tl.float32)
    count = _blocks(share, M, shares, BLOCK_M)
    for turn in tl.range(0, count, num_stages=STAGES):
        first = (share + (count - 1 - turn) * shares) * BLOCK_M
        at, inside = _tile(first, M, c, C, BLOCK_M)
        apart = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - near[None, :]
        apart = tl.where(inside, apart, 0.0)
        totals += apart
        powers += apart * apart
    total = tl.sum(totals, 0)
    shift = total / _rows(share, M, shares, BLOCK_M)
    tl.store(means + share * C + c, near + shift, mask=c < C)
    tl.store(squares + share * C + c, tl.sum(powers, 0) - total * shift, mask=c < C)


@triton.jit
def _settled(means, squares, c, M, C, SHARES, BLOCK_S: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr):
    """The mean of all rows and the summed squared distance from it, out of those of the shares."""
    before = 0.0
    middle = tl.zeros([BLOCK_C], tl.float32)
    spread = tl.zeros([BLOCK_C], tl.float32)
    for start in range(0, SHARES, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        at, inside = _tile(start, SHARES, c, C, BLOCK_S)
        count = tl.where(s < SHARES, _rows(s, M, SHARES, BLOCK_M), 0).to(tl.float32)
        added = tl.sum(count)
        own = tl.load(means + at, mask=inside, other=0.0)
        mean = tl.sum(own * count[:, None], 0) / added
        apart = tl.where(inside, own - mean[None, :], 0.0)
        square = tl.load(squares + at, mask=inside, other=0.0)
        step = mean - middle
        after = before + added
        middle += step * (added / after)
        spread += tl.sum(square + apart * apart * count[:, None], 0) + step * step * (before * added / after)
        before = after
    return middle, spread


@triton.jit(do_not_specialize=["TRACK"])
def apply(
    x, residual, y, passed, means, squares, mean, rstd, running_mean, running_var, weight, bias, M, C, eps, momentum,
    TRACK, ADD: tl.constexpr, RELU: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """y = relu((x - mean) * rstd * weight + bias + residual); the first program of a column keeps the statistics.

    Where something was added, which values the ReLU let through is kept in one bit for each.
    """
    share, shares = tl.program_id(0), tl.num_programs(0)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    middle, spread = _settled(means, squares, c, M, C, shares, BLOCK_S, BLOCK_M, BLOCK_C)
    scale = 1.0 / tl.sqrt(spread / M + eps)
    if share == 0:
        tl.store(mean + c, middle, mask=c < C)
        tl.store(rstd + c, scale, mask=c < C)
        if TRACK != 0:
            old = tl.load(running_mean + c, mask=c < C)
            tl.store(running_mean + c, (1 - momentum) * old + momentum * middle, mask=c < C)
            old = tl.load(running_var + c, mask=c < C)
            tl.store(running_var + c, (1 - momentum) * old + momentum * spread / (M - 1), mask=c < C)
    factor = tl.load(weight + c, mask=c < C, other=0.0) * scale
    offset = tl.load(bias + c, mask=c < C, other=0.0)
    count = _blocks(share, M, shares, BLOCK_M)
    for turn in tl.range(0, count, num_stages=STAGES):
        first = (share + turn * shares) * BLOCK_M
        at, inside = _tile(first, M, c, C, BLOCK_M)
        apart = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - middle[None, :]
        value = apart * factor[None, :] + offset[None, :]  # the mean apart: times a large factor it would round
        if ADD:
            value += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
        if RELU:
            if ADD:
                m = first + tl.arange(0, BLOCK_M)
                bits = tl.where(value <= 0, 0, 1) << tl.arange(0, BLOCK_C)[None, :]
                tl.store(passed + m * tl.num_programs(1) + tl.program_id(1), tl.sum(bits, 1), mask=m < M)
            value = tl.where(value < 0, 0.0, value)  # what is not a number stays that
        tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _channel(mean, rstd, weight, bias, c, C):
    """Mean, scale, and the factor and offset that were applied."""
    middle = tl.load(mean + c, mask=c < C, other=0.0)
    scale = tl.load(rstd + c, mask=c < C, other=0.0)
    factor = tl.load(weight + c, mask=c < C, other=0.0) * scale
    return middle, scale, factor, tl.load(bias + c, mask=c < C, other=0.0)


@triton.jit
def sums(
    dy, other, passed, x, before, mean, rstd, weight, bias, plain, along, M, C,
    MEET: tl.constexpr, ADD: tl.constexpr, RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Each channel's gradient, summed plainly and times the distance from the mean, over one share of the rows.

    Where two gradients meet, or something was added, the gradient before the ReLU is written: what was added has it,
    and `apply_back` reads it. Elsewhere what the ReLU let through is found again from its input.
    """
    share, shares = tl.program_id(0), tl.num_programs(0)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    middle, _, factor, offset = _channel(mean, rstd, weight, bias, c, C)
    totals = tl.zeros([BLOCK_M, BLOCK_C], tl.float32)
    products = tl.zeros([BLOCK_M, BLOCK_C], tl.float32)
    count = _blocks(share, M, shares, BLOCK_M)
    for turn in tl.range(0, count, num_stages=STAGES):
        first = (share + (count - 1 - turn) * shares) * BLOCK_M
        at, inside = _tile(first, M, c, C, BLOCK_M)
        apart = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - middle[None, :]
        gradient = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        if MEET:
            gradient += tl.load(other + at, mask=inside, other=0.0).to(tl.float32)
        if RELU:
            if ADD:
                m = first + tl.arange(0, BLOCK_M)
                bits = tl.load(passed + m * tl.num_programs(1) + tl.program_id(1), mask=m < M, other=0)
                through = ((bits[:, None] >> tl.arange(0, BLOCK_C)[None, :]) & 1) != 0
                gradient = tl.where(through, gradient, 0.0)
            else:
                gradient = tl.where(apart * factor[None, :] + offset[None, :] <= 0, 0.0, gradient)
        if ADD or MEET:
            tl.store(before + at, gradient.to(before.dtype.element_ty), mask=inside)
        totals += gradient
        products += gradient * apart
    tl.store(plain + share * C + c, tl.sum(totals, 0), mask=c < C)
    tl.store(along + share * C + c, tl.sum(products, 0), mask=c < C)


@triton.jit
def apply_back(
    dy, x, dx, mean, rstd, weight, bias, plain, along, dweight, dbias, M, C,
    RELU: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The gradient of x; the first program of a column writes those of weight and bias."""
    share, shares = tl.program_id(0), tl.num_programs(0)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    total = tl.zeros([BLOCK_C], tl.float32)
    product = tl.zeros([BLOCK_C], tl.float32)
    for start in range(0, shares, BLOCK_S):
        at, inside = _tile(start, shares, c, C, BLOCK_S)
        total += tl.sum(tl.load(plain + at, mask=inside, other=0.0), 0)
        product += tl.sum(tl.load(along + at, mask=inside, other=0.0), 0)
    middle, scale, factor, offset = _channel(mean, rstd, weight, bias, c, C)
    if share == 0:
        tl.store(dbias + c, total, mask=c < C)
        tl.store(dweight + c, product * scale, mask=c < C)
    level = total / M
    slope = product * scale * scale / M
    count = _blocks(share, M, shares, BLOCK_M)
    for turn in tl.range(0, count, num_stages=STAGES):
        first = (share + turn * shares) * BLOCK_M
        at, inside = _tile(first, M, c, C, BLOCK_M)
        apart = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - middle[None, :]
        gradient = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        if RELU:
            gradient = tl.where(apart * factor[None, :] + offset[None, :] <= 0, 0.0, gradient)
        change = factor[None, :] * (gradient - level[None, :] - apart * slope[None, :])
        tl.store(dx + at, change.to(dx.dtype.element_ty), mask=inside)
