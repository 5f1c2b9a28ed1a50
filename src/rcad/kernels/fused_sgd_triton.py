"""Triton kernels of `clipped_sgd`: they find the tensors of a whole model by their addresses in a table."""

from __future__ import annotations

import triton
import triton.language as tl

SIZE = tl.constexpr(0)
WEIGHT = tl.constexpr(1)
MOMENTUM = tl.constexpr(2)
CAST = tl.constexpr(3)
GRADS = tl.constexpr(4)
"""Columns of a parameter's row; from GRADS on, two for each pass: where its gradient is, and whether it is bf16."""
PARAMETER = tl.constexpr(0)
START = tl.constexpr(1)
RUN = tl.constexpr(2)
COLUMNS = tl.constexpr(3)  # of the row of a chunk, which has these


@triton.jit
def _places(address, at, dtype: tl.constexpr):
    """Pointers from an address on; every chunk begins at a multiple of 16 bytes, which lets loads be wide."""
    return tl.multiple_of(address.to(tl.pointer_type(dtype)) + at, 16)


@triton.jit
def _gradient(row, at, inside, PASSES: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of the passes' gradients in fp32; an address of 0 stands for none."""
    total = tl.zeros([BLOCK], tl.float32)
    for i in tl.static_range(PASSES):
        address = tl.load(row + GRADS + 2 * i)
        here = inside & (address != 0)
        if tl.load(row + GRADS + 2 * i + 1) != 0:
            total += tl.load(_places(address, at, tl.bfloat16), mask=here, other=0.0).to(tl.float32)
        else:
            total += tl.load(_places(address, at, tl.float32), mask=here, other=0.0)
    return total


@triton.jit
def squared_length(
    table, chunks, partial, COUNT: tl.constexpr, WIDTH: tl.constexpr, PASSES: tl.constexpr, BLOCK: tl.constexpr
):
    """Each chunk's share of the gradient's squared length."""
    for chunk in range(tl.program_id(0), COUNT, tl.num_programs(0)):
        row = table + tl.load(chunks + COLUMNS * chunk + PARAMETER) * WIDTH
        start = tl.load(chunks + COLUMNS * chunk + START)
        at = start + tl.arange(0, BLOCK)
        size = tl.load(row + SIZE)
        if start + BLOCK <= size:
            total = _gradient(row, at, tl.full([BLOCK], True, tl.int1), PASSES, BLOCK)
        else:
            total = _gradient(row, at, at < size, PASSES, BLOCK)
        tl.store(partial + chunk, tl.sum(total * total))


@triton.jit
def divisor_of(partial, chunks, divisors, limit, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """What a run's gradients are divided by so that their length is at most the limit; a program for each run."""
    run = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, COUNT, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < COUNT
        mine = inside & (tl.load(chunks + COLUMNS * at + RUN, mask=inside, other=-1) == run)
        total += tl.load(partial + at, mask=mine, other=0.0)
    length = tl.sqrt(tl.sum(total))
    tl.store(divisors + run, tl.maximum((length + 1e-6) / limit, 1.0))


@triton.jit
def _update(
    row, at, inside, rate, scale, decay, momentum, NESTEROV: tl.constexpr, PASSES: tl.constexpr, BLOCK: tl.constexpr
):
    weights = _places(tl.load(row + WEIGHT), at, tl.float32)
    buffers = _places(tl.load(row + MOMENTUM), at, tl.float32)
    weight = tl.load(weights, mask=inside)
    gradient = _gradient(row, at, inside, PASSES, BLOCK) / scale + decay * weight
    buffer = momentum * tl.load(buffers, mask=inside) + gradient
    tl.store(buffers, buffer, mask=inside)
    step = gradient + momentum * buffer if NESTEROV else buffer
    weight -= rate * step
    tl.store(weights, weight, mask=inside)
    cast = tl.load(row + CAST)
    if cast != 0:
        tl.store(_places(cast, at, tl.bfloat16), weight.to(tl.bfloat16), mask=inside)


@triton.jit
def update(
    table, chunks, rate, divisors, decay, momentum, NESTEROV: tl.constexpr,
    COUNT: tl.constexpr, WIDTH: tl.constexpr, PASSES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """SGD on all chunks: weight, momentum and the weight's bf16 copy."""
    lr = tl.load(rate)
    for chunk in range(tl.program_id(0), COUNT, tl.num_programs(0)):
        scale = tl.load(divisors + tl.load(chunks + COLUMNS * chunk + RUN))
        row = table + tl.load(chunks + COLUMNS * chunk + PARAMETER) * WIDTH
        start = tl.load(chunks + COLUMNS * chunk + START)
        at = start + tl.arange(0, BLOCK)
        size = tl.load(row + SIZE)
        if start + BLOCK <= size:
            everything = tl.full([BLOCK], True, tl.int1)
            _update(row, at, everything, lr, scale, decay, momentum, NESTEROV, PASSES, BLOCK)
        else:
            _update(row, at, at < size, lr, scale, decay, momentum, NESTEROV, PASSES, BLOCK)
