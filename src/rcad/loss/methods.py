"""A method is a value: it prints, compares, hashes, and goes to and from a plain dict.

Each fills the slots that are its own; `compose` refuses two owners of one. Units and defaults: see `methods/<name>.md`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from typing import Any, Literal, ParamSpec

from torch import nn

from rcad.errors import InputError, html_table, one_of
from rcad.loss.augmentations import Augmentation, Cutmix, Cutout, Flip, Mixup, PadCrop
from rcad.loss.criterion import Criterion
from rcad.loss.growth import FeatureAscent
from rcad.loss.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from rcad.loss.method_rows import AUTO, OWN, SOURCE, Defaults, MethodRow, as_recorded, check_named, parse_method
from rcad.loss.objective import ERM, Objective
from rcad.loss.perturbations import Alpha, GradientStep, Norm, RandomStep
from rcad.loss.terms import REAL_WEIGHT, MeasureName, Term, check_terms, weight_for

P = ParamSpec("P")

METHODS: dict[str, Callable[..., Method]] = {}
SLOTS = {"likelihood": "likelihood", "clean": "clean loss", "growth": "growth of the training set"}
AUGMENT_ORDER = ("crop", "flip", "cutout", "mix")


@dataclass(frozen=True, repr=False)
class Method:
    """How to train: one owner per slot, and the terms add.

    Args:
        recipe: the names and parameters it was built from.
        likelihood: what the output means; None leaves Categorical().
        clean: the terms that fit the data; None leaves the negative log-likelihood of the batch.
        extra: the terms on top.
        augment: what happens to the batch first.
        growth: what happens to the training set between epochs.
    """

    recipe: tuple[MethodRow, ...] = ()
    likelihood: Likelihood | None = None
    clean: tuple[Term, ...] | None = None
    extra: tuple[Term, ...] = ()
    augment: tuple[Augmentation, ...] = ()
    growth: FeatureAscent | None = None

    def __post_init__(self) -> None:
        for slot in ("clean", "extra"):
            if isinstance(term := getattr(self, slot), Term):
                raise InputError(f"expected {slot} to be a tuple, but got the term {term.name!r} alone; write (term,)")

    @property
    def name(self) -> str:
        """The names it was composed of, e.g. "mixup + rcad"."""
        return " + ".join(name for name, _ in self.recipe)

    @property
    def terms(self) -> tuple[Term, ...]:
        return (ERM if self.clean is None else self.clean) + self.extra

    def __repr__(self) -> str:
        calls = [f"{name}({', '.join(f'{k}={v!r}' for k, v in values)})" for name, values in self.recipe]
        return (
            " + ".join([*calls, *(f"Method({name}: weight={weight:g})" for name, weight in self._own())]) or "Method()"
        )

    def _repr_html_(self) -> str:
        rows = {name: ", ".join(f"{k} = {v!r}" for k, v in values) or "no parameters" for name, values in self.recipe}
        return html_table(rows | {name: f"weight = {weight:g}" for name, weight in self._own()})

    def _own(self) -> list[tuple[str, float]]:
        """Names and weights of terms that no part of the recipe has brought."""
        if any(name not in METHODS for name, _ in self.recipe):
            return []  # the user's own function, named in the recipe, has brought them
        known = {term.name for name, values in self.recipe for term in method(name, **dict(values)).terms}
        return [(term.name, term.weight) for term in self.terms if term.name not in known | {"nll"}]

    def slots(self) -> set[str]:
        """What it owns: slots that no other method may fill as well."""
        filled = {words for slot, words in SLOTS.items() if getattr(self, slot) is not None}
        return filled | {f"{step.slot} augmentation" for step in self.augment}

    def owner(self, slot: str) -> str:
        """The one of its parts that owns a slot."""
        parts = (method(name, **dict(values)) for name, values in self.recipe)
        return next((part.name for part in parts if slot in part.slots()), self.name)

    def criterion(self, **options: Any) -> Criterion:
        """The loss for one's own loop; `augment` and `growth` are the caller's to apply. Options as in `Criterion`."""
        return Criterion(self.likelihood or Categorical(), self.terms, **options)

    def objective(self, model: nn.Module, **options: Any) -> Objective:
        """The loss with the model inside. Options as in `Objective`."""
        return Objective(model, self.likelihood or Categorical(), self.terms, **options)

    def to_dict(self) -> dict[str, Any]:
        """A plain dict, e.g. {"methods": [{"name": "rcad", "alpha": 0.5, "lam": 0.02, ...}]}."""
        return {"methods": [{"name": name, **dict(values)} for name, values in self.recipe]}

    @staticmethod
    def parse(text: str) -> Method:
        """The method that a user writes as text, e.g. "mixup + rcad(alpha=1.0)"; `str` of a method is such a text."""
        return _built(parse_method(text))

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> Method:
        """The method that `to_dict` wrote; what a row leaves out has the default that it was written with."""
        rows = plain.get("methods")
        if not isinstance(rows, list) or not rows:
            raise InputError(f"expected a dict with a list under 'methods', but got {plain!r}")
        pairs = ((row.get("name", ""), tuple((k, v) for k, v in row.items() if k != "name")) for row in rows)
        return _built(as_recorded(pairs))


def _built(rows: Iterable[MethodRow]) -> Method:
    return compose(*(method(name, **dict(values)) for name, values in rows))


def method(name: str = "", **parameters: Any) -> Method:
    """A method by its name: method("rcad", alpha=1.0, lam=0.1)."""
    check_named(((name, tuple(parameters.items())),))
    if name not in METHODS and os.path.isfile(f"{name}.py"):
        raise InputError(
            f"expected a method, but got {name!r}, which is a module in this folder; name a function of it, "
            f"{name}:my_method"
        )
    one_of("method", name, METHODS if name not in OWN else OWN)
    make = OWN.get(name) or METHODS[name]
    for key in parameters:
        if key != SOURCE or name not in OWN:
            one_of(f"a parameter of {name}", key, signature(make).parameters)
    return make(**{key: tuple(v) if isinstance(v, list) else v for key, v in parameters.items()})


def compose(*methods: Method) -> Method:
    """All of them at once: terms and augmentations add; a slot that two methods own raises."""
    if not methods:
        raise InputError("expected at least one method to compose, but got none")
    for method in methods:
        if not isinstance(method, Method):
            raise InputError(f"expected methods to compose, but got {method!r}; Method.parse reads text")
    result = methods[0]
    for other in methods[1:]:
        shared_slots = result.slots() & other.slots()
        if shared_slots:
            slot = min(shared_slots)
            raise InputError(
                f"expected one method to set the {slot}, but got {result.owner(slot)!r} and {other.owner(slot)!r}"
            )
        result = Method(
            recipe=result.recipe + other.recipe,
            likelihood=result.likelihood or other.likelihood,
            clean=result.clean if other.clean is None else other.clean,
            extra=result.extra + other.extra,
            augment=tuple(sorted(result.augment + other.augment, key=lambda step: AUGMENT_ORDER.index(step.slot))),
            growth=result.growth or other.growth,
        )
    if isinstance(result.likelihood, Gaussian):
        result = _for_reals(result)
    check_terms(result.terms)
    # A term with a likelihood of its own must read the output as the others do.
    common = type(result.likelihood or Categorical())
    for term in result.terms:
        if term.likelihood is not None and type(term.likelihood) is not common:
            raise InputError(
                f"expected one method to set the likelihood, but got {result.owner('likelihood')!r} and {term.name!r}"
            )
    return result


def _for_reals(composed: Method) -> Method:
    """The method, whose terms with lam="auto" have the weight for labels, with that for regression targets."""
    extra = composed.extra
    for name, values in composed.recipe:
        if ("lam", AUTO) in values:
            left, real = (method(name, **{**dict(values), "lam": lam}).extra for lam in (AUTO, REAL_WEIGHT))
            extra = tuple(real[left.index(term)] if term in left else term for term in extra)
    return replace(composed, extra=extra)


def recipe(build: Callable[P, Method]) -> Callable[P, Method]:
    """Registers a method under its function's name and writes its parameters into the value."""
    shape = signature(build)

    @wraps(build)
    def make(*args: P.args, **kwargs: P.kwargs) -> Method:
        bound = shape.bind(*args, **kwargs)
        bound.apply_defaults()
        return replace(build(*args, **kwargs), recipe=((build.__name__, tuple(bound.arguments.items())),))

    METHODS[build.__name__] = make
    return make


