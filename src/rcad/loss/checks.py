"""Mistakes that show in the data: wrong values raise, suspicious ones warn once per model.

Reading values makes a GPU wait, so there it happens on a model's first batch only; on the CPU on every batch.
Inside torch.compile and graph capture nothing is read.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from rcad.errors import InputError
from rcad.loss.likelihoods import Categorical, Gaussian, Likelihood
from rcad.loss.model_calls import View, as_module
from rcad.loss.terms import Term

NOTHING_TO_TRAIN = "expected parameters that require a gradient, but the model has none; unfreeze some of them"

_events: WeakKeyDictionary[nn.Module, set[str]] = WeakKeyDictionary()
"""What was read or warned of already, by model."""


def may_read(view: View, part: str) -> bool:
    """Whether values may be read now: on the CPU always or, as elsewhere, once per model and part."""
    if torch.compiler.is_compiling():
        return False
    if view.x.device.type == "cpu" and view.check_always:
        return True
    if view.x.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return False
    return _first_time(view, f"read {part}")


def _first_time(view: View, event: str) -> bool:
    module = as_module(view.forward)
    if module is None:
        return True
    events = _events.setdefault(module, set())
    return not (event in events or events.add(event))  # type: ignore[func-returns-value]


def full_scale(high: float) -> str:
    """What pixels up to `high` were probably counted to: 16 of digits, 255 of 8 bits, 65535 of 16."""
    return next((str(scale) for scale in (16, 255, 65535) if high <= scale), "their largest value")


def _warn_once(view: View, kind: str, message: str) -> None:
    if _first_time(view, kind):
        warnings.warn(message, UserWarning, stacklevel=_callers_level())


def _callers_level() -> int:
    """How far up the stack the user's own line is: beyond this package and torch's module machinery."""
    inside = (os.path.dirname(os.path.dirname(__file__)), os.path.dirname(torch.__file__))
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        level, frame = level + 1, frame.f_back
    return level


def check_input(view: View, terms: Sequence[Term], units: str) -> None:
    """NaN in x raises; images that look normalised, and a model that is not set up to train, warn."""
    if not may_read(view, "input"):
        return
    if torch.is_inference_mode_enabled() and any(term.where is not None for term in terms):
        raise InputError("expected to be outside torch.inference_mode(), where nothing has a gradient; use no_grad()")
    if view.weight is not None and not bool((view.weight >= 0).all()):
        raise InputError(f"expected sample weights >= 0, but got {view.weight.min().item():.4g}")
    low, high = (value.item() for value in view.x.detach().aminmax())
    if not (low > -float("inf") and high < float("inf")):
        raise InputError("expected finite inputs, but x holds NaN or inf")
    moves = [term.where for term in terms if term.where is not None]
    image = view.x.ndim == 4 and view.x.shape[1] in (1, 3, 4)
    in_pixels = units == "pixels" and image and any(getattr(move, "std", None) is None for move in moves)
    if in_pixels and (low < -0.1 or high > 1.1):
        scaled = low >= 0 and high > 2
        remedy = f"divide them by {full_scale(high)}" if scaled else "pass std= (the numbers they were divided by)"
        _warn_once(
            view,
            "normalised",
            f"the images span [{low:.2f}, {high:.2f}] and look {'scaled' if scaled else 'normalised'}, but alpha is a "
            f"distance in [0, 1] pixels; {remedy}, or units='input' if alpha is meant in their own units",
        )
    module = as_module(view.forward)
    if module is None or not torch.is_grad_enabled():
        return
    needs = [parameter.requires_grad for parameter in module.parameters()]
    if needs and not any(needs):
        _warn_once(view, "frozen", "no parameter of the model requires a gradient, so nothing will be trained")
    if moves and not module.training:
        _warn_once(
            view,
            "eval",
            "the model is in eval mode, where BatchNorm and dropout do not train; call model.train() before the step",
        )


def check_output(view: View, likelihood: Likelihood, output: Tensor) -> None:
    """Shapes and values of output and target against each other; probabilities in place of logits warn."""
    if hasattr(likelihood, "check_shapes"):
        likelihood.check_shapes(output, view.target)
    if not may_read(view, "output"):
        return
    if hasattr(likelihood, "check_values"):
        likelihood.check_values(output, view.target)
    if type(likelihood) is Categorical:  # one of another kind may read something else than logits
        _check_class_dim(view, likelihood, output)
        p = output.detach()
        if bool((p >= 0).all()) and bool(((p.sum(likelihood.class_dim) - 1).abs() < 1e-3).all()):
            _warn_once(
                view,
                "probabilities",
                "the model's outputs look like probabilities, but logits are expected; "
                "remove the softmax at the end of the model",
            )
    if isinstance(likelihood, Gaussian) and isinstance(likelihood.cap, float) and len(view.target) >= 16:
        variance = view.target.float().var().item()
        if variance > 25 * torch.tensor(likelihood.cap).exp().item():
            _warn_once(
                view,
                "scale",
                f"the targets' variance is {variance:.3g}, but the entropy is capped for a variance of "
                f"exp(cap={likelihood.cap:.3g}); standardise the targets: (y - mean) / std of the training set",
            )


def _check_class_dim(view: View, likelihood: Categorical, output: Tensor) -> None:
    """Where classes may be the second or the last dimension, and both fit the labels, says which was taken."""
    hard = not view.target.is_floating_point()
    both_fit = output.ndim > 2 and output.shape[1] == output.shape[-1] and view.target.shape == output.shape[:-1]
    if hard and both_fit and likelihood.class_dim == 1:
        _warn_once(
            view,
            "class_dim",
            f"the logits have the shape {tuple(output.shape)}, and dimension 1 was taken for the classes; where the "
            f"last holds them, use Categorical(class_dim=-1), else class_dim={1 - output.ndim} says that 1 is meant",
        )


def check_gradient(view: View, gradient: Tensor) -> None:
    """A gradient of zero for every example means that nothing can be perturbed: warns."""
    if may_read(view, "gradient") and not bool(gradient.any()):
        _warn_once(
            view,
            "zero gradient",
            "the loss has a zero gradient with respect to every input, so x' = x; the model ignores this input, "
            "detaches it, or is saturated",
        )
