"""From a method in any form to a loss, its augmentations and its batches: the first step of every adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rcad.errors import InputError, one_of, whole
from rcad.loss.augmentations import Augmentation, augment
from rcad.loss.criterion import Criterion
from rcad.loss.likelihoods import Categorical, Gaussian, Likelihood
from rcad.loss.method_rows import AUTO
from rcad.loss.methods import Method, compose, erm, method
from rcad.loss.perturbations import Channels, GradientStep, Perturbation, ProjectedAscent, RandomStep
from rcad.loss.terms import Term

__all__ = ["Batch", "MethodLike", "Resolved", "as_method", "resolve"]

MethodLike = str | Method | Criterion

OPTIONS = ("input_key", "mask_key", "units", "checks", "output")  # of a Criterion


@dataclass(frozen=True)
class Batch:
    """A batch after augmentation: pass it on as `criterion.backward(model, batch.x, batch.target, **batch.views)`."""

    x: Tensor
    target: Tensor
    views: Mapping[str, Any]


@dataclass(frozen=True)
class Resolved:
    """A method ready for a training loop: `augment` comes first, then `criterion`, called with the model.

    mean and std are the numbers by which the images were normalised, None where they are in [0, 1].
    """

    criterion: Criterion
    augment: tuple[Augmentation, ...]
    name: str
    mean: Channels | None = None
    std: Channels | None = None

    @property
    def likelihood(self) -> Likelihood:
        return self.criterion.loss.likelihood

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of the loss, also those whose alpha is yet to be measured."""
        return self.criterion.asked.terms

    @property
    def needs_raw(self) -> bool:
        """Whether a term looks at the images before augmentation."""
        return any(term.view == "raw" for term in self.terms)

    def readable(self, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The parts of a loss for a log; the sign of a negative entropy is turned and it is called entropy."""
        entropies = [term.name for term in self.terms if term.measure == "negative_entropy"]
        called = {name: "entropy" if len(entropies) == 1 else f"entropy_{name}" for name in entropies}
        return {called.get(name, name): -value if name in called else value for name, value in parts.items()}

    def batch(
        self, x: Tensor, target: Tensor, *, classes: int | None = None, generator: torch.Generator | None = None
    ) -> Batch:
        """The batch as the method wants it: augmented in pixel space, with the original beside it where a term asks."""
        if not self.augment:
            return Batch(x, target, {})
        views = {"raw": x, "raw_target": target} if self.needs_raw else {}
        if not isinstance(x, Tensor) or x.ndim != 4:
            form = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise InputError(
                f"expected a tensor of images (B, C, H, W) for the method {self.name!r}, but got {form}; "
                "leave the augmentation out"
            )
        if any(step.slot == "mix" for step in self.augment) and not target.is_floating_point():
            self._check_classes(target, classes)
        pixels = x if self.std is None else x * _channels(self.std, x) + _channels(self.mean or (0.0,), x)
        pixels, target = augment(self.augment, pixels, target, classes=classes, generator=generator)
        x = pixels if self.std is None else (pixels - _channels(self.mean or (0.0,), x)) / _channels(self.std, x)
        return Batch(x, target, views)

    def _check_classes(self, target: Tensor, classes: Any) -> None:
        if classes is None:
            raise InputError(
                f"expected the number of classes, since {self.name!r} mixes integer labels, but got none; "
                "pass classes=K"
            )
        whole("classes", int(classes) if isinstance(classes, np.integer) else classes, minimum=2)
        if target.device.type != "cpu" or not target.numel():  # reading values would make a GPU wait at every step
            return
        low, high = (int(value) for value in target.aminmax())
        if low < 0 or high >= classes:
            wrong = low if low < 0 else high
            raise InputError(f"expected labels from 0 to {classes - 1} with classes={classes}, but got {wrong}")


def resolve(
    given: MethodLike,
    *,
    likelihood: Likelihood | None = None,
    mean: Channels | None = None,
    std: Channels | None = None,
    parameters: Mapping[str, Any] | None = None,
    **options: Any,
) -> Resolved:
    """The loss of a method, its augmentations and its name.

    Args:
        given: text such as "mixup + rcad(alpha=1.0, lam=0.1)", a Method, or a Criterion, which is used as it is.
        likelihood: what the output means unless the method says so itself; default Categorical().
        mean, std: per-channel numbers by which images were normalised, so that alpha stays in pixels.
        parameters: e.g. {"alpha": 0.3}; each goes to the one part of the method that has it, or that leaves it "auto".
            None is left out.
        options: of `Criterion`: input_key, mask_key, units, checks, output.
    """
    if isinstance(given, Criterion):
        if any(value is not None for value in (likelihood, mean, std, *(parameters or {}).values(), *options.values())):
            raise InputError("expected a Criterion to be given by itself, since it holds its settings; leave them out")
        return Resolved(given, (), type(given).__name__)
    value = as_method(given, parameters)
    if value.growth is not None:
        raise InputError(
            f"expected a method that leaves the training set alone, but {value.owner('growth of the training set')!r} "
            "enlarges it between epochs; use `rcad train`, or rcad.FeatureAscent in a loop of your own"
        )
    if mean is not None and std is None:
        raise InputError("expected std beside mean, but got mean alone; pass std=(1,) if the images were not divided")
    chosen = value.likelihood or likelihood or Categorical()
    for term in value.terms:
        if term.likelihood is not None and type(term.likelihood) is not type(chosen):
            raise InputError(f"expected class labels for {term.name!r}, but got the likelihood {chosen!r}")
    if isinstance(chosen, Gaussian):
        value = compose(replace(value, likelihood=chosen))
    steps = () if std is None else (GradientStep, RandomStep, ProjectedAscent)
    terms = tuple(
        replace(term, where=replace(term.where, mean=mean, std=std)) if isinstance(term.where, steps) else term
        for term in value.terms
    )
    options = {key: option for key, option in options.items() if option is not None}
    for key, option in options.items():
        owners = [name for name, values in value.recipe if key in dict(values)]
        if key not in OPTIONS and owners:
            raise InputError(
                f"expected {', '.join(OPTIONS)} beside the method, but got {key}={option!r}; "
                f'write it into the method\'s text: "{owners[-1]}({key}={option})"'
            )
        one_of("an option beside the method", key, OPTIONS)
    criterion = Criterion(chosen, terms, **options, watch=True)
    if isinstance(likelihood, Categorical):  # what it ignores, a method's own likelihoods ignore unless they say more
        default, ignored = Categorical.ignore_index, likelihood.ignore_index
        criterion = reread(
            criterion, lambda own: replace(own, ignore_index=ignored) if own.ignore_index == default else own
        )
    return Resolved(criterion, value.augment, value.name or "erm", mean, std)


def as_method(given: str | Method, parameters: Mapping[str, Any] | None = None) -> Method:
    """A method from its text or itself, with parameters filled in where they belong; None leaves one as it is."""
    if isinstance(given, Method):
        value = given if given.recipe or given != Method() else erm()
    elif isinstance(given, str):
        value = Method.parse(given)
    else:
        raise InputError(
            'expected a method such as "rcad(alpha=0.5, lam=0.1)", a Method or a Criterion, '
            f"but got {type(given).__name__}"
        )
    parameters = {key: parameter for key, parameter in (parameters or {}).items() if parameter is not None}
    rows = [(name, dict(values)) for name, values in value.recipe]
    for key, parameter in parameters.items():
        owners = [values for _, values in rows if key in values]
        owners = [values for values in owners if values[key] == AUTO] or owners
        if len(owners) != 1:
            names = " and ".join(name for name, values in rows if key in values) or "no part of it"
            raise InputError(
                f"expected {key}={parameter!r} to belong to one part of {value.name!r}, but it belongs to {names}; "
                "write it into the method's text"
            )
        owners[0][key] = parameter
    return compose(*(method(name, **values) for name, values in rows)) if parameters else value


def measures_alpha(given: MethodLike) -> bool:
    """Whether a method leaves alpha to be measured; False for a Criterion, which measures it itself."""
    return not isinstance(given, Criterion) and any(("alpha", AUTO) in values for _, values in as_method(given).recipe)


def reread(
    criterion: Criterion,
    change: Callable[[Categorical], Likelihood],
    where: Callable[[Perturbation], Perturbation] | None = None,
) -> Criterion:
    """The same loss for another form of output: `change` replaces every likelihood of class labels, also in terms.

    `where` changes the perturbations as well.
    """

    def changed(likelihood: Any) -> Any:
        return change(likelihood) if isinstance(likelihood, Categorical) else likelihood

    loss = criterion.asked
    terms = [replace(term, likelihood=changed(term.likelihood)) for term in loss.terms]
    if where is not None:
        terms = [term if term.where is None else replace(term, where=where(term.where)) for term in terms]
    options: dict[str, Any] = {name: getattr(loss, name) for name in OPTIONS}
    return Criterion(changed(loss.likelihood), terms, **options, watch=True)


def _channels(values: Channels, x: Tensor) -> Tensor:
    return torch.tensor(values, device=x.device, dtype=x.dtype).view(1, -1, *[1] * (x.ndim - 2))