__all__ = [
    "METHODS",
    "Method",
    "ada",
    "adversarial_training",
    "adversarial_two_views",
    "bernoulli",
    "compose",
    "confidence_penalty",
    "cutmix",
    "cutout",
    "data_augmentation",
    "erm",
    "gaussian",
    "label_smoothing",
    "ls_on_adv",
    "me_ada",
    "method",
    "mixup",
    "rcad",
    "rcad_random",
    "rcad_released",
    "rcad_text",
    "two_views",
]

Bounds = tuple[float, float] | None
Convention = Literal["all", "others"]
Direction = Literal["plain", "training"]

TWO_VIEWS = (Term("nll", weight=0.5), Term("nll_raw", weight=0.5, view="raw"))


@recipe
def erm() -> Method:
    """Empirical risk minimisation: the mean negative log-likelihood."""
    return Method()


@recipe
def two_views() -> Method:
    """The released program's clean loss: half on the augmented batch, half on the same images un-augmented."""
    return Method(clean=TWO_VIEWS)


@recipe
def label_smoothing(eps: float = 0.2, convention: Convention = "all") -> Method:
    """Targets mixed with the uniform distribution: eps/K on all classes, or the paper's eps/(K-1) on the others."""
    return Method(likelihood=Categorical(smoothing=eps, convention=convention))


