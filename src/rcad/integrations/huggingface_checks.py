"""Refusals: settings of a transformers Trainer, its model or its batches that would train another loss."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from rcad.errors import InputError
from rcad.integrations.accelerate import check_strategy
from rcad.integrations.resolve import Resolved
from rcad.loss.likelihoods import Categorical, Likelihood
from rcad.loss.model_calls import evaluating, logits_of

__all__: list[str] = []  # for huggingface.py alone

EMBEDDED = "inputs_embeds"
MULTI_LABEL = "multi_label_classification"
SINGLE_LABEL = "single_label_classification"
CLASS_WEIGHTS = "for class weights pass method=rcad.RCAD(..., likelihood=rcad.Categorical(weight=...))"


def check_behind(kind: type, mixin: type) -> None:
    """Raises if a base class after the mixin has a compute_loss, which would be used in evaluation alone."""
    behind = kind.__mro__[kind.__mro__.index(mixin) + 1 :]
    owner: Any = next((base for base in behind if "compute_loss" in vars(base)), transformers.Trainer)
    if owner.compute_loss is not transformers.Trainer.compute_loss:
        raise InputError(
            f"expected the method to be the loss, but got {owner.__name__}.compute_loss as well, which would count in "
            f"evaluation only; leave that out; {CLASS_WEIGHTS}"
        )


def not_reached(kind: type, name: str) -> InputError:
    """The error for a step that never called the method's loss."""
    return InputError(
        f"expected {kind.__name__}.{name} to call super().{name}, where the method's loss is, but it did not; "
        f"call it and add to what it returns, or leave yours out; {CLASS_WEIGHTS}"
    )


def check_trainer(trainer: Any, resolved: Resolved) -> None:
    """Raises for settings of the Trainer under which another loss would be trained."""
    args, model = trainer.args, trainer.model
    if not hasattr(transformers.Trainer, "loss_is_scaled_for_ga"):
        raise InputError(
            "expected transformers 5.19 or newer, whose Trainer leaves accumulation to compute_loss, "
            f"but got {transformers.__version__}; upgrade it"
        )
    check_strategy(trainer.accelerator)
    if getattr(args, "label_smoothing_factor", 0):
        eps = args.label_smoothing_factor
        raise InputError(
            f"expected the method to smooth labels, but got label_smoothing_factor={eps:g}; "
            f'set it to 0 and use method="label_smoothing(eps={eps:g}) + {resolved.name}"'
        )
    if trainer.compute_loss_func is not None:
        raise InputError("expected the method to be the loss, but got compute_loss_func as well; leave that out")
    if args.n_gpu > 1:
        raise InputError(
            f"expected one GPU per process, but got {args.n_gpu}; start with torchrun or accelerate launch"
        )
    optimizer = getattr(args.optim, "value", args.optim)
    if "lomo" in str(optimizer):
        raise InputError(f"expected an optimizer that steps after the backward, but got {optimizer}; choose another")
    if list(trainer.label_names) != ["labels"]:
        raise InputError(f"expected labels under 'labels' alone, but got {', '.join(trainer.label_names)}")
    _check_model(model, resolved.likelihood)


def _check_model(model: nn.Module, likelihood: Likelihood) -> None:
    name = type(model).__name__
    parameters = inspect.signature(model.forward).parameters
    if "input_ids" in parameters and "inputs_embeds" not in parameters:
        raise InputError(f"expected a model that takes inputs_embeds, which are to move, but {name}.forward does not")
    if not isinstance(likelihood, Categorical):
        return
    problem = problem_type(model)
    if problem == "regression":
        raise InputError(
            'expected a Gaussian likelihood for problem_type="regression", but got Categorical; give the model two '
            'outputs per target (num_labels=2: a mean and a log-variance) and use method="gaussian + rcad(...)"'
        )
    if problem == MULTI_LABEL:
        raise InputError(
            f'expected a Bernoulli likelihood for problem_type="{MULTI_LABEL}", but got Categorical; '
            "pass likelihood=rcad.Bernoulli() to the Criterion"
        )
    if getattr(getattr(model, "config", None), "num_labels", 2) == 1:
        raise InputError(
            f"expected at least 2 labels, but {name} has num_labels=1; for regression use num_labels=2 (a mean and a "
            'log-variance) and method="gaussian + rcad(...)", for yes or no "bernoulli + rcad(...)"'
        )


def problem_type(model: nn.Module) -> str | None:
    """The model's config.problem_type: what transformers takes the labels for."""
    return getattr(getattr(model, "config", None), "problem_type", None)


def check_labels(model: nn.Module, labels: Any, likelihood: Likelihood) -> None:
    """Raises for floating-point labels without a problem_type: transformers would take them for yes/no labels."""
    has_type = hasattr(getattr(model, "config", None), "problem_type")
    floating = isinstance(labels, Tensor) and labels.is_floating_point()
    if has_type and floating and isinstance(likelihood, Categorical) and problem_type(model) != SINGLE_LABEL:
        raise InputError(
            f"expected integer labels, or a config.problem_type that says what {labels.dtype} labels are, but got "
            f'{problem_type(model)}; set it to "{MULTI_LABEL}" for yes/no labels, to "{SINGLE_LABEL}" for '
            'probabilities of the classes, or use method="gaussian + rcad(...)" for regression targets'
        )


def check_pixels(pixels: Any) -> None:
    if isinstance(pixels, Tensor) and not pixels.is_floating_point():
        raise InputError(
            f"expected floating-point pixel_values, but got {pixels.dtype}; divide them by 255, or let the processor "
            "rescale them"
        )


@contextmanager
def encoder_named(model: nn.Module) -> Iterator[None]:
    """Names the remedy where an audio feature encoder sets requires_grad on an input that already has a gradient."""
    try:
        yield
    except RuntimeError as error:
        if "requires_grad flags of leaf" not in str(error):
            raise
        raise InputError(
            f"expected an input that may have a gradient, but {type(model).__name__} sets requires_grad on it while it "
            "trains its feature encoder; call model.freeze_feature_encoder() first"
        ) from None


@torch.no_grad()
def check_embeddings(model: nn.Module, inputs: dict[str, Any]) -> None:
    """Raises if tokens and their embeddings get different logits, as in models that look for padding in the ids."""
    embedded = {key: value for key, value in inputs.items() if key != "input_ids"}
    with evaluating(model):
        # The whole model first: a sharded one must be entered there before its table may be used alone.
        expected = logits_of(model(**inputs)).float()
        embedded[EMBEDDED] = model.get_input_embeddings()(inputs["input_ids"])  # type: ignore[operator]
        logits = logits_of(model(**embedded)).float()
    gap = (expected - logits).abs().max().item()
    if gap > 1e-2 * expected.abs().max().item() + 1e-3:
        raise InputError(
            f"expected {type(model).__name__} to give equal logits for input_ids and for their inputs_embeds, but they "
            f"differ by {gap:.3g}: it reads padding or positions from the ids; use batches without padding, or pad on "
            "the left and pass position_ids"
        )
