"""Where a term looks: from a batch x to x', a detached tensor of the same shape.

Directions come from the loss *summed* over the batch, so they do not depend on its size. Distances are in the
units of the input, per example: pixels of [0, 1] for images. Inputs that were normalised as (pixels - mean) / std
keep pixel units when `std` (and `mean`, if there are bounds) is given.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from rcad.errors import InputError, finite, one_of, whole
from rcad.loss.draws import Source, drawn
from rcad.loss.geometry import Move, masked, unit
from rcad.loss.likelihoods import Categorical, Likelihood
from rcad.loss.model_calls import REENTRANT, Forward, Model, undisturbed
from rcad.loss.tensors import full_precision

Uphill = Callable[[Tensor | None], Tensor]
Draw = Callable[[Callable[..., Tensor]], Tensor]


class Perturbation(Protocol):
    """Anything that moves a batch. `gradient`, if the caller knows it, is that of the summed loss at x."""

    def __call__(
        self,
        model: Model,
        x: Tensor,
        target: Tensor,
        likelihood: Likelihood = ...,
        *,
        mask: Tensor | None = None,
        generator: Source | None = None,
        gradient: Tensor | None = None,
    ) -> Tensor: ...

    def direction_loss(self, likelihood: Likelihood) -> Likelihood | None:
        """The likelihood whose gradient at x is needed first; None if none is."""


def input_gradient(model: Model, x: Tensor, target: Tensor, likelihood: Likelihood) -> Tensor:
    """The gradient of the summed negative log-likelihood with respect to x. Nothing else receives one."""
    forward = model if isinstance(model, Forward) else Forward(model)
    with torch.enable_grad():
        probe = x.detach().requires_grad_(True)
        return reaching_gradient(likelihood.nll(forward(probe), target).sum(), probe)


def reaching_gradient(loss: Tensor, x: Tensor, *, retain_graph: bool = False) -> Tensor:
    """The gradient of a loss with respect to x alone; zero where the model detaches or ignores x."""
    if not loss.requires_grad:
        return torch.zeros_like(x)
    try:
        (gradient,) = torch.autograd.grad(loss, x, retain_graph=retain_graph, allow_unused=True)
    except RuntimeError as error:
        if "use_reentrant" in str(error):
            raise InputError(REENTRANT) from error
        raise
    return torch.zeros_like(x) if gradient is None else gradient


def _uniform(shape: tuple[int, ...], **options: Any) -> Tensor:
    """Noise drawn uniformly from [-1, 1)."""
    return 2 * torch.rand(shape, **options) - 1


@dataclass(frozen=True, repr=False)
class _Travel(Move):
    """Calls `travel`, which says how far to go, given the way uphill and a source of noise."""

    def direction_loss(self, likelihood: Likelihood) -> Likelihood | None:
        return likelihood

    @abstractmethod
    def travel(self, uphill: Uphill, draw: Draw) -> Tensor:
        """The whole step in pixel units. `uphill(step)` is the unit direction after a step (None: at x)."""

    def __call__(
        self,
        model: Model,
        x: Tensor,
        target: Tensor,
        likelihood: Likelihood = Categorical(),
        *,
        mask: Tensor | None = None,
        generator: Source | None = None,
        gradient: Tensor | None = None,
    ) -> Tensor:
        loss = self.direction_loss(likelihood) or likelihood
        wide = full_precision(x.detach())

        def uphill(step: Tensor | None) -> Tensor:
            if step is None and gradient is not None:
                return self.direction(gradient, mask)
            start = x if step is None else self.moved(x, step)
            with undisturbed(model, x.device):
                return self.direction(input_gradient(model, start, target, loss), mask)

        def draw(sample: Callable[..., Tensor]) -> Tensor:
            def noise(count: int, **options: Any) -> Tensor:
                return sample((count, *wide.shape[1:]), device=wide.device, dtype=wide.dtype, **options)

            return masked(drawn(noise, len(wide), generator), mask)

        return self.moved(x, self.travel(uphill, draw))


@dataclass(frozen=True, repr=False)
class GradientStep(_Travel):
    """Up the loss by a distance alpha: RCAD's x' and, with norm="linf", the fast gradient sign method.

    Args:
        steps: 1, or several ascent steps of alpha/steps each; in "l2" the end point is then set to distance alpha.
        jitter: half-width of uniform noise added to x' (an early version of the paper's program adds 0.01).
        loss: "training" takes the direction from the training loss, "plain" from the same likelihood without
            smoothing and class weights.
    """

    steps: int = 1
    jitter: float = 0.0
    loss: Literal["training", "plain"] = "training"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("steps", self.steps, minimum=1)
        finite("jitter", self.jitter, minimum=0.0)
        one_of("loss", self.loss, ("training", "plain"))

    def direction_loss(self, likelihood: Likelihood) -> Likelihood:
        if self.loss == "plain" and hasattr(likelihood, "plain"):
            return likelihood.plain()  # type: ignore[no-any-return]
        return likelihood

    def travel(self, uphill: Uphill, draw: Draw) -> Tensor:
        size = self.alpha / self.steps
        step = size * uphill(None)
        for _ in range(self.steps - 1):
            step = step + size * uphill(step)
        if self.steps > 1 and self.norm == "l2":
            step = self.alpha * unit(step, "l2")
        return step + self.jitter * draw(_uniform) if self.jitter else step


@dataclass(frozen=True, repr=False)
class RandomStep(_Travel):
    """A step of the same length in a random direction: the control that tells whether the direction matters.

    Draws from `generator`, or from torch's global one when none is given.
    """

    def _norms(self) -> tuple[str, ...]:
        return ("l2", "linf")

    def direction_loss(self, likelihood: Likelihood) -> None:
        return None

    def travel(self, uphill: Uphill, draw: Draw) -> Tensor:
        return self.alpha * unit(draw(torch.randn), self.norm)


@dataclass(frozen=True, repr=False)
class ProjectedAscent(_Travel):
    """Several steps up the loss, each projected back to distance alpha: the attack of projected gradients.

    Args:
        steps: number of ascent steps.
        step_size: length of each; None takes 2.5 alpha / steps.
        random_start: begin on the sphere (l2) or in the cube (linf) at random instead of at x.
    """

    steps: int = 10
    step_size: float | None = None
    random_start: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("steps", self.steps, minimum=1)
        if self.step_size is not None:
            finite("step_size", self.step_size, above=0.0)

    def _norms(self) -> tuple[str, ...]:
        return ("l2", "linf")

    def direction_loss(self, likelihood: Likelihood) -> Likelihood | None:
        return None if self.random_start else likelihood

    def travel(self, uphill: Uphill, draw: Draw) -> Tensor:
        size = 2.5 * self.alpha / self.steps if self.step_size is None else self.step_size
        step = self._start(draw) if self.random_start else None
        for _ in range(self.steps):
            climb = size * uphill(step)
            step = self._projected(climb if step is None else step + climb)
        assert step is not None
        return step

    def _start(self, draw: Draw) -> Tensor:
        if self.norm == "l2":
            return self.alpha * unit(draw(torch.randn), "l2")
        return self.alpha * draw(_uniform)

    def _projected(self, step: Tensor) -> Tensor:
        if self.norm == "linf":
            return step.clamp(-self.alpha, self.alpha)
        length: Tensor = torch.linalg.vector_norm(step.flatten(1), dim=1)
        length = length.clamp(min=torch.finfo(step.dtype).tiny)
        return step * (self.alpha / length).clamp(max=1.0).view(-1, *[1] * (step.ndim - 1))
