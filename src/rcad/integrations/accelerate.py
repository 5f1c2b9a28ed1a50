"""Accelerate: the one call that replaces `accelerator.backward(loss)` in a loop of one's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rcad.errors import InputError, MissingExtraError
from rcad.integrations.resolve import MethodLike
from rcad.integrations.step import Step
from rcad.loss.likelihoods import Likelihood
from rcad.loss.model_calls import Inputs, Model
from rcad.loss.perturbations import Channels
from rcad.loss.terms import Losses

try:
    from accelerate import Accelerator
    from accelerate.utils import DistributedType
except ModuleNotFoundError:
    raise MissingExtraError("accelerate", "hf") from None

SHARDED = ("DEEPSPEED", "FSDP", "MEGATRON_LM", "TP")


class AccelerateCriterion:
    """A method as a loss for an Accelerate loop, with the accelerator's accumulation, scaling, autocast, DDP and FSDP2.

    One for each model: it counts the optimizer steps, at some of which terms with `every=` rest.

    Args:
        method: text such as "rcad(alpha=0.5, lam=0.1)", a Method, or a Criterion.
        classes: their number, for methods that mix labels.
        likelihood: what the output means unless the method says so; default Categorical().
        mean, std: by which images were normalised, so that alpha stays in pixels.
        generator: the source of augmentations and random steps; default torch's global one.
        options: of `Criterion`: input_key, mask_key, units, checks, output.

    Example:
        >>> criterion = AccelerateCriterion(accelerator, "rcad(alpha=0.5, lam=0.1)")  # doctest: +SKIP
        >>> with accelerator.accumulate(model):  # doctest: +SKIP
        ...     criterion.backward(model, x, y)  # in place of accelerator.backward(cross_entropy(model(x), y))
        ...     optimizer.step()
        ...     optimizer.zero_grad()
    """

    def __init__(
        self,
        accelerator: Accelerator,
        method: MethodLike,
        *,
        classes: int | None = None,
        likelihood: Likelihood | None = None,
        mean: Channels | None = None,
        std: Channels | None = None,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> None:
        check_strategy(accelerator)
        self.accelerator = accelerator
        options |= {"likelihood": likelihood, "mean": mean, "std": std}
        self.step = Step(method, classes=classes, generator=generator, **options)
        self.steps = 0

    def backward(self, model: Model, x: Inputs, y: Tensor, **options: Any) -> Losses:
        """Adds the gradients of this batch's share of the loss and returns the detached losses, not divided.

        `every=` counts optimizer steps, so that all batches of an accumulation agree. Options as in
        `Objective.forward`.
        """
        check_compiled(model)
        options = {"step": self.steps, "accumulate": self.accelerator.gradient_accumulation_steps, **options}
        losses = self.step._backward(model, x, y, self.accelerator.scaler, **options)
        self.steps += bool(self.accelerator.sync_gradients)
        return losses

    def state_dict(self) -> dict[str, Any]:
        """For `accelerator.register_for_checkpointing`: steps, a measured alpha, and `generator`'s state."""
        return {"steps": self.steps, **self.step.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = int(state["steps"])
        self.step.load_state_dict(state)


def check_strategy(accelerator: Accelerator) -> None:
    """Sharded models are refused but for FSDP2: elsewhere the extra pass would gather parameters out of turn."""
    if not hasattr(accelerator, "distributed_type"):
        raise InputError(f"expected the accelerator before the method, but got {type(accelerator).__name__}")
    kind = accelerator.distributed_type
    if kind.name in SHARDED and not getattr(accelerator, "is_fsdp2", False):
        name = "FSDP of version 1" if kind == DistributedType.FSDP else kind.value
        raise InputError(
            f"expected one process, DistributedDataParallel or FSDP2 (fsdp_version=2), but got {name}; "
            "choose one of these"
        )


def check_compiled(model: Model) -> None:
    """A compiled wrapper hides DistributedDataParallel, and the extra pass must go around that."""
    inside = getattr(model, "_orig_mod", None)
    if isinstance(inside, nn.parallel.DistributedDataParallel):
        raise InputError(
            "expected the model to be compiled before DistributedDataParallel wraps it, but got the reverse"
        )
