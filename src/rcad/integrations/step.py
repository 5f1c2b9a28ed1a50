"""One training step of a method inside a framework: augment, measure, run backward as the framework wants it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rcad.errors import InputError
from rcad.integrations.resolve import Batch, MethodLike, resolve
from rcad.loss.model_calls import Inputs, Model
from rcad.loss.terms import Losses
from rcad.train.own_loop import CapturedStep

Run = Callable[[Tensor], None]


class Step:
    """A method with all that it needs to know about the batches; the options are those of `resolve`."""

    def __init__(
        self,
        method: MethodLike,
        *,
        classes: int | None = None,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> None:
        self.resolved = resolve(method, **options)
        self.classes, self.generator = classes, generator
        self._fits = False

    def losses(self, model: Model, x: Inputs, y: Tensor, *, number: int | None = None) -> Losses:
        """The losses with their graph; `number` is how many batches came before, for terms that rest at some."""
        batch = self._batch(model, x, y)
        criterion = self.resolved.criterion
        return criterion.losses(model, batch.x, batch.target, step=number, generator=self.generator, **batch.views)

    def backward(
        self, model: Model, x: Inputs, y: Tensor, run: Run, *, accumulate: int = 1, number: int | None = None
    ) -> Losses:
        """Gradients in the fewest passes, each run backward by the framework's own `run`, which may scale it."""
        # It stands where a GradScaler may stand.
        scaler = SimpleNamespace(scale=lambda outputs: SimpleNamespace(backward=partial(run, outputs)))
        return self._backward(model, x, y, scaler, accumulate=accumulate, step=number)

    def _backward(self, model: Model, x: Inputs, y: Tensor, scaler: Any, **options: Any) -> Losses:
        batch = self._batch(model, x, y)
        options = {"scaler": scaler, "generator": self.generator, **batch.views, **options}
        return self.resolved.criterion.backward(model, batch.x, batch.target, **options)

    def captured(self, step: CapturedStep, x: Inputs, y: Tensor, *, number: int | None = None) -> Losses:
        """The whole step of `rcad.capture`, optimizer and all."""
        batch = self._batch(step.model, x, y)
        return step(batch.x, batch.target, step=number, **batch.views)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint: the measured alpha, the number of calls, and `generator`'s state."""
        generator = {} if self.generator is None else {"generator": self.generator.get_state()}
        return {"criterion": self.resolved.criterion.state_dict(), **generator}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a `state_dict`; what a checkpoint of an earlier version lacks stays as it is."""
        if self.generator is not None and "generator" in state:
            self.generator.set_state(state["generator"].cpu())
        if "criterion" in state:
            self.resolved.criterion.load_state_dict(state["criterion"])

    def parts(self, losses: Losses, prefix: str) -> dict[str, Tensor]:
        """Values to log: the total and each term's mean, under readable names."""
        readable = self.resolved.readable(losses.parts)
        return {f"{prefix}/{name}": value for name, value in {"loss": losses.total.detach(), **readable}.items()}

    def _batch(self, model: Model, x: Inputs, y: Tensor) -> Batch:
        """The batch as the method wants it; the first one is tried on the model's signature."""
        if not (self._fits or torch.compiler.is_compiling()):
            check_call(model, x)
            self._fits = True
        batch: Any = (_usable(x), _usable(y))
        return self.resolved.batch(*batch, classes=self.classes, generator=self.generator)


def check_call(model: Model, x: Inputs) -> None:
    """Raises if model.forward cannot be called with x: one tensor, or a mapping's entries as keywords."""
    forward = getattr(model, "forward", None)
    if forward is None or not isinstance(x, Tensor | Mapping):
        return
    signature = inspect.signature(forward)
    try:
        signature.bind(**x) if isinstance(x, Mapping) else signature.bind(x)
    except TypeError:
        wanted, cure = "one tensor", "give x as a mapping by these names, and input_key= for the one to perturb"
        if isinstance(x, Mapping):
            wanted = f"the keywords {', '.join(map(str, x))}, into which a mapping is spread"
            cure = "give it these arguments"
        raise InputError(
            f"expected {type(model).__name__}.forward to take {wanted}, but it takes "
            f"({', '.join(signature.parameters)}); {cure}"
        ) from None


def _usable(value: Any) -> Any:
    """Copies tensors that were made in inference mode, e.g. cached in validation: autograd cannot save them."""
    if isinstance(value, Mapping):
        return {key: _usable(item) for key, item in value.items()}
    return value.clone() if isinstance(value, Tensor) and value.is_inference() else value
