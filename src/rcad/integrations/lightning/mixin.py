"""For one's own LightningModule: one line in `training_step`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rcad.errors import InputError
from rcad.integrations.resolve import MethodLike
from rcad.integrations.step import Step
from rcad.loss.model_calls import Inputs, Model
from rcad.loss.terms import Losses


class RCADMixin:
    """Stands before LightningModule among the bases; `forward(x)` must give the logits, unless `model` is passed.

    Example:
        >>> class Net(RCADMixin, lightning.LightningModule):  # doctest: +SKIP
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.use_method("rcad(alpha=0.5, lam=0.02)")
        ...
        ...     def training_step(self, batch, batch_idx):
        ...         return self.regularised_loss(*batch)  # in place of cross_entropy(self(x), y)
    """

    _rcad: Step | None = None
    _rcad_prefix: str | None = "rcad"

    if TYPE_CHECKING:
        manual_backward: Any
        log_dict: Any

    def use_method(
        self,
        method: MethodLike,
        *,
        classes: int | None = None,
        generator: torch.Generator | None = None,
        log: str | None = "rcad",
        **options: Any,
    ) -> None:
        """Which method to train with. Call it in `__init__`.

        Args:
            method: text such as "mixup + rcad(alpha=1.0, lam=0.1)", a Method, or a Criterion.
            classes: the number of classes, for methods that mix integer labels.
            generator: the source of augmentations and random directions; default torch's global one.
            log: the parts of the loss are logged under this name, "rcad/nll" and so on; None logs nothing.
            options: mean and std of normalised images, input_key, mask_key, units, checks, output.
        """
        self._rcad = Step(method, classes=classes, generator=generator, **options)
        self._rcad_prefix = log_prefix(log)

    def regularised_loss(self, x: Inputs, y: Tensor, *, model: Model | None = None) -> Tensor:
        """The method's loss, for automatic optimisation: return it from `training_step`.

        2 forwards and 3 backwards for RCAD, since Lightning runs the loss backward when the step is over.
        """
        losses = self._step().losses(self._model(model), x, y, number=batches_seen(self))
        self._log(losses)
        return losses.total

    def regularised_backward(self, x: Inputs, y: Tensor, *, accumulate: int = 1, model: Model | None = None) -> Losses:
        """The method's gradients, for manual optimisation: in place of `self.manual_backward(loss)`.

        2 forwards and 2 backwards for RCAD, each backward through `manual_backward`.

        Args:
            accumulate: how many batches are summed before the optimizer steps; the gradients are divided by it.
        """
        losses = self._step().backward(
            self._model(model), x, y, self.manual_backward, accumulate=accumulate, number=batches_seen(self)
        )
        self._log(losses)
        return losses

    def _step(self) -> Step:
        if self._rcad is None:
            raise InputError('expected self.use_method("rcad(alpha=..., lam=...)") in __init__, but it was not called')
        return self._rcad

    def _model(self, model: Model | None) -> Any:
        return self if model is None else model

    # Lightning inspects signatures when it logs, which a compiler cannot follow.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _log(self, losses: Losses) -> None:
        if self._rcad_prefix is not None and batches_seen(self) is not None:
            self.log_dict(self._step().parts(losses, self._rcad_prefix), on_step=True, on_epoch=False)


def log_prefix(log: Any) -> str | None:
    """The name under which parts of the loss are logged, or None."""
    if log is not None and not (isinstance(log, str) and log):
        raise InputError(f'expected log to be a name such as "rcad", or None, but got {log!r}')
    return log


def batches_seen(module: Any) -> int | None:
    """How many batches the Trainer gave before this one, which a resumed run remembers; None without a Trainer."""
    trainer = getattr(module, "_trainer", None)
    return None if trainer is None else int(trainer.fit_loop.total_batch_idx)
