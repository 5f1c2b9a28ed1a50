"""Where a term looks: from a batch x to x', a detached tensor of the same shape.

Directions come from the loss *summed* over the batch, so they do not depend on its size. Distances are in the units of
the input; inputs that were normalised keep pixel units when `std` (and `mean`, if there are bounds) is given.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from rcad.errors import InputError, Value, finite, is_number, one_of, whole
from rcad.loss.augmentations import Source, drawn
from rcad.loss.likelihoods import Categorical, Likelihood, full_precision, numbers
from rcad.loss.method_rows import AUTO
from rcad.loss.model_calls import REENTRANT, Forward, Model, undisturbed

Norm = Literal["l2", "raw", "linf"]
Alpha = float | Literal["auto"]
Channels = tuple[float, ...]


class OfInputs(float):
    """An alpha that `suggest_alpha` measured on images that are not in [0, 1]: in their own units, not in pixels."""


def unit(g: Tensor, norm: Norm) -> Tensor:
    """g scaled, per example, to length 1 in the given norm; zero stays zero, and what overflowed becomes it in "l2"."""
    g = full_precision(g)
    if norm == "raw":
        return g
    if norm == "linf":
        return g.sign()
    # Dividing by the largest entry first keeps the squares of tiny gradients from underflowing.
    flat = g.flatten(1) if g.ndim > 1 else g[:, None]
    flat = flat / flat.abs().amax(1, keepdim=True).clamp(min=torch.finfo(g.dtype).tiny)
    length: Tensor = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    return (flat / length.clamp(min=0.5)).nan_to_num_().view_as(g)  # inf or NaN made all of an example's entries NaN


def masked(step: Tensor, mask: Tensor | None) -> Tensor:
    """The step with the positions outside the mask set to zero; a mask (B, T) covers (B, T, ...)."""
    if mask is None:
        return step
    return step * mask.view(*mask.shape, *[1] * (step.ndim - mask.ndim)).to(step.dtype)


@lru_cache(maxsize=64)
def _channels(values: Channels, ndim: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """One number per channel, shaped to broadcast over (B, C, ...)."""
    return torch.tensor(values, device=device, dtype=dtype).view(1, -1, *[1] * (ndim - 2))


@dataclass(frozen=True, repr=False)
class Move(Value):
    """What every perturbation shares: a distance, the norm it is measured in, and the space it lives in.

    Args:
        alpha: distance per example, in the units of the input (an L2 distance in [0, 1] pixel space for images); or
            "auto", for a loss that measures it on its first batches.
        norm: "l2", "linf", or "raw" (alpha times the gradient itself: the paper's formula).
        bounds: (low, high) limits on x' in the same units; None leaves it free.
        mean, std: per-channel numbers by which the inputs were already normalised.
    """

    alpha: Alpha
    norm: Norm = "l2"
    bounds: tuple[float, float] | None = None
    mean: Channels | None = None
    std: Channels | None = None
    _norms: ClassVar[tuple[str, ...]] = ("l2", "raw", "linf")

    def __post_init__(self) -> None:
        one_of("norm", self.norm, self._norms)
        if not isinstance(self.alpha, str) or self.alpha != AUTO:
            finite("alpha", self.alpha, minimum=0.0)
        elif self.norm != "l2":
            raise InputError(f"expected a number for alpha with norm={self.norm!r}, since 'auto' is an L2 distance")
        for name in ("bounds", "mean", "std"):
            values = getattr(self, name)
            if values is not None:
                each = (float(values),) if is_number(values) else numbers(name, values, "channel")
                object.__setattr__(self, name, each)
        if self.bounds is not None and not (len(self.bounds) == 2 and self.bounds[0] < self.bounds[1]):
            raise InputError(f"expected bounds as (low, high) with low < high, but got {self.bounds}")
        if self.std is not None and not all(math.isfinite(s) and s > 0 for s in self.std):
            raise InputError(f"expected std to hold positive numbers, but got {self.std}")
        if self.bounds is not None and (self.std is None) != (self.mean is None):
            raise InputError("expected both mean and std with bounds, or neither, but got only one of them")

    @property
    def distance(self) -> float:
        """alpha as a number; it is an error if it has yet to be measured."""
        if isinstance(self.alpha, str):
            raise InputError(
                "expected a number for alpha outside of a criterion, which measures 'auto' on its first batches; use "
                "rcad.suggest_alpha(x, y)"
            )
        return self.alpha

    def direction(self, gradient: Tensor, mask: Tensor | None = None) -> Tensor:
        """The step of length 1 that a gradient with respect to x gives, in pixel units."""
        g = full_precision(gradient)
        if self.std is not None:
            g = g / self._like(self.std, g)
        return unit(masked(g, mask), self.norm)

    def moved(self, x: Tensor, step: Tensor) -> Tensor:
        """x moved by a step in pixel units, kept inside the bounds, detached and in x's dtype."""
        wide = full_precision(x.detach())
        result = wide + (step if self.std is None else step / self._like(self.std, step))
        if self.bounds is not None:
            result = result.clamp(*self._limits(wide))
        return result.to(x.dtype)

    def _like(self, values: Channels, x: Tensor) -> Tensor:
        if x.ndim < 2 or len(values) not in (1, x.shape[1]):
            raise InputError(
                f"expected one number per channel of {tuple(x.shape)}, but got {len(values)}; pass such mean= and std="
            )
        return _channels(values, x.ndim, x.device, x.dtype)

    def _limits(self, x: Tensor) -> tuple[Any, Any]:
        assert self.bounds is not None
        if self.std is None or self.mean is None:
            return self.bounds
        low, high = ((limit - self._like(self.mean, x)) / self._like(self.std, x) for limit in self.bounds)
        return low, high


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
            return masked(drawn(sample, wide.shape, generator, device=wide.device, dtype=wide.dtype), mask)

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
        size = self.distance / self.steps
        step = size * uphill(None)
        for _ in range(self.steps - 1):
            step = step + size * uphill(step)
        if self.steps > 1 and self.norm == "l2":
            step = self.distance * unit(step, "l2")
        return step + self.jitter * draw(_uniform) if self.jitter else step


@dataclass(frozen=True, repr=False)
class RandomStep(_Travel):
    """A step of the same length in a random direction: the control that tells whether the direction matters."""

    _norms: ClassVar[tuple[str, ...]] = ("l2", "linf")

    def direction_loss(self, likelihood: Likelihood) -> None:
        return None

    def travel(self, uphill: Uphill, draw: Draw) -> Tensor:
        return self.distance * unit(draw(torch.randn), self.norm)


@dataclass(frozen=True, repr=False)
class StepOfEach(_Travel):
    """The same step with a distance of its own for each of several runs, whose examples alternate in the batch."""

    unit_step: GradientStep | RandomStep = GradientStep(1.0)  # of length 1, in the norm "l2"
    alphas: tuple[float, ...] = ()

    @staticmethod
    def of(steps: Sequence[GradientStep | RandomStep]) -> StepOfEach:
        """Steps that differ in their distance alone, as one; it is an error if they differ in more."""
        first = steps[0]
        units = {replace(step, alpha=1.0) for step in steps}
        if len(units) > 1 or first.norm != "l2" or (isinstance(first, GradientStep) and first.jitter):
            raise InputError(f"expected steps that differ in alpha alone, but got {', '.join(map(repr, steps))}")
        alphas = tuple(step.distance for step in steps)
        return StepOfEach(1.0, first.norm, first.bounds, first.mean, first.std, units.pop(), alphas)

    def direction_loss(self, likelihood: Likelihood) -> Likelihood | None:
        return self.unit_step.direction_loss(likelihood)

    def travel(self, uphill: Uphill, draw: Draw) -> Tensor:
        def scaled(step: Tensor) -> Tensor:
            each = _channels(self.alphas, step.ndim + 1, step.device, step.dtype)
            return (step.view(-1, len(self.alphas), *step.shape[1:]) * each).flatten(0, 1)

        return scaled(self.unit_step.travel(lambda step: uphill(None if step is None else scaled(step)), draw))


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
    _norms: ClassVar[tuple[str, ...]] = ("l2", "linf")

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("steps", self.steps, minimum=1)
        if self.step_size is not None:
            finite("step_size", self.step_size, above=0.0)

    def direction_loss(self, likelihood: Likelihood) -> Likelihood | None:
        return None if self.random_start else likelihood

    def travel(self, uphill: Uphill, draw: Draw) -> Tensor:
        size = 2.5 * self.distance / self.steps if self.step_size is None else self.step_size
        step: Tensor | None = None
        if self.random_start:
            step = self.distance * (unit(draw(torch.randn), "l2") if self.norm == "l2" else draw(_uniform))
        for _ in range(self.steps):
            climb = size * uphill(step)
            step = self._projected(climb if step is None else step + climb)
        assert step is not None
        return step

    def _projected(self, step: Tensor) -> Tensor:
        if self.norm == "linf":
            return step.clamp(-self.distance, self.distance)
        length: Tensor = torch.linalg.vector_norm(step.flatten(1), dim=1)
        length = length.clamp(min=torch.finfo(step.dtype).tiny)
        return step * (self.distance / length).clamp(max=1.0).view(-1, *[1] * (step.ndim - 1))