@recipe
def gaussian(cap: float | tuple[float, ...] | None = 0.0) -> Method:
    """Regression: the model gives a mean and a log-variance."""
    return Method(likelihood=Gaussian(cap=cap))


@recipe
def bernoulli(smoothing: float = 0.0) -> Method:
    """Yes/no labels: one logit each."""
    return Method(likelihood=Bernoulli(smoothing=smoothing))


@recipe
def confidence_penalty(lam: float = 0.1, measure: MeasureName = "negative_entropy", every: int = 1) -> Method:
    """-lam * entropy at the clean point: RCAD with alpha = 0, the control that tells whether moving helps."""
    return Method(extra=(Term("confidence_penalty", measure, weight_for(lam), every=every),))


@recipe
def rcad(
    alpha: Alpha = AUTO,
    lam: Alpha = AUTO,
    norm: Norm = "l2",
    steps: int = 1,
    measure: MeasureName = "negative_entropy",
    every: int = 1,
    bounds: Bounds = None,
    direction: Direction = "plain",
) -> Method:
    """-lam * entropy at x', a distance alpha away from log p(y|x). One view, direction from the training batch.

    alpha="auto" is measured on the data; lam="auto" is 0.1, and for regression targets 0.3 where those are known.
    """
    where = GradientStep(alpha, norm, bounds, steps=steps, loss=direction)
    return Method(extra=(Term("rcad", measure, weight_for(lam), where, every),))


@recipe
def rcad_text(alpha: float = 0.5, lam: float = 0.02, direction: Direction = "plain") -> Method:
    """The formula of the paper's text: alpha times the raw gradient, whose length vanishes with the loss."""
    where = GradientStep(alpha, "raw", loss=direction)
    return Method(extra=(Term("rcad", "negative_entropy", weight_for(lam), where),))


