"""SGD, Adam and AdamW over the parameters of many replicas, each with its own rate, decay and clipping.

The updates are torch.optim's, term by term. A number per replica is spread once to one per parameter, so that an
update is a few passes over one flat tensor whatever the number of replicas and layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from rcad.errors import InputError
from rcad.runs.config import OptimConfig
from rcad.stacked.model import Layout
from rcad.train.schedule import learning_rate

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""torch.optim's defaults for Adam."""


def common(configs: Sequence[OptimConfig]) -> OptimConfig:
    """What the replicas share, with lr = 1: everything but lr, weight_decay and clip must be equal."""
    shared = [replace(config, lr=1.0, weight_decay=0.0, clip=None) for config in configs]
    for config in shared:
        if config != shared[0]:
            raise InputError(
                f"expected optimizers that differ in lr, weight_decay and clip only, but got {shared[0]} and {config}"
            )
    return shared[0]


class StackedOptimizer:
    """One optimizer for all replicas.

    Args:
        configs: one per replica.
        layout: of the flat tensors.
        like: a flat tensor, for dtype and device.
        epochs: of the whole training, for the schedule.
        decoupled: weight decay of Adam acts on the weights (AdamW); False adds it to the gradient (Adam).
    """

    def __init__(
        self, configs: Sequence[OptimConfig], layout: Layout, like: Tensor, epochs: int, *, decoupled: bool = True
    ) -> None:
        self.configs, self.layout, self.epochs, self.decoupled = tuple(configs), layout, epochs, decoupled
        self.shared = common(configs)
        rate, decay, clip = (
            torch.tensor(values, dtype=like.dtype, device=like.device)
            for values in (
                [c.lr for c in configs],
                [c.weight_decay for c in configs],
                [float("inf") if c.clip is None else c.clip for c in configs],
            )
        )
        # One rate for all is a factor; different ones are a tensor as long as the parameters.
        self._rate: Tensor | float = layout.spread(rate) if len({c.lr for c in configs}) > 1 else configs[0].lr
        self._decay = layout.spread(decay) if bool(decay.any()) else None
        self._clip = clip if bool(clip.isfinite().any()) else None
        self.steps = 0
        self.first = torch.zeros_like(like) if self._adam or self.shared.momentum else None
        self.second = torch.zeros_like(like) if self._adam else None
        self._work = torch.empty_like(like)

    @property
    def _adam(self) -> bool:
        return self.shared.name == "adamw"

    def step(self, flat: Tensor, gradient: Tensor, progress: float) -> None:
        """Moves the parameters; `gradient` is used up. `progress`: epochs done, a fraction inside an epoch."""
        self.steps += 1
        if self._clip is not None:
            self._shrink(gradient, self._clip)
        factor = learning_rate(self.shared, self.epochs, progress)
        if self._adam:
            self._adam_step(flat, gradient, factor)
        else:
            self._sgd_step(flat, gradient, factor)

    def take(self, index: Tensor) -> StackedOptimizer:
        """The optimizer of some of the replicas, with their memory."""
        configs = [self.configs[i] for i in index.tolist()]
        like = self.layout.take(self._work, index)
        twin = StackedOptimizer(
            configs, Layout(len(index), self.layout.sizes), like, self.epochs, decoupled=self.decoupled
        )
        twin.steps = self.steps
        twin.first = None if self.first is None else self.layout.take(self.first, index)
        twin.second = None if self.second is None else self.layout.take(self.second, index)
        return twin

    def _shrink(self, gradient: Tensor, clip: Tensor) -> None:
        """As clip_grad_norm_, for each replica by itself."""
        views = self.layout.views(gradient)
        squares = torch.stack([view.flatten(1).square().sum(1) for view in views]).sum(0)
        factor = (clip / (squares.sqrt() + 1e-6)).clamp(max=1.0)
        for view in views:
            view.mul_(factor.view(-1, *[1] * (view.ndim - 1)))

    def _sgd_step(self, flat: Tensor, gradient: Tensor, factor: float) -> None:
        if self._decay is not None:
            gradient.addcmul_(self._decay, flat)
        if self.first is not None:
            self.first.mul_(self.shared.momentum).add_(gradient)
            if self.shared.nesterov:
                gradient.add_(self.first, alpha=self.shared.momentum)
            else:
                gradient = self.first
        self._descend(flat, gradient, factor)

    def _adam_step(self, flat: Tensor, gradient: Tensor, factor: float) -> None:
        assert self.first is not None
        assert self.second is not None
        if self._decay is not None and self.decoupled:
            torch.mul(self._decay, self._rate, out=self._work).mul_(-factor).add_(1.0)
            flat.mul_(self._work)
        elif self._decay is not None:
            gradient.addcmul_(self._decay, flat)
        first, second = (1 - beta**self.steps for beta in BETAS)
        self.first.lerp_(gradient, 1 - BETAS[0])
        self.second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        torch.sqrt(self.second, out=self._work).mul_(second**-0.5).add_(EPSILON)
        torch.div(self.first, self._work, out=gradient)
        self._descend(flat, gradient, factor / first)

    def _descend(self, flat: Tensor, step: Tensor, factor: float) -> None:
        if isinstance(self._rate, Tensor):
            flat.addcmul_(self._rate, step, value=-factor)
        else:
            flat.add_(step, alpha=-factor * self._rate)
