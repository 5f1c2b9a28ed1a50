"""A model's bf16 twin, and its gradients gathered in few kernels.

Autocast casts every weight in every pass, and autograd adds every parameter's gradient in a kernel of its own: for a
ResNet-18 and RCAD's two passes, 140 of 730 kernels, each too small to fill a GPU. Here the weights are cast together
once a step and the passes' gradients are added together, or kept for an optimizer that adds them as it reads them. The
numbers are autocast's own: products in bf16, gradients brought to fp32 before they are summed. BatchNorm's count of
batches, which no average here depends on, is kept up once a step instead of by a kernel per layer.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

CAST = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
"""The layers whose parameters autocast would cast."""


class Twin:
    """The same model for passes in lower precision; everything but the cast weights is shared with the original.

    Args:
        model: the model whose weights are trained, in fp32.
        dtype: of the cast weights; torch.float32 casts nothing, and the twin is the model itself.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.model = model if dtype == torch.float32 else copy.deepcopy(model).train()
        leaves: dict[nn.Parameter, nn.Parameter] = {}
        for own, other in zip(model.modules(), self.model.modules(), strict=True):
            for name, parameter in own._parameters.items():
                if parameter is None:
                    continue
                if parameter not in leaves:
                    cast = isinstance(own, CAST) and dtype != torch.float32
                    leaves[parameter] = _cast(parameter, dtype) if cast else parameter
                other._parameters[name] = leaves[parameter]
            other._buffers.update(own._buffers)
        self._layers, self._counts = self._take_counts(model)
        self.weights = [p for p in leaves if p.requires_grad]
        self.leaves = [leaves[p] for p in self.weights]
        self.passes: list[list[Tensor | None]] = []
        self._cast = [(p, leaf) for p, leaf in leaves.items() if leaf is not p]
        self._sums: list[Tensor | None] = []
        self._advances = 0

    def _take_counts(self, model: nn.Module) -> tuple[list[_BatchNorm], list[Tensor]]:
        """The twin's BatchNorm layers, rid of their counters, and the counters, which the original keeps."""
        layers, counts = [], []
        for own, other in zip(model.modules(), self.model.modules(), strict=True):
            if own is not other and isinstance(own, _BatchNorm) and isinstance(other, _BatchNorm):
                count = own.num_batches_tracked
                if own.momentum is not None and count is not None:
                    other._buffers["num_batches_tracked"] = None
                    layers.append(other)
                    counts.append(count)
        return layers, counts

    @torch.no_grad()
    def cast(self) -> None:
        """Brings the cast weights up to date."""
        if self._cast:
            torch._foreach_copy_([leaf for _, leaf in self._cast], [weight for weight, _ in self._cast])

    def forget(self) -> None:
        """Forgets all gradients."""
        for weight, leaf in zip(self.weights, self.leaves, strict=True):
            weight.grad = leaf.grad = None
        self._sums, self._advances, self.passes = [None] * len(self.leaves), 0, []

    def keep(self) -> None:
        """Takes the gradients of the pass that has just run backward, as they are, into `passes`."""
        self._advances += bool(self._layers and self._layers[0].track_running_stats)  # off in the passes that only look
        self.passes.append([leaf.grad for leaf in self.leaves])
        for leaf in self.leaves:
            leaf.grad = None

    @torch.no_grad()
    def gather(self) -> None:
        """Takes the gradients of the pass that has just run backward, so that the next one finds none to add to."""
        self.keep()
        grads = self.passes.pop()
        wide = _widened([grad for grad in grads if grad is not None])
        fresh = [None if grad is None else next(wide) for grad in grads]
        pairs = [(old, new) for old, new in zip(self._sums, fresh, strict=True) if old is not None and new is not None]
        if pairs:
            torch._foreach_add_([old for old, _ in pairs], [new for _, new in pairs])
        self._sums = [new if old is None else old for old, new in zip(self._sums, fresh, strict=True)]

    @torch.no_grad()
    def deliver(self) -> None:
        """Gives the sums to the original's `.grad`, where clipping and the optimizer look for them."""
        for weight, total in zip(self.weights, self._sums, strict=True):
            weight.grad = total

    @torch.no_grad()
    def count(self) -> None:
        """Moves BatchNorm's counters on by the passes that moved its averages."""
        if self._counts and self._advances:
            torch._foreach_add_(self._counts, self._advances)


def _cast(parameter: nn.Parameter, dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(parameter.detach().to(dtype), requires_grad=parameter.requires_grad)


def _widened(grads: list[Tensor]) -> Iterator[Tensor]:
    """Gradients in fp32, those that need it converted together, in the order given."""
    narrow = [grad for grad in grads if grad.dtype != torch.float32]
    wide = [torch.empty_like(grad, dtype=torch.float32) for grad in narrow]
    if narrow:
        torch._foreach_copy_(wide, narrow)
    converted = iter(wide)
    for grad in grads:
        yield grad if grad.dtype == torch.float32 else next(converted)
