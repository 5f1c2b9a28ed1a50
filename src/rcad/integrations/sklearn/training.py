"""The loop of an estimator: tensors in memory, one synchronisation per epoch, the core's step or its leaner twin."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from rcad.errors import InputError
from rcad.integrations.sklearn.network import Network
from rcad.loss.augmentations import augment
from rcad.loss.likelihoods import Categorical, Likelihood
from rcad.loss.method import Method
from rcad.stacked.method import StackedMethod
from rcad.stacked.model import Passes
from rcad.stacked.step import StackedStep
from rcad.train.task import derived

LEAST_GAIN = 1e-4
"""An epoch improves if the held-out likelihood rises by more than this."""


class Examples(NamedTuple):
    """Encoded examples on the device.

    Attributes:
        x: (N, D).
        y: integer labels or standardised targets, (N,).
        weight: what each example counts, of mean 1; None for 1 each.
    """

    x: Tensor
    y: Tensor
    weight: Tensor | None = None

    def take(self, rows: Tensor) -> Examples:
        return Examples(self.x[rows], self.y[rows], None if self.weight is None else self.weight[rows])

    def batches(self, size: int) -> list[Examples]:
        """Slices of that many rows, the last perhaps shorter."""
        spans = [slice(start, start + size) for start in range(0, len(self.x), size)]
        return [Examples(*(None if part is None else part[span] for part in self)) for span in spans]  # type: ignore[arg-type]


@dataclass(frozen=True)
class Schedule:
    """How long to train, and in which order.

    Args:
        epochs: how many; the first is number `start`, which continues the streams of an earlier training.
        batch_size: examples in a step.
        seed: of order and noise.
        patience: stop after so many epochs without a gain on the held-out examples.
    """

    epochs: int
    batch_size: int
    seed: int
    start: int = 0
    patience: int | None = None


class Course(NamedTuple):
    """What came of it: the mean training loss and the held-out mean log-likelihood, epoch by epoch."""

    losses: list[float]
    scores: list[float]


class Step(Protocol):
    """Writes the gradient of one batch into the network's `gradient`; gives the loss."""

    def __call__(self, batch: Examples, number: int) -> Tensor: ...


class CoreStep:
    """The step of `rcad.Criterion`: any method."""

    def __init__(self, network: Network, method: Method, classes: int, generator: torch.Generator) -> None:
        self.network, self.method, self.classes, self.generator = network, method, classes, generator
        self.criterion = method.criterion(units="input", checks="first")

    def __call__(self, batch: Examples, number: int) -> Tensor:
        self.network.gradient.zero_()
        x, target = augment(
            self.method.augment, batch.x, batch.y, classes=self.classes or None, generator=self.generator
        )
        losses = self.criterion.backward(
            self.network.module,
            x,
            target,
            raw=batch.x,
            raw_target=batch.y,
            weight=batch.weight,
            step=number,
            generator=self.generator,
        )
        return losses.total


class LeanStep:
    """The step of the stacked trainer for one replica: the same numbers up to rounding, in less time."""

    def __init__(self, network: Network, method: StackedMethod, generator: torch.Generator) -> None:
        self.network, self.method, self.generator = network, method, generator
        self.steps: dict[int, StackedStep] = {}

    def __call__(self, batch: Examples, number: int) -> Tensor:
        size = len(batch.y)
        if size not in self.steps:
            passes = Passes(self.network.stacked, self.network.gradient, size)
            self.steps[size] = StackedStep(self.method, passes, self._noise)
        shares = None if batch.weight is None else batch.weight[None]
        return self.steps[size](batch.x[None], batch.y[None], number, shares)[0]

    def _noise(self, shape: tuple[int, ...]) -> Tensor:
        like = self.network.flat
        return torch.randn(shape[1:], generator=self.generator, device=like.device, dtype=like.dtype)[None]