@recipe
def rcad_released(alpha: float = 0.5, lam: float = 0.02, jitter: float = 0.0) -> Method:
    """What the authors' program does: two views, direction from the un-augmented images and the unsmoothed loss."""
    where = GradientStep(alpha, "l2", jitter=jitter, loss="plain")
    return Method(clean=TWO_VIEWS, extra=(Term("rcad", "negative_entropy", weight_for(lam), where, view="raw"),))


@recipe
def rcad_random(
    alpha: Alpha = AUTO,
    lam: Alpha = AUTO,
    norm: Literal["l2", "linf"] = "l2",
    bounds: Bounds = None,
    measure: MeasureName = "negative_entropy",
    every: int = 1,
) -> Method:
    """RCAD with a random direction of the same length: the control that tells whether the direction helps."""
    where = RandomStep(alpha, norm, bounds)
    return Method(extra=(Term("rcad_random", measure, weight_for(lam), where, every),))


@recipe
def adversarial_training(alpha: float = 0.05, norm: Norm = "linf", bounds: Bounds = (0.0, 1.0)) -> Method:
    """The negative log-likelihood at the fast-gradient-sign example only."""
    return Method(clean=(Term("nll", where=GradientStep(alpha, norm, bounds)),))


@recipe
def adversarial_two_views(alpha: float = 0.05, norm: Norm = "linf", bounds: Bounds = (0.0, 1.0)) -> Method:
    """Adversarial training beside `two_views`: half on the perturbed batch, half on its images, perturbed as well."""
    where = GradientStep(alpha, norm, bounds)
    return Method(clean=(Term("nll", weight=0.5, where=where), Term("nll_raw", weight=0.5, where=where, view="raw")))


@recipe
def ls_on_adv(alpha: float = 0.02, eps: float = 0.2, norm: Norm = "l2", convention: Convention = "all") -> Method:
    """The clean loss plus the label-smoothed loss at x'."""
    smoothed = Categorical(smoothing=eps, convention=convention)
    return Method(extra=(Term("ls_on_adv", "nll", 1.0, GradientStep(alpha, norm), likelihood=smoothed),))


@recipe
def ada(
    gamma: float = 1.0,
    steps: int = 15,
    step_size: float = 20.0 / 128 / 4,
    epochs: int = 10,
    rounds: int = 2,
    levels: int | None = 255,
) -> Method:
    """Grows the training set by ascent on the loss, held back by the distance in the embedding."""
    return Method(growth=FeatureAscent(0.0, gamma, steps, step_size, epochs, rounds, levels))


@recipe
def me_ada(
    eta: float = 1.0,
    gamma: float = 1.0,
    steps: int = 15,
    step_size: float = 20.0 / 128 / 4,
    epochs: int = 10,
    rounds: int = 2,
    levels: int | None = 255,
) -> Method:
    """ADA with eta * entropy in the ascent."""
    return Method(growth=FeatureAscent(eta, gamma, steps, step_size, epochs, rounds, levels))


@recipe
def data_augmentation(padding: int = 4, flip: float = 0.5) -> Method:
    """Pad, random crop, horizontal flip with that probability (0 for digits, whose mirror image is another thing)."""
    return Method(augment=(PadCrop(padding), Flip(flip)))


@recipe
def cutout(length: int = 16) -> Method:
    """A black square in each image."""
    return Method(augment=(Cutout(length),))


@recipe
def mixup(alpha: float = 1.0) -> Method:
    """Pairs of images and of targets, blended."""
    return Method(augment=(Mixup(alpha),))


@recipe
def cutmix(alpha: float = 1.0, p: float = 1.0) -> Method:
    """A box of another image in each image, targets in proportion."""
    return Method(augment=(Cutmix(alpha, p),))


def method_defaults() -> Defaults:
    """Every method's parameters and their defaults, for `override` and for canonical ids."""
    return {
        name: {key: parameter.default for key, parameter in signature(make).parameters.items()}
        for name, make in {**METHODS, **OWN}.items()
    }
