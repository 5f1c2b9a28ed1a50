"""Training sets that grow between epochs: ADA (Volpi et al., 2018) and ME-ADA (Zhao et al., 2020)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rcad.errors import InputError, Value, finite, whole
from rcad.loss.likelihoods import Categorical, Likelihood
from rcad.loss.model_calls import evaluating

log = logging.getLogger("rcad")


@dataclass(frozen=True, repr=False)
class FeatureAscent(Value):
    """Ascent on nll + eta * entropy - gamma * mean squared distance in the embedding, from each example.

    Args:
        eta: weight of the entropy: 0 is ADA.
        gamma: weight of the distance in the embedding.
        steps: ascent steps.
        step_size: factor on the gradient of an example's own loss, for inputs in [0, 1]. The default is ME-ADA's
            20.0, which acts on inputs in [-1, 1] (4 times larger there) and on the mean over 128 examples.
        epochs: grow after every so many epochs ...
        rounds: ... and this many times.
        levels: round to this many steps of [0, 1] (255 for 8 bits) after clamping; None leaves values free.
        max_bytes: the added examples never take more memory than this; a random part is grown instead.
    """

    eta: float = 0.0
    gamma: float = 1.0
    steps: int = 15
    step_size: float = 20.0 / 128 / 4
    epochs: int = 10
    rounds: int = 2
    levels: int | None = 255
    max_bytes: int = 2**31

    def __post_init__(self) -> None:
        for name in ("eta", "gamma"):
            finite(name, getattr(self, name), minimum=0.0)
        finite("step_size", self.step_size, above=0.0)
        for name in ("steps", "epochs", "rounds", "max_bytes"):
            whole(name, getattr(self, name), minimum=1)
        if self.levels is not None:
            whole("levels", self.levels, minimum=1)

    def due(self, finished: int) -> bool:
        """Whether to grow once `finished` epochs are over."""
        return finished > 0 and finished % self.epochs == 0 and finished // self.epochs <= self.rounds

    def grow(
        self,
        model: nn.Module,
        x: Tensor,
        target: Tensor,
        likelihood: Likelihood = Categorical(),
        *,
        batch_size: int = 512,
        generator: torch.Generator | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The new examples and their labels, to be appended to the training set.

        Args:
            model: with `features()` and `head()`; used in eval mode and left as it was.
            x: all training examples, float in [0, 1] or uint8; the new ones have the same dtype and device.
            progress: called with (done, total) examples after each batch.
        """
        if not (hasattr(model, "features") and hasattr(model, "head")):
            raise InputError(f"expected a model with features() and head(), but got {type(model).__name__}")
        chosen = self._chosen(x, generator)
        device = next(model.parameters()).device
        grown: list[Tensor] = []
        with evaluating(model):
            for index in torch.split(chosen, batch_size):
                start = as_unit_float(x[index]).to(device)
                moved = self._ascend(model, start, target[index].to(device), likelihood)
                if self.levels is not None:
                    steps = (moved.clamp(0, 1) * self.levels).round()
                    moved = steps if x.dtype == torch.uint8 else steps / self.levels
                grown.append(moved.to(x.dtype).to(x.device))
                if progress is not None:
                    progress(sum(map(len, grown)), len(chosen))
        return torch.cat(grown), target[chosen]

    def _chosen(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        room = self.max_bytes // max(1, x[0].numel() * x.element_size())
        if room >= len(x):
            return torch.arange(len(x), device=x.device)
        if room == 0:
            raise InputError(f"expected max_bytes to hold at least one example, but got {self.max_bytes}")
        log.warning("growing %d of %d examples: more would exceed max_bytes=%d", room, len(x), self.max_bytes)
        return torch.randperm(len(x), device=x.device, generator=generator)[:room]

    def _ascend(self, model: Any, x: Tensor, target: Tensor, likelihood: Likelihood) -> Tensor:
        def gain(output: Tensor, squares: Tensor) -> Tensor:
            value = likelihood.nll(output, target) - self.gamma * squares.flatten(1).mean(1)
            return value + self.eta * likelihood.entropy(output) if self.eta else value

        return ascend(model, x, gain, self.steps, self.step_size)


def ascend(model: Any, x: Tensor, gain: Callable[[Tensor, Tensor], Tensor], steps: int, size: float | Tensor) -> Tensor:
    """x after so many steps up the sum of gain(output, squared distances to x in the embedding)."""
    with torch.no_grad():
        anchor = model.features(x)
    moved = x
    for _ in range(steps):
        with torch.enable_grad():
            moved = moved.detach().requires_grad_(True)
            features = model.features(moved)
            value = gain(model.head(features), (features - anchor).square())
            (gradient,) = torch.autograd.grad(value.sum(), moved)
        moved = moved.detach() + size * gradient
    return moved.detach()


def as_unit_float(x: Tensor) -> Tensor:
    """uint8 pixels as floats in [0, 1]; floats as they are."""
    return x.float() / 255 if x.dtype == torch.uint8 else x
