"""The objective: a sum of terms, each a measure of the model at x or at x'. The readable twin of `fused`.

Mistakes that show in the data are looked for: wrong values raise, suspicious ones warn once per model. Reading values
makes a GPU wait, so there it happens on a model's first batch only; on the CPU on every batch. Inside torch.compile and
graph capture nothing is read.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import product
from types import FunctionType
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from rcad.errors import InputError, one_of
from rcad.loss.augmentations import Source
from rcad.loss.likelihoods import Categorical, Gaussian, Likelihood
from rcad.loss.model_calls import (
    MASK_KEY,
    Inputs,
    Model,
    Output,
    View,
    bind,
    check_view,
    frozen_batch_stats,
    keep_passes_whole,
    modules_behind,
    reenters,
)
from rcad.loss.perturbations import OfInputs, reaching_gradient
from rcad.loss.terms import Look, Losses, Plan, Term, active, check_terms, plan_passes

ERM = (Term("nll"),)
Units = Literal["pixels", "input"]
Checks = Literal["always", "first"]


@dataclass(frozen=True)
class Loss:
    """What is to be minimised, without the model.

    Args:
        likelihood, terms: what the model's output means, and what is summed.
        input_key, mask_key: for inputs that are mappings: the tensor to perturb, and the mask of its real positions.
            By default the only floating-point entry, and "attention_mask" where there is one.
        units: "pixels" warns when images look normalised while alpha is a distance in [0, 1] pixels; "input" does not.
        checks: read the values of every batch on the CPU ("always"), or of a model's first batch only ("first"), as
            is always so on a GPU.
        output: which part of what the model returns is its prediction, where it returns several tensors of different
            shapes, e.g. features and logits: an index, a key or attribute, or a function. See `logits_of`.
    """

    likelihood: Likelihood = Categorical()
    terms: tuple[Term, ...] = ERM
    input_key: str | None = None
    mask_key: str | None = None
    units: Units = "pixels"
    checks: Checks = "always"
    output: Output | None = None
    periods: tuple[int, ...] = field(init=False, repr=False, compare=False)
    plans: dict[tuple[bool, ...], Plan] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", check_terms(self.terms))
        one_of("units", self.units, ("pixels", "input"))
        one_of("checks", self.checks, ("always", "first"))
        if isinstance(self.likelihood, type) or not isinstance(self.likelihood, Likelihood):
            raise InputError(f"expected a likelihood such as Categorical(), but got {self.likelihood!r}")
        object.__setattr__(self, "periods", tuple(sorted({term.every for term in self.terms} - {1})))
        plans = {}
        for due in product((False, True), repeat=len(self.periods)):
            over = [period for period, is_over in zip(self.periods, due, strict=True) if is_over]
            plans[due] = plan_passes(self.likelihood, active(self.terms, math.lcm(*over)))
        object.__setattr__(self, "plans", plans)

    def plan(self, step: int) -> Plan:
        """The passes of this step, derived when the loss was made."""
        return self.plans[tuple(step % period == 0 for period in self.periods)]

    def views(
        self,
        model: Model,
        plan: Plan,
        x: Inputs,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        raw: Inputs | None = None,
        raw_target: Tensor | None = None,
    ) -> list[View]:
        """The views that the plan looks at, checked, in its order."""
        views: list[View] = []
        for look in plan.looks:
            inputs, labels = x, target
            if look.view == "raw":
                inputs, labels = x if raw is None else raw, target if raw_target is None else raw_target
            forward, perturbable, mask = bind(model, inputs, self.input_key, self.mask_key, self.output)
            view = View(forward, perturbable, labels, mask, weight, check_always=self.checks == "always")
            check_view(view, one_pass=plan.one_pass)
            check_input(view, look.terms, self.units)
            views.append(view)
        return views


@dataclass
class StepCounter:
    """Counts the calls, where terms rest on some of them."""

    value: int = 0

    def next(self, step: int | None) -> int:
        """The step given, else how many calls with gradients came before this one."""
        if step is not None:
            return step
        self.value += torch.is_grad_enabled()  # a validation is no step
        return self.value - torch.is_grad_enabled()


def evaluate(likelihood: Likelihood, plan: Plan, views: Sequence[View], *, generator: Source | None = None) -> Losses:
    """The weighted sum of the terms over the views, with the graph to run backward."""
    total: Tensor | None = None
    parts: dict[str, Tensor] = {}
    output: Tensor | None = None
    for look, view in zip(plan.looks, views, strict=True):
        clean, values = _evaluate_view(likelihood, look, view, generator, last=plan.one_pass)
        output = clean if output is None else output
        for term, value in zip(look.terms, values, strict=True):
            parts[term.name] = value.detach()
            total = term.weight * value if total is None else total + term.weight * value
    assert total is not None
    return Losses(total, parts, None if output is None else output.detach())


def _evaluate_view(
    likelihood: Likelihood, look: Look, view: View, generator: Source | None, *, last: bool
) -> tuple[Tensor | None, list[Tensor]]:
    """The clean output, and each term's mean in the order given."""
    clean, directions = bool(look.clean), look.directions
    output: Tensor | None = None
    reentrant = False
    gradients: list[Tensor] = []
    if clean or directions:
        # One forward serves the clean terms and every direction; it advances BatchNorm only if a term is there.
        x = view.x if view.x.requires_grad or not directions else view.x.detach().requires_grad_(True)
        advance = nullcontext() if clean else frozen_batch_stats(view.forward)
        follows = clean and torch.is_grad_enabled()
        with advance, torch.enable_grad() if directions else nullcontext():
            if directions and follows:
                keep_passes_whole()
            output = view.forward(x, last=last)
            check_output(view, likelihood, output)
            reentrant = x.requires_grad and reenters(view.forward, output)
            for number, loss in enumerate(directions, 1):
                value = loss.nll(output, view.target).sum()
                gradients.append(reaching_gradient(value, x, retain_graph=follows or number < len(directions)))
                check_gradient(view, gradients[-1])
    values = []
    for term, source in zip(look.terms, look.source, strict=True):
        if term.where is None:
            assert output is not None
            values.append(term.mean(likelihood, output, view.target, view.weight))
            continue
        gradient = None if source is None else gradients[source]
        x_adv = perturbed(term, likelihood, view, gradient, generator, reentrant=reentrant)
        with frozen_batch_stats(view.forward) if clean else nullcontext():
            moved = view.forward.inner()(x_adv)
        if output is None:
            check_output(view, likelihood, moved)
        clean = True  # BatchNorm has seen this view once
        values.append(term.mean(likelihood, moved, view.target, view.weight))
    return output, values