def step_for(network: Network, method: Method, classes: int, generator: torch.Generator, *, lean: bool = True) -> Step:
    """The leaner step where it can do the method, else the core's."""
    if lean:
        try:
            stacked = StackedMethod.of([method], Categorical(), network.flat)
        except InputError:  # augmentation, two views, jitter: the core does these
            pass
        else:
            return LeanStep(network, stacked, generator)
    return CoreStep(network, method, classes, generator)


def train(
    network: Network,
    method: Method,
    examples: Examples,
    schedule: Schedule,
    *,
    classes: int,
    held_out: Examples | None = None,
    report: Callable[[int, float, float | None], None] | None = None,
    lean: bool = True,
) -> Course:
    """Trains the network in place; with `patience` it ends with the weights of the best epoch.

    Args:
        classes: how many; 0 for real targets.
        held_out: on which the epochs are judged.
        report: called with the epoch (from 1), its loss and its score.
        lean: whether the leaner step may be used; the slow twin is for tests.
    """
    device = network.flat.device
    generator = torch.Generator(device)
    step = step_for(network, method, classes, generator, lean=lean)
    likelihood: Likelihood = method.likelihood or Categorical()
    course, number = Course([], []), schedule.start * math.ceil(len(examples.x) / schedule.batch_size)
    best, best_epoch, kept = -math.inf, 0, network.flat.clone()
    network.module.train()
    for epoch in range(schedule.start, schedule.start + schedule.epochs):
        generator.manual_seed(derived(schedule.seed, "noise", epoch))
        order = torch.Generator().manual_seed(derived(schedule.seed, "batches", epoch))
        shuffled = examples.take(torch.randperm(len(examples.x), generator=order).to(device))
        losses, sizes = [], []
        for batch in shuffled.batches(schedule.batch_size):
            losses.append(step(batch, number).reshape(()))
            network.optimizer.step()
            sizes.append(len(batch.y))
            number += 1
        loss = sum(n * value for n, value in zip(sizes, torch.stack(losses).tolist(), strict=True)) / sum(sizes)
        if not math.isfinite(loss):
            raise InputError(f"expected a finite loss, but it was {loss} in epoch {epoch + 1}; lower learning_rate")
        course.losses.append(loss)
        if held_out is not None:
            course.scores.append(_score(network, likelihood, held_out))
        if report is not None:
            report(epoch + 1, loss, course.scores[-1] if course.scores else None)
        if schedule.patience is not None and course.scores:
            done = len(course.scores)
            if course.scores[-1] > best + LEAST_GAIN:
                best, best_epoch = course.scores[-1], done
                kept.copy_(network.flat)
            elif done - best_epoch >= schedule.patience:
                break
        if method.growth is not None and method.growth.due(epoch + 1):
            examples = _grown(network, method, likelihood, examples, schedule.seed, epoch + 1)
    if schedule.patience is not None and best_epoch:
        network.flat.copy_(kept)
    return course


@torch.no_grad()
def _score(network: Network, likelihood: Likelihood, held_out: Examples) -> float:
    """The mean log-likelihood, without what a method adds to it."""
    plain: Likelihood = likelihood.plain() if hasattr(likelihood, "plain") else likelihood
    values = plain.nll(network.module(held_out.x), held_out.y)
    return -float((values if held_out.weight is None else held_out.weight * values).mean())


def _grown(
    network: Network, method: Method, likelihood: Likelihood, examples: Examples, seed: int, epoch: int
) -> Examples:
    assert method.growth is not None
    if examples.weight is not None:
        raise InputError(
            f"expected no weights with {method.name!r}, which adds examples that have none; leave them out"
        )
    generator = torch.Generator(examples.x.device).manual_seed(derived(seed, "growth", epoch))
    x, y = method.growth.grow(network.module, examples.x, examples.y, likelihood, generator=generator)
    return Examples(torch.cat([examples.x, x]), torch.cat([examples.y, y]))
