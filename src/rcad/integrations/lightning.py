"""RCAD and its rivals in Lightning: a mixin and a callback for the Trainer, a criterion for Fabric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rcad.errors import InputError, MissingExtraError
from rcad.integrations.resolve import MethodLike
from rcad.integrations.step import Step
from rcad.loss.model_calls import Inputs, Model
from rcad.loss.terms import Losses
from rcad.train.own_loop import CapturedStep, capture

try:
    from lightning import Callback, Fabric, LightningModule, Trainer
    from lightning.fabric import is_wrapped
    from lightning.fabric.plugins import MixedPrecision
    from lightning.pytorch.plugins import MixedPrecision as TrainerMixedPrecision
except ModuleNotFoundError:
    raise MissingExtraError("lightning", "lightning") from None

__all__ = ["FabricCriterion", "RCADCallback", "RCADMixin"]


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
        """Which method to train with; the arguments are those of `RCADCallback`. Call it in `__init__`."""
        self._rcad = Step(method, classes=classes, generator=generator, **options)
        self._rcad_prefix = log_prefix(log)

    def regularised_loss(self, x: Inputs, y: Tensor, *, model: Model | None = None) -> Tensor:
        """The method's loss, for automatic optimisation: return it from `training_step`.

        2 forwards and 3 backwards for RCAD, since Lightning runs the loss backward when the step is over.
        """
        network: Any = self if model is None else model
        losses = self._step().losses(network, x, y, number=batches_seen(self))
        self._log(losses)
        return losses.total

    def regularised_backward(self, x: Inputs, y: Tensor, *, accumulate: int = 1, model: Model | None = None) -> Losses:
        """The method's gradients, for manual optimisation: in place of `self.manual_backward(loss)`.

        2 forwards and 2 backwards for RCAD, each backward through `manual_backward`. The gradients are divided by
        `accumulate`, the batches that are summed before the optimizer steps.
        """
        network: Any = self if model is None else model
        number = batches_seen(self)
        losses = self._step().backward(network, x, y, self.manual_backward, accumulate=accumulate, number=number)
        self._log(losses)
        return losses

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """A measured alpha goes into the checkpoint; a module with this hook of its own calls super()."""
        super().on_save_checkpoint(checkpoint)  # type: ignore[misc]
        if self._rcad is not None:
            checkpoint["rcad"] = self._rcad.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)  # type: ignore[misc]
        if self._rcad is not None:
            self._rcad.load_state_dict(checkpoint.get("rcad", {}))

    def _step(self) -> Step:
        if self._rcad is None:
            raise InputError('expected self.use_method("rcad(alpha=..., lam=...)") in __init__, but it was not called')
        return self._rcad

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


class RCADCallback(Callback):  # type: ignore[misc]
    """Trains a module with a method's loss in place of its own `training_step`, which is not called during `fit`.

    The module needs automatic optimisation and a `forward(x)` that gives the logits; batches are (x, y), or mappings
    with the two keys given. Optimizers, schedules, validation and everything else stay the module's. The step returns
    the loss, the clean "output" and the "target", for callbacks that measure in `on_train_batch_end`.

    With captured=True the whole step is one of `rcad.capture`: 2 forwards and 2 backwards for RCAD, scaling, the
    Trainer's clipping, the optimizer and its schedules, on a GPU in a single CUDA graph, on a CPU as they stand. Hooks
    of the module and of callbacks around backward and optimizer are then not called. For one device, one optimizer, and
    no accumulation.

    Args:
        method: text such as "mixup + rcad(alpha=1.0, lam=0.1)", a Method, or a Criterion.
        keys: where input and target stand in a batch: ("image", "label") in a mapping, (0, 2) in batches of three;
            default the two of a pair. What else a batch holds is not used.
        classes: the number of classes, for methods that mix integer labels.
        generator: the source of augmentations and random directions; default torch's global one.
        log: the parts of the loss are logged at each step under this name, "rcad/nll" and so on, and the mean loss of
            an epoch as "train_loss", for EarlyStopping and ModelCheckpoint; None logs nothing.
        captured: take the whole step as one, see above.
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
        captured: bool = False,
        **options: Any,
    ) -> None:
        if keys is not None and (not isinstance(keys, Sequence) or isinstance(keys, str) or len(keys) != 2):
            raise InputError(f"expected keys as (input, target), but got {keys!r}")
        self.step = Step(method, classes=classes, generator=generator, **options)
        self.keys, self.prefix, self.captured = keys, log_prefix(log), captured
        self._replaced: dict[str, Any] | None = None
        self._taken: CapturedStep | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit" or self._replaced is not None:
            return
        if not pl_module.automatic_optimization:
            raise InputError(
                f"expected a module with automatic optimisation, but {type(pl_module).__name__} steps its optimizer "
                "itself; use RCADMixin and self.regularised_backward(x, y) in its training_step"
            )
        if self.captured:
            check_capture(trainer)
        # A compiled module keeps its compiled step in the instance, not in the class.
        self._replaced = {key: value for key, value in vars(pl_module).items() if key == "training_step"}

        def training_step(batch: Any, batch_idx: int) -> dict[str, Any]:
            x, y = self._split(batch)
            if self.captured:
                losses = self._whole_step(trainer, pl_module, x, y)
                advance(trainer, "step", batch_idx)
            else:
                losses = self.step.losses(pl_module, x, y, number=batches_seen(pl_module))
            if self.prefix is not None:
                pl_module.log_dict(self.step.parts(losses, self.prefix), on_step=True, on_epoch=False)
                # As the replaced step would have logged it: what EarlyStopping and ModelCheckpoint are told to watch.
                mean = {"on_step": False, "on_epoch": True, "batch_size": len(y), "sync_dist": True}
                pl_module.log("train_loss", losses.total.detach(), **mean)
            return {"loss": losses.total, "output": losses.output, "target": y}

        pl_module.training_step = training_step

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._replaced is not None:
            del pl_module.training_step
            vars(pl_module).update(self._replaced)
            self._replaced = self._taken = None
            pl_module.automatic_optimization = True

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.captured:  # not earlier: schedules are read as for any other module
            pl_module.automatic_optimization = False
            agree_on_steps(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.captured:
            advance(trainer, "epoch", trainer.current_epoch)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.teardown(trainer, pl_module, "fit")

    def state_dict(self) -> dict[str, Any]:
        return self.step.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.step.load_state_dict(state_dict)

    def _whole_step(self, trainer: Trainer, module: LightningModule, x: Any, y: Any) -> Losses:
        optimizer: Any = module.optimizers()
        if isinstance(optimizer, list):
            raise InputError(f"expected one optimizer with captured=True, but the module has {len(optimizer)}")
        if self._taken is None:
            precision: Any = trainer.precision_plugin
            mixed = isinstance(precision, MixedPrecision | TrainerMixedPrecision)
            self._taken = capture(
                module,
                optimizer.optimizer,
                self.step.resolved.criterion,
                clip=trainer.gradient_clip_val or None,
                autocast=torch.bfloat16 if mixed and precision.precision == "bf16-mixed" else None,
                scaler=precision.scaler if mixed else None,
                generator=self.step.generator,
            )
        optimizer._on_before_step()  # the Trainer counts its steps there
        losses = self.step.captured(self._taken, x, y, number=batches_seen(module))
        optimizer._on_after_step()
        agree_on_steps(trainer)
        return losses

    def _split(self, batch: Any) -> tuple[Any, Any]:
        form = ", ".join(map(str, batch)) if isinstance(batch, Mapping) else type(batch).__name__
        if self.keys is None:
            if isinstance(batch, Mapping):
                raise InputError(f"expected keys=(input, target) for batches that are mappings of {form}")
            if not isinstance(batch, Sequence) or len(batch) != 2:
                form = f"a {form} of {len(batch)}" if isinstance(batch, Sequence) else form
                raise InputError(
                    f"expected batches (x, y), but got {form}; pass keys=(input, target), such as (0, 2) for the first "
                    "and the third, or use RCADMixin"
                )
        first, second = self.keys or (0, 1)
        try:
            return batch[first], batch[second]
        except (KeyError, IndexError, TypeError):
            raise InputError(f"expected a batch with {first!r} and {second!r}, but got {form}") from None


def check_capture(trainer: Trainer) -> None:
    """Raises for settings of the Trainer that captured=True does not support."""
    for name in ("accumulate_grad_batches", "world_size"):
        if (value := getattr(trainer, name)) != 1:
            raise InputError(f"expected {name}=1 with captured=True, but got {value}; leave captured out")
    how = getattr(trainer.gradient_clip_algorithm, "value", trainer.gradient_clip_algorithm)
    if trainer.gradient_clip_val and how not in (None, "norm"):
        raise InputError(f'expected gradient_clip_algorithm="norm" with captured=True, but got {how!r}')


def agree_on_steps(trainer: Trainer) -> None:
    """Sets the Trainer's two counts of steps, manual and automatic, to the same number, as checkpoints need it."""
    loop = trainer.fit_loop.epoch_loop
    counts = (
        loop.manual_optimization.optim_step_progress.total,
        loop.automatic_optimization.optim_progress.optimizer.step.total,
    )
    done = max(count.completed for count in counts)
    for count in counts:
        count.ready = count.completed = done


def advance(trainer: Trainer, interval: str, done: int) -> None:
    """Steps the schedules of this interval, which the Trainer does not do in manual optimisation."""
    for schedule in trainer.lr_scheduler_configs:
        if schedule.reduce_on_plateau:
            raise InputError(
                "expected schedules by steps or epochs with captured=True, but got one that waits for a metric; leave "
                "captured out"
            )
        if schedule.interval == interval and (done + 1) % schedule.frequency == 0:
            schedule.scheduler.step()


class FabricCriterion:
    """A method's loss for a model and a loop in Fabric, under its precision and its strategy.

    In mixed precision Fabric's wrapper rounds x before the model sees it, and forbids any backward but its own through
    what it returns. The passes therefore go to the module inside, under the same autocast: x, its gradient and x'
    stay in fp32. Under DDP the clean pass goes through the data-parallel wrapper and the others do not.

    Args:
        fabric: the Fabric that set the model up.
        method, classes, generator, options: as in `RCADCallback`.

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
        inside, x = inner(model), self._converted(x)
        with self.fabric.autocast():
            return self.step.losses(inside, x, y, number=step)

    def backward(
        self, model: nn.Module, x: Inputs, y: Tensor, *, accumulate: int = 1, step: int | None = None
    ) -> Losses:
        """Gradients in the fewest passes, each through `fabric.backward`; returns the detached losses.

        Of `accumulate` batches, summed before the optimizer steps, all but the last belong under
        `fabric.no_backward_sync(model)`.
        """
        inside, x = inner(model), self._converted(x)
        with self.fabric.autocast():
            return self.step.backward(inside, x, y, self.fabric.backward, accumulate=accumulate, number=step)

    def state_dict(self) -> dict[str, Any]:
        """For `fabric.save(path, {"model": model, "criterion": criterion})`: a measured alpha, the calls counted."""
        return self.step.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step.load_state_dict(state)

    def _converted(self, x: Inputs) -> Any:
        """x in the dtype of the weights; under autocast it stays as it is."""
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
