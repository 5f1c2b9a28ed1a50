"""How an estimator trains: the stacked trainer with one network, which may stop early and goes on where it was."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy.typing as npt
import torch
from torch import Tensor

from rcad.errors import InputError
from rcad.integrations.sklearn.network import Network
from rcad.loss.augmentations import augment
from rcad.loss.likelihoods import Categorical
from rcad.loss.methods import Method
from rcad.loss.terms import Losses
from rcad.models.mlp import MLP
from rcad.stacked.method import StackedLikelihood, StackedMethod
from rcad.stacked.model import StackedMLP
from rcad.stacked.step import Step
from rcad.stacked.task import Examples as Stack
from rcad.stacked.task import StackedProblem, StackedResult
from rcad.stacked.train import Group
from rcad.train.own_loop import DEVICES, capture
from rcad.train.task import derived

LEAST_GAIN = 1e-4
"""An epoch improves if the held-out likelihood rises by more than this."""


class Examples(NamedTuple):
    """Encoded examples on the device: x (N, D), integer labels or standardised targets y, and what each counts.

    The weights are of mean 1; None for 1 each.
    """

    x: Tensor
    y: Tensor
    weight: Tensor | None = None

    def take(self, rows: npt.NDArray[Any]) -> Examples:
        index = torch.as_tensor(rows, device=self.x.device)
        return Examples(*(None if part is None else part[index] for part in self))  # type: ignore[arg-type]


class CoreStep:
    """The step of `rcad.Criterion`, for methods that cannot be stacked: augmentation, two views, jitter."""

    def __init__(
        self, model: StackedMLP, gradient: Tensor, method: Method, classes: int, generator: torch.Generator
    ) -> None:
        self.gradient, self.method, self.classes, self.generator = gradient, method, classes, generator
        self.module = shared_module(model, gradient)
        self.criterion = method.criterion(units="input", checks="first")

    def __call__(
        self, x: Tensor, target: Tensor, number: int, shares: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        self.gradient.zero_()
        raw, labels = x[0], target[0]
        mixed, soft = augment(self.method.augment, raw, labels, classes=self.classes or None, generator=self.generator)
        weight = None if shares is None else shares[0]
        losses = self._losses(mixed, soft, raw=raw, raw_target=labels, weight=weight, step=number)
        return losses.total[None], None

    def _losses(self, x: Tensor, target: Tensor, **options: Any) -> Losses:
        return self.criterion.backward(self.module, x, target, generator=self.generator, **options)


class CapturedCore(CoreStep):
    """The core's step with its optimizer, both by `rcad.capture`; the optimizer's memory stays the network's."""

    def __init__(self, network: Network, gradient: Tensor, *rest: Any) -> None:
        super().__init__(network.model, gradient, *rest)
        self.memory: Any = network.optimizer
        optimizer = torch.optim.AdamW(self.module.parameters(), network.rate, weight_decay=network.decay)
        moments = (network.model.layout.views(moment) for moment in (self.memory.first, self.memory.second))
        for parameter, first, second in zip(self.module.parameters(), *moments, strict=True):
            own = {"step": torch.tensor(float(self.memory.steps)), "exp_avg": first[0], "exp_avg_sq": second[0]}
            optimizer.state[parameter] = own
        self.take = capture(self.module, optimizer, self.criterion, generator=self.generator)

    def _losses(self, x: Tensor, target: Tensor, **options: Any) -> Losses:
        return self.take(x, target, **options)

    def step(self, flat: Tensor, gradient: Tensor, progress: float) -> None:
        """Stands for the optimizer's step, which `rcad.capture` has taken already."""
        self.memory.steps += 1


def shared_module(model: StackedMLP, gradient: Tensor) -> MLP:
    """The one replica as a module with the same memory, whose gradients arrive in `gradient`."""
    module = model.module(0)
    views = zip(model.layout.views(model.flat), model.layout.views(gradient), module.parameters(), strict=True)
    for value, own, parameter in views:
        parameter.data, parameter.grad = value[0], own[0]
    return module


