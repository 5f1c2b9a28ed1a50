"""One optimizer step: indices in, updated weights out. Only tensors are touched, so no GPU is ever waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rcad.augmentations import augment
from rcad.composition import Method
from rcad.criterion import Criterion
from rcad.experiments.config import RunConfig
from rcad.growth import as_unit_float
from rcad.train.optimizers import set_learning_rate

AfterPass = Callable[[], None]


class Plan(NamedTuple):
    """The batches that one optimizer step takes.

    Attributes:
        turn: which optimizer step of the epoch this is.
        start: where its first example stands in the epoch's order.
        sizes: examples in each of its batches; more than one where gradients are accumulated.
        number: how many batches the run has seen before, for terms that rest at some.
    """

    turn: int
    start: int
    sizes: tuple[int, ...]
    number: int


@dataclass(eq=False)
class Update:
    """What a step changes, and how.

    Attributes:
        average: the moving average of the weights, if one is kept.
        generator: the source of augmentations and random directions.
        sums: loss, correct predictions and examples of the epoch under way.
        x, y: the training examples.
    """

    config: RunConfig
    method: Method
    criterion: Criterion
    model: nn.Module
    average: nn.Module | None
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    sums: Tensor
    classes: int
    x: Tensor
    y: Tensor

    def __call__(self, group: Sequence[Tensor], number: int) -> None:
        """The step over these batches of indices."""
        self.optimizer.zero_grad(set_to_none=True)
        for offset, index in enumerate(group):
            self.batch(self.model, index, len(group), number + offset)
        if self.config.optim.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.optim.clip)
        self.optimizer.step()
        self.follow()

    def follow(self) -> None:
        """The moving average takes up the new weights."""
        if self.average is not None:
            update_average(self.average, self.model, self.config.train.ema or 0.0)

    def batch(
        self, model: nn.Module, index: Tensor, accumulate: int, number: int, after_pass: AfterPass | None = None
    ) -> None:
        """One batch forward and backward, through the model or a twin of it."""
        y = self.y[index]
        raw = as_unit_float(self.x[index])
        if self.config.train.channels_last:
            raw = raw.contiguous(memory_format=torch.channels_last)
        x, target = augment(self.method.augment, raw, y, classes=self.classes, generator=self.generator)
        with self._precision():
            losses = self.criterion.backward(
                model,
                x,
                target,
                raw=raw,
                raw_target=y,
                accumulate=accumulate,
                generator=self.generator,
                step=number,
                after_pass=after_pass,
            )
        self.sums[0] += losses.total * len(y)
        self.sums[2] += len(y)
        if self.classes and losses.output is not None:
            self.sums[1] += (losses.output.argmax(1) == y).sum()

    def _precision(self) -> AbstractContextManager[object]:
        if self.config.train.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.x.device.type, dtype=torch.bfloat16)


class Stepper:
    """Takes the steps of an epoch one after the other."""

    name = "eager"

    def __init__(self, update: Update) -> None:
        self.update = update
        self.order = torch.empty(0, dtype=torch.int64)
        self.rates: Sequence[float] = ()

    def begin(self, order: Tensor, rates: Sequence[float], first: Plan) -> None:
        """The epoch's order of examples and the learning rate of each optimizer step; `first` is the next one."""
        self.order, self.rates = order.to(self.update.x.device), rates

    def step(self, plan: Plan) -> None:
        """Take one step; returns as soon as it is launched."""
        set_learning_rate(self.update.optimizer, self.rates[plan.turn])
        examples = self.order[plan.start : plan.start + sum(plan.sizes)]
        self.update(torch.split(examples, list(plan.sizes)), plan.number)


@torch.no_grad()
def update_average(average: nn.Module, model: nn.Module, decay: float) -> None:
    """average <- decay * average + (1 - decay) * model; buffers are copied."""
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)
    for kept, now in zip(average.buffers(), model.buffers(), strict=True):
        kept.copy_(now)
