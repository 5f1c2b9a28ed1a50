"""The network of an estimator, a stack of one, and how it trains: it may stop early and goes on where it was."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import RLock
from typing import Any, NamedTuple

import numpy.typing as npt
import torch
from safetensors.torch import load, save
from torch import Tensor

from rcad.errors import InputError
from rcad.loss.augmentations import augment
from rcad.loss.likelihoods import Categorical
from rcad.loss.methods import Method
from rcad.loss.terms import Losses
from rcad.runs.config import OptimConfig
from rcad.stacked.method import StackedLikelihood, StackedMethod, Step
from rcad.stacked.model import Layout, StackedMLP, StackedOptimizer
from rcad.stacked.train import Examples as Stack
from rcad.stacked.train import Group, StackedProblem, StackedResult
from rcad.train.own_loop import DEVICES, capture
from rcad.train.task import derived

LEAST_GAIN = 1e-4
"""An epoch improves if the held-out likelihood rises by more than this."""
ROWS = 2**14
"""Rows that are predicted at a time."""
MEMORY = ("0.step", "0.exp_avg", "0.exp_avg_sq")
_DRAWING = RLock()
"""First weights come from torch's global generator, which fits in several threads must not share."""


class Network:
    """A perceptron, a model of one replica, and its optimizer: AdamW over `flat`, which holds all parameters."""

    def __init__(self, model: StackedMLP) -> None:
        self.model, self.flat = model, model.flat
        self.pace(1.0, 0.0)

    @classmethod
    def begun(cls, sizes: Sequence[int], seed: int, device: torch.device, dtype: torch.dtype) -> Network:
        """A network with the initial weights of a seed, the same as in `rcad train` with this seed."""
        with _DRAWING:
            return cls(StackedMLP.initial([seed], sizes, device=device, dtype=dtype))

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.model.layout.sizes

    def pace(self, rate: float, decay: float) -> None:
        """Sets learning rate and weight decay of the steps to come."""
        self.rate, self.decay, before = rate, decay, getattr(self, "optimizer", None)
        config = OptimConfig(name="adamw", lr=rate, weight_decay=decay)
        self.optimizer = StackedOptimizer([config], self.model.layout, self.flat, epochs=1)
        if before is not None:
            self._recall(before.steps, before.first, before.second)

    def _recall(self, steps: int, first: Tensor | None, second: Tensor | None) -> None:
        self.optimizer.steps, self.optimizer.first, self.optimizer.second = steps, first, second

    @torch.no_grad()
    def output(self, x: Tensor) -> Tensor:
        """(N, D) -> (N, K), on the CPU."""
        return torch.cat([self.model(part.to(self.flat)[None])[0] for part in torch.split(x, ROWS)]).cpu()

    def on(self, device: torch.device) -> Network:
        """This network if it is there, else a copy."""
        return self if self.flat.device == device else Network.of(self.tensors(), self.sizes, str(device))

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and the optimizer's memory, on the CPU, under the names that torch.optim.AdamW gives it."""
        memory = self.optimizer
        values = (self.flat, torch.tensor(float(memory.steps)), memory.first, memory.second)
        return {
            name: value.detach().to("cpu", copy=True).contiguous()
            for name, value in zip(("weights", *MEMORY), values, strict=True)
            if value is not None
        }

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], sizes: Sequence[int], device: str) -> Network:
        """The network from its `tensors`; on the CPU if it was on a GPU and there is none here."""
        gone = torch.device(device).type == "cuda" and not torch.cuda.is_available()
        place = torch.device("cpu" if gone else device)
        # Copied: safetensors gives views of the bytes it has read.
        network = cls(StackedMLP(Layout(1, tuple(sizes)), tensors["weights"].to(place, copy=True)))
        if MEMORY[0] in tensors:
            first, second = (tensors[name].to(place, copy=True) for name in MEMORY[1:])
            network._recall(int(tensors[MEMORY[0]]), first, second)
        return network

    def __getstate__(self) -> dict[str, Any]:
        """Bytes and plain values, which skops knows as well as pickle does."""
        return {"data": save(self.tensors()), "sizes": list(self.sizes), "device": str(self.flat.device)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(vars(Network.of(load(state["data"]), state["sizes"], state["device"])))


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
    """The step of `rcad.Criterion`, for methods that cannot be stacked: augmentation, two views, jitter.

    Captured, it takes the optimizer's step too, both by `rcad.capture`; the optimizer's memory stays the network's.
    """

    def __init__(
        self,
        network: Network,
        gradient: Tensor,
        method: Method,
        classes: int,
        generator: torch.Generator,
        captured: bool,
    ) -> None:
        self.gradient, self.method, self.classes, self.generator = gradient, method, classes, generator
        self.memory = network.optimizer
        module, views = network.model.module(0), network.model.layout.views
        # The module has the same memory as the one replica, and its gradients arrive in `gradient`.
        for parameter, value, own in zip(module.parameters(), views(network.flat), views(gradient), strict=True):
            parameter.data, parameter.grad = value[0], own[0]
        criterion = method.criterion(units="input", checks="first")
        self.losses: Callable[..., Losses] = partial(criterion.backward, module, generator=generator)
        if captured:
            optimizer = torch.optim.AdamW(module.parameters(), network.rate, weight_decay=network.decay)
            moments = [views(moment) for moment in (self.memory.first, self.memory.second) if moment is not None]
            for parameter, first, second in zip(module.parameters(), *moments, strict=True):
                state = {"step": torch.tensor(float(self.memory.steps)), "exp_avg": first[0], "exp_avg_sq": second[0]}
                optimizer.state[parameter] = state
            self.losses = capture(module, optimizer, criterion, generator=generator)

    def __call__(
        self, x: Tensor, target: Tensor, number: int, shares: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        self.gradient.zero_()
        raw, labels = x[0], target[0]
        mixed, soft = augment(self.method.augment, raw, labels, classes=self.classes or None, generator=self.generator)
        weight = None if shares is None else shares[0]
        losses = self.losses(mixed, soft, raw=raw, raw_target=labels, weight=weight, step=number)
        return losses.total[None], None

    def step(self, flat: Tensor, gradient: Tensor, progress: float) -> None:
        """Stands for the optimizer's step where `rcad.capture` has taken it already."""
        self.memory.steps += 1


class OneNetwork(Group):
    """The stacked trainer's group of one replica, whose network is trained in place; 0 classes are regression."""

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
            self.core = CoreStep(network, self.gradient, method, classes, self.generators[0], captured)
        if captured:
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
    """The mean training loss and the held-out mean log-likelihood of each epoch.

    It goes on after the first `start` epochs. With held-out examples it stops after `patience` epochs without a gain
    there, and ends with the weights of the best.
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