def perturbed(
    term: Term, likelihood: Likelihood, view: View, gradient: Tensor | None, generator: Source | None, reentrant: bool
) -> Tensor:
    """x' for a term; it needs a gradient itself where the model's checkpoints are `reentrant`."""
    assert term.where is not None
    x_adv = term.where(
        view.forward.inner(), view.x, view.target, likelihood, mask=view.mask, generator=generator, gradient=gradient
    )
    return x_adv.detach().requires_grad_(True) if reentrant else x_adv


def nothing_to_train(model: object) -> InputError:
    """Why a loss has no gradient: nothing in the model learns, or its output does not show it."""
    if isinstance(model, nn.Module) and any(parameter.requires_grad for parameter in model.parameters()):
        return InputError(
            "expected an output that depends on the parameters that require a gradient, but it does not depend on any "
            "of them; is it detached?"
        )
    return InputError("expected parameters that require a gradient, but the model has none; unfreeze some of them")


_events: WeakKeyDictionary[nn.Module, set[str]] = WeakKeyDictionary()  # what was read or warned of already, by model


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
    modules = modules_behind(view.forward)
    if not modules:
        return True
    events = _events.setdefault(modules[0], set())
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
    weight, mask, given = view.weight, view.mask, view.forward.others.get(MASK_KEY)
    if weight is not None and not bool(((weight >= 0) & (weight < math.inf)).all()):
        raise InputError(f"expected finite sample weights >= 0, but got {weight.min():.4g} to {weight.max():.4g}")
    low, high = (value.item() for value in view.x.detach().aminmax())
    if not (low > -float("inf") and high < float("inf")):
        raise InputError("expected finite inputs, but x holds NaN or inf")
    moves = [term.where for term in terms if term.where is not None]
    if moves and mask is not None and not bool(((mask == 0) | (mask == 1)).all()):
        raise InputError(f"expected a mask of 0 and 1, 1 for the real positions, but got {mask.min()} to {mask.max()}")
    if moves and mask is None and isinstance(given, Tensor) and view.x.ndim <= 3:
        fits = f"the {MASK_KEY} of shape {tuple(given.shape)} does not say which positions of {tuple(view.x.shape)} are"
        _warn_once(view, "mask", f"{fits} real, so all of them move; give one number for each position, (B, T)")
    image = view.x.ndim == 4 and view.x.shape[1] in (1, 3, 4)
    moved = [move for move in moves if getattr(move, "std", None) is None]
    own = [isinstance(getattr(move, "alpha", 0), OfInputs) and getattr(move, "bounds", 0) is None for move in moved]
    in_pixels = units == "pixels" and image and not all(own)
    if in_pixels and (low < -0.1 or high > 1.1):
        scaled = low >= 0 and high > 2
        remedy = f"divide them by {full_scale(high)}" if scaled else "pass std= (the numbers they were divided by)"
        _warn_once(
            view,
            "normalised",
            f"the images span [{low:.2f}, {high:.2f}] and look {'scaled' if scaled else 'normalised'}, but alpha is a "
            f"distance in [0, 1] pixels; {remedy}, or units='input' if alpha is meant in their own units",
        )
    modules, model = modules_behind(view.forward), view.forward.model
    if not modules and moves and not isinstance(model, FunctionType):
        found = f"no layers were found behind this {type(model).__name__}"
        _warn_once(view, "blind", f"{found}, so BatchNorm's averages also advance at x'; pass the module itself")
    if not modules or not torch.is_grad_enabled():
        return
    needs = [parameter.requires_grad for module in modules for parameter in module.parameters()]
    if needs and not any(needs):
        _warn_once(view, "frozen", "no parameter of the model requires a gradient, so nothing will be trained")
    if moves and not any(module.training for module in modules):
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
        hard = not view.target.is_floating_point()
        both_fit = output.ndim > 2 and output.shape[1] == output.shape[-1] and view.target.shape == output.shape[:-1]
        if hard and both_fit and likelihood.class_dim == 1:
            _warn_once(
                view,
                "class_dim",
                f"the logits have the shape {tuple(output.shape)}, and dimension 1 was taken for the classes; where "
                f"the last holds them, use Categorical(class_dim=-1), else class_dim={1 - output.ndim} says that 1 is "
                "meant",
            )
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


