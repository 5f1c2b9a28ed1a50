"""Summed passes, clipping, SGD and the bf16 copy of the weights in three kernels for the whole model.

One after the other these are a dozen passes over memory, which move 600 MB for a ResNet-18 and two passes; in one
kernel that finds every tensor by its address, 290. The numbers are those of `torch.optim.SGD` after `clip_grad_norm_`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

BLOCK, WARPS, ALIGNMENT = 8192, 8, 16
PROGRAMS = 66
"""Few programs with many chunks each: half of an H200's processors stay free for the convolutions of other runs."""
FIXED = 4  # columns of a parameter's row before its gradients
TABLE, CHUNKS = -2, -1  # which of the rooms made last

Gradients = list[Tensor | None]  # one gradient a parameter, as a backward left them


@dataclass(frozen=True, eq=False)
class Run:
    """One run's share of the work.

    Its optimizer holds the settings and the momentum, and is kept as if it had stepped itself; but weights that never
    had a gradient have momentum as well, of zeros, which to an optimizer is the same.
    """

    optimizer: torch.optim.Optimizer
    weights: Sequence[nn.Parameter]  # in fp32
    leaves: Sequence[Tensor]  # where the passes find each weight: its bf16 copy, or the weight itself


def suits(run: Run) -> bool:
    """Whether the kernels can do this optimizer's work."""
    if not all(leaf.is_cuda and leaf.dtype in (torch.float32, torch.bfloat16) and _dense(leaf) for leaf in run.leaves):
        return False
    if type(run.optimizer) is not torch.optim.SGD or len(run.optimizer.param_groups) != 1:
        return False
    group = run.optimizer.param_groups[0]
    if not group["momentum"] or group["dampening"] or group["maximize"]:
        return False
    try:
        import rcad.kernels.fused_sgd_triton  # noqa: F401
    except ImportError:
        return False
    return True