class OneNetwork(Group):
    """The stacked trainer's group of one replica.

    Args:
        network: trained in place.
        seed: of order and noise.
        classes: how many; 0 for regression targets.
        captured: whether steps are taken by `rcad.capture` where they can be captured.
    """

    def __init__(
        self, network: Network, method: Method, examples: Examples, *, seed: int, classes: int, captured: bool
    ) -> None:
        model = network.model
        try:
            lean, stacked = True, StackedMethod.of([method], Categorical(), model.flat)
        except InputError:  # it cannot be stacked: the core's step, its slow twin, is taken
            lean, stacked = False, StackedMethod(StackedLikelihood(Categorical()), ())
        index = torch.zeros(1, dtype=torch.int64, device=model.flat.device)
        problem = StackedProblem(Stack(examples.x[None], examples.y[None]), classes)
        result = StackedResult.empty(model, 0)
        super().__init__(index, [seed], problem, model, stacked, network.optimizer, result, "last")
        self.whole, self.seed = method, seed
        self.core: CoreStep | None = None
        self.counted = False
        self.shares = None if examples.weight is None else examples.weight[None]
        captured = captured and model.flat.device.type in DEVICES
        if captured or not lean:
            self.generators = [torch.Generator(model.flat.device)]
            rest = self.gradient, method, classes, self.generators[0]
            self.core = CapturedCore(network, *rest) if captured else CoreStep(model, *rest)
        if isinstance(self.core, CapturedCore):
            self.optimizer = self.core  # type: ignore[assignment]  # it has stepped already

    def _step(self, batch: int) -> Step:
        return super()._step(batch) if self.core is None else self.core

    @property
    def loss(self) -> float:
        """The mean over the last epoch."""
        return float(self.sums[0, 0]) / self.train.length

    def grow(self, epoch: int) -> None:
        """Appends what the method adds to the examples, if it is time to."""
        growth = self.whole.growth
        if growth is None or not growth.due(epoch):
            return
        if self.shares is not None:
            raise InputError(
                f"expected no weights with {self.whole.name!r}, which adds examples that have none; leave them out"
            )
        x, y = self.train.x[0], self.train.y[0]
        generator = torch.Generator(x.device).manual_seed(derived(self.seed, "growth", epoch))
        new = growth.grow(self.model.module(0), x, y, self.whole.likelihood or Categorical(), generator=generator)
        self.train = Stack(torch.cat([x, new[0]])[None], torch.cat([y, new[1]])[None])


def train(
    group: OneNetwork,
    *,
    start: int,
    epochs: int,
    batch_size: int,
    patience: int,
    held_out: Examples | None,
    verbose: bool,
) -> tuple[list[float], list[float]]:
    """Trains the network in place; with held-out examples it ends with the weights of the best epoch.

    Returns the mean training loss and the held-out mean log-likelihood of each epoch.

    Args:
        start: the epochs that were trained before, whose streams of random numbers are continued.
        patience: stop after so many epochs without a gain on the held-out examples.
    """
    losses, scores, flat = [], [], group.model.flat
    best, best_epoch, best_weights = -math.inf, 0, flat.clone()
    for epoch in range(start + 1, start + epochs + 1):
        group.train_epoch(epoch - 1, batch_size)
        if not math.isfinite(group.loss):
            raise InputError(f"expected a finite loss, but it was {group.loss} in epoch {epoch}; lower learning_rate")
        losses.append(group.loss)
        line = f"epoch {epoch}: loss {group.loss:.4f}"
        if held_out is not None:
            scores.append(_score(group, held_out))
            line += f", held-out log-likelihood {scores[-1]:.4f}"
        if verbose:
            print(line)
        if scores and scores[-1] > best + LEAST_GAIN:
            best, best_epoch = scores[-1], epoch
            best_weights.copy_(flat)
        elif scores and epoch - max(best_epoch, start) >= patience:
            break
        group.grow(epoch)
    if best_epoch:
        flat.copy_(best_weights)
    return losses, scores


@torch.no_grad()
def _score(group: OneNetwork, held_out: Examples) -> float:
    """The mean log-likelihood, without smoothing."""
    likelihood: Any = group.whole.likelihood or Categorical()
    plain = likelihood.plain() if hasattr(likelihood, "plain") else likelihood
    values: Tensor = plain.nll(group.model(held_out.x[None])[0], held_out.y)
    return -float((values if held_out.weight is None else held_out.weight * values).mean())