def check_gradient(view: View, gradient: Tensor) -> None:
    """A gradient of zero for every example means that nothing can be perturbed: warns."""
    if may_read(view, "gradient") and not bool(gradient.any()):
        _warn_once(
            view,
            "zero gradient",
            "the loss has a zero gradient with respect to every input, so x' = x; the model ignores this input, "
            "detaches it, or is saturated",
        )


class Objective(nn.Module):
    """A model and its loss as one module: what DDP, torch.compile and autocast wrap. Arguments as in `Criterion`."""

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood = Categorical(),
        terms: Sequence[Term] = ERM,
        *,
        input_key: str | None = None,
        mask_key: str | None = None,
        units: Units = "pixels",
        checks: Checks = "always",
        output: Output | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = Loss(likelihood, tuple(terms), input_key, mask_key, units, checks, output)
        for term in self.loss.terms:
            if isinstance(getattr(term.where, "alpha", None), str):
                raise InputError(
                    "expected a number for alpha in an Objective, which may be compiled whole, but got 'auto'; use "
                    "rcad.suggest_alpha(x, y), or a Criterion, which measures it"
                )
        if not all(plan.one_pass for plan in self.loss.plans.values()):
            keep_passes_whole()
        self.counter = StepCounter()

    def forward(
        self,
        x: Inputs,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        raw: Inputs | None = None,
        raw_target: Tensor | None = None,
        generator: Source | None = None,
        step: int | None = None,
    ) -> Losses:
        """The losses of one batch.

        Args:
            x: the (augmented) batch, a tensor or a mapping of tensors.
            target: labels, probabilities or regression targets.
            weight: what each example counts, (B,); used as it is, so weights of mean 1 keep the loss's scale.
            raw, raw_target: the same examples before augmentation, for terms with view="raw"; default x, target.
            generator: the source of randomness of the perturbations that draw.
            step: which step this is, for terms with every > 1; default: the calls are counted.
        """
        plan = self.loss.plan(self.counter.next(step) if self.loss.periods else 0)
        views = self.loss.views(self.model, plan, x, target, weight=weight, raw=raw, raw_target=raw_target)
        return evaluate(self.loss.likelihood, plan, views, generator=generator)