class ClippedSGD:
    """The last part of a step that is captured in a CUDA graph.

    Args:
        runs: those that step together, with the same settings; each is clipped by itself.
        limit: the length to which gradients are clipped; none leaves them as they are.
    """

    def __init__(self, runs: Sequence[Run], limit: float | None) -> None:
        self._runs, self._limit = list(runs), limit
        self._weights = [weight for run in runs for weight in run.weights]
        self._leaves = [leaf for run in runs for leaf in run.leaves]
        self._owners = [number for number, run in enumerate(runs) for _ in run.weights]
        self._divisors = torch.ones(len(runs), device=self._weights[0].device)
        for weight, owner in zip(self._weights, self._owners, strict=True):
            _momentum(runs[owner].optimizer, weight)  # now, or it would lie between what the first steps leave behind
        self._room: list[Tensor] = []
        self._unfilled: list[tuple[Tensor, Tensor]] = []

    def step(self, passes: Sequence[Sequence[Gradients]]) -> None:
        """Updates weights, momentum and bf16 copies from the sum of these passes' gradients of every run.

        Before a capture, `make_room` must be called; after it, and before the first replay, `settle`.
        """
        from rcad.kernels import fused_sgd_triton as kernels

        flat = [[grad for grads in runs for grad in grads] for runs in passes]
        chosen = [i for i in range(len(self._weights)) if any(grads[i] is not None for grads in flat)]
        found = [[_like(grads[i], self._leaves[i]) for i in chosen] for grads in flat]
        table, sizes_of = self._table(chosen, found), [self._weights[i].numel() for i in chosen]
        chunks = self._sent(_chunks(sizes_of, [self._owners[i] for i in chosen]), CHUNKS)
        group, count = self._runs[0].optimizer.param_groups[0], len(chunks)
        sizes: dict[str, Any] = {"COUNT": count, "WIDTH": table.shape[1], "PASSES": len(passes), "BLOCK": BLOCK}
        sizes["num_warps"], grid = WARPS, (min(count, PROGRAMS),)
        partial = torch.empty(count, device=table.device)
        if self._limit is not None:
            kernels.squared_length[grid](table, chunks, partial, **sizes)
            runs = (len(self._runs),)
            kernels.divisor_of[runs](partial, chunks, self._divisors, self._limit, COUNT=count, BLOCK=1024)
        settings = group["weight_decay"], group["momentum"]
        kernels.update[grid](table, chunks, group["lr"], self._divisors, *settings, NESTEROV=group["nesterov"], **sizes)

    def make_room(self, passes: int) -> None:
        """Memory for the tables of a capture, outside the graph's own, which its earlier kernels write to as well."""
        weights, device = self._weights, self._divisors.device
        chunks = _chunks([weight.numel() for weight in weights], self._owners)
        for cells in (len(weights) * (FIXED + 2 * passes), chunks.numel()):
            self._room.append(torch.empty(cells, dtype=torch.int64, device=device))

    def settle(self) -> None:
        """Fills the tables of a capture, which could not be filled while it went on."""
        for target, source in self._unfilled:
            target.copy_(source)
        self._unfilled.clear()

    def release(self) -> None:
        """Lets go of the tables, once no graph that reads them is left."""
        self._room.clear()
        self._unfilled.clear()

    def _table(self, chosen: list[int], found: list[Gradients]) -> Tensor:
        rows = []
        for place, i in enumerate(chosen):
            weight, leaf = self._weights[i], self._leaves[i]
            momentum = _momentum(self._runs[self._owners[i]].optimizer, weight)
            row = [weight.numel(), weight.data_ptr(), momentum.data_ptr()]
            row.append(0 if leaf.data_ptr() == weight.data_ptr() else leaf.data_ptr())
            for grads in found:
                grad = grads[place]
                row += [0, 0] if grad is None else [grad.data_ptr(), int(grad.dtype == torch.bfloat16)]
            rows.append(row)
        return self._sent(torch.tensor(rows, dtype=torch.int64), TABLE)

    def _sent(self, source: Tensor, room: int) -> Tensor:
        """A table on the device; under capture in the room made for it."""
        if not (self._divisors.is_cuda and torch.cuda.is_current_stream_capturing()):
            return source.to(self._divisors.device)
        target = self._room[room][: source.numel()].view(source.shape)
        self._unfilled.append((target, source))
        return target


def _momentum(optimizer: torch.optim.Optimizer, weight: nn.Parameter) -> Tensor:
    """The optimizer's own, laid out as the weight is; a checkpoint may have brought it in another order."""
    memory = optimizer.state[weight]
    old = memory.get("momentum_buffer")
    if old is None:
        memory["momentum_buffer"] = torch.zeros_like(weight)
    elif not same_order(old, weight):
        memory["momentum_buffer"] = torch.empty_like(weight).copy_(old)
    buffer: Tensor = memory["momentum_buffer"]
    return buffer


def _chunks(sizes: Sequence[int], owners: Sequence[int]) -> Tensor:
    """Rows (parameter, first element, run): what each program of a kernel works on."""
    parameters = enumerate(zip(sizes, owners, strict=True))
    return torch.tensor([(i, start, run) for i, (size, run) in parameters for start in range(0, size, BLOCK)])


def _like(grad: Tensor | None, leaf: Tensor) -> Tensor | None:
    """The gradient in the memory order of its leaf, which is how autograd leaves it but for rare exceptions."""
    if grad is None or (same_order(grad, leaf) and grad.data_ptr() % ALIGNMENT == 0):
        return grad
    return torch.empty_like(leaf, dtype=grad.dtype).copy_(grad)


def _dense(tensor: Tensor) -> bool:
    """Whether its elements fill a piece of memory without gaps, beginning where wide loads may begin."""
    strides = sorted((stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
    expected = 1
    for stride, size in strides:
        if stride != expected:
            return False
        expected *= size
    return tensor.data_ptr() % ALIGNMENT == 0


def same_order(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape lie in memory in the same order."""
    wide = [i for i, size in enumerate(other.shape) if size > 1]
    return one.shape == other.shape and all(one.stride(i) == other.stride(i) for i in wide)
