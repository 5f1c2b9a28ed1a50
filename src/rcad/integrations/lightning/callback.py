"""For a LightningModule that is to stay as it is: a callback that takes the place of its training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from rcad.errors import InputError
from rcad.integrations.lightning.mixin import batches_seen, log_prefix
from rcad.integrations.resolve import MethodLike
from rcad.integrations.step import Step


class RCADCallback(Callback):  # type: ignore[misc]
    """Trains a module with a method's loss in place of its own `training_step`, which is not called during `fit`.

    The module needs automatic optimisation and a `forward(x)` that gives the logits; batches are (x, y), or mappings
    with the two keys given. Optimizers, schedules, validation and everything else stay the module's. The step returns
    the loss, the clean "output" and the "target", for callbacks that measure in `on_train_batch_end`.

    Args:
        method: text such as "mixup + rcad(alpha=1.0, lam=0.1)", a Method, or a Criterion.
        keys: where input and target stand in a batch: ("image", "label") in a mapping, (0, 2) in batches of three;
            default the two of a pair. What else a batch holds is not used.
        classes: the number of classes, for methods that mix integer labels.
        generator: the source of augmentations and random directions; default torch's global one.
        log: the parts of the loss are logged under this name, "rcad/nll" and so on; None logs nothing.
        options: mean and std of normalised images, input_key, mask_key, units, checks, output.

    Example:
        >>> trainer = Trainer(callbacks=[RCADCallback("rcad(alpha=0.5, lam=0.02)")])  # doctest: +SKIP
    """

    def __init__(
        self,
        method: MethodLike,
        *,
        keys: tuple[Any, Any] | None = None,
        classes: int | None = None,
        generator: torch.Generator | None = None,
        log: str | None = "rcad",
        **options: Any,
    ) -> None:
        if keys is not None and (not isinstance(keys, Sequence) or isinstance(keys, str) or len(keys) != 2):
            raise InputError(f"expected keys as (input, target), but got {keys!r}")
        self.step = Step(method, classes=classes, generator=generator, **options)
        self.keys, self.prefix = keys, log_prefix(log)
        self._replaced: dict[str, Any] | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit" or self._replaced is not None:
            return
        if not pl_module.automatic_optimization:
            raise InputError(
                f"expected a module with automatic optimisation, but {type(pl_module).__name__} steps its optimizer "
                "itself; use RCADMixin and self.regularised_backward(x, y) in its training_step"
            )
        # A compiled module keeps its compiled step in the instance, not in the class.
        self._replaced = {key: value for key, value in vars(pl_module).items() if key == "training_step"}

        def training_step(batch: Any, batch_idx: int) -> dict[str, Any]:
            x, y = self._split(batch)
            losses = self.step.losses(pl_module, x, y, number=batches_seen(pl_module))
            if self.prefix is not None:
                pl_module.log_dict(self.step.parts(losses, self.prefix), on_step=True, on_epoch=False)
            return {"loss": losses.total, "output": losses.output, "target": y}

        pl_module.training_step = training_step

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._replaced is not None:
            del pl_module.training_step
            vars(pl_module).update(self._replaced)
            self._replaced = None

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.teardown(trainer, pl_module, "fit")

    def state_dict(self) -> dict[str, Any]:
        generator = self.step.generator
        return {} if generator is None else {"generator": generator.get_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.step.generator is not None and "generator" in state_dict:
            self.step.generator.set_state(state_dict["generator"].cpu())

    def _split(self, batch: Any) -> tuple[Any, Any]:
        if self.keys is not None:
            try:
                return batch[self.keys[0]], batch[self.keys[1]]
            except (KeyError, IndexError, TypeError):
                found = ", ".join(map(str, batch)) if isinstance(batch, Mapping) else type(batch).__name__
                raise InputError(
                    f"expected a batch with {self.keys[0]!r} and {self.keys[1]!r}, but got {found}"
                ) from None
        if isinstance(batch, Mapping):
            raise InputError(
                f"expected keys=(input, target) for batches that are mappings of {', '.join(map(str, batch))}"
            )
        if not isinstance(batch, Sequence) or len(batch) != 2:
            found = f"a {type(batch).__name__} of {len(batch)}" if isinstance(batch, Sequence) else type(batch).__name__
            raise InputError(
                f"expected batches (x, y), but got {found}; pass keys=(input, target), such as (0, 2) for the first "
                "and the third, or use RCADMixin"
            )
        return batch[0], batch[1]
