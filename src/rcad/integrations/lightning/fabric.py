"""For loops with Fabric: a criterion that knows what lies inside the model that `fabric.setup` returned."""

from __future__ import annotations

from typing import Any

import torch
from lightning.fabric import Fabric, is_wrapped
from lightning.fabric.plugins import MixedPrecision
from torch import Tensor, nn

from rcad.errors import InputError
from rcad.integrations.resolve import MethodLike
from rcad.integrations.step import Step
from rcad.loss.model_calls import Inputs
from rcad.loss.terms import Losses


class FabricCriterion:
    """A method's loss for a model and a loop in Fabric, under its precision and its strategy.

    In mixed precision Fabric's wrapper rounds x before the model sees it, and forbids any backward but its own through
    what it returns. The passes therefore go to the module inside, under the same autocast: x, its gradient and x'
    stay in fp32. Under DDP the clean pass goes through the data-parallel wrapper and the others do not.

    Args:
        fabric: the Fabric that set the model up.
        method: text such as "mixup + rcad(alpha=1.0, lam=0.1)", a Method, or a Criterion.
        classes: the number of classes, for methods that mix integer labels.
        generator: the source of augmentations and random directions; default torch's global one.
        options: mean and std of normalised images, input_key, mask_key, units, checks, output.

    Example:
        >>> criterion = FabricCriterion(fabric, "rcad(alpha=0.5, lam=0.02)")  # doctest: +SKIP
        >>> fabric.backward(criterion(model, x, y))     # autograd  # doctest: +SKIP
        >>> criterion.backward(model, x, y)             # the same gradients, faster  # doctest: +SKIP
    """

    def __init__(
        self,
        fabric: Fabric,
        method: MethodLike,
        *,
        classes: int | None = None,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> None:
        self.fabric = fabric
        self.step = Step(method, classes=classes, generator=generator, **options)

    def __call__(self, model: nn.Module, x: Inputs, y: Tensor, *, step: int | None = None) -> Tensor:
        """The loss, for `fabric.backward(loss)`."""
        return self.losses(model, x, y, step=step).total

    def losses(self, model: nn.Module, x: Inputs, y: Tensor, *, step: int | None = None) -> Losses:
        """The loss with its parts and the model's output; `step` as in `Objective.forward`."""
        inside = inner(model)
        with self.fabric.autocast():
            return self.step.losses(inside, self._converted(x), y, number=step)

    def backward(
        self, model: nn.Module, x: Inputs, y: Tensor, *, accumulate: int = 1, step: int | None = None
    ) -> Losses:
        """Gradients in the fewest passes, each through `fabric.backward`; returns the detached losses.

        Args:
            accumulate: how many batches are summed before the optimizer steps; all but the last of them belong under
                `fabric.no_backward_sync(model)`.
        """
        inside = inner(model)
        with self.fabric.autocast():
            return self.step.backward(
                inside, self._converted(x), y, self.fabric.backward, accumulate=accumulate, number=step
            )

    def _converted(self, x: Inputs) -> Any:
        """Where the weights themselves have another dtype, x must have it too; autocast wants it left alone."""
        precision = self.fabric.strategy.precision
        return x if isinstance(precision, MixedPrecision) else precision.convert_input(x)


def inner(model: Any) -> nn.Module:
    """What Fabric wrapped: the module, or the data-parallel wrapper around it."""
    if not is_wrapped(model):
        raise InputError(f"expected the model that fabric.setup(...) returned, but got {type(model).__name__}")
    inside: nn.Module = model._forward_module
    if isinstance(getattr(inside, "_orig_mod", None), nn.parallel.DistributedDataParallel):
        raise InputError(
            "expected DDP around the compiled model, but got the model compiled around DDP, which would exchange "
            "gradients at every pass; call fabric.setup(model, optimizer, _reapply_compile=False)"
        )
    return inside
