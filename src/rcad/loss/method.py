"""A method is a value: it prints, compares, hashes, and goes to and from a plain dict.

Each method fills the slots that are its own; `compose` puts several together and refuses two owners of one slot.
The methods themselves stand in `rcad.methods`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec

from torch import nn

from rcad.errors import InputError, html_table, one_of
from rcad.loss.augmentations import Augmentation
from rcad.loss.criterion import Criterion
from rcad.loss.growth import FeatureAscent
from rcad.loss.likelihoods import Categorical, Likelihood
from rcad.loss.method_rows import OWN, SOURCE, MethodRow, as_recorded, check_named, parse_method, rows_to_plain, spelled
from rcad.loss.objective import ERM, Objective
from rcad.loss.terms import Term, check_terms

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

    @property
    def name(self) -> str:
        """The names it was composed of, e.g. "mixup + rcad"."""
        return " + ".join(name for name, _ in self.recipe)

    @property
    def terms(self) -> tuple[Term, ...]:
        return (ERM if self.clean is None else self.clean) + self.extra

    def __repr__(self) -> str:
        calls = (f"{name}({', '.join(f'{k}={v!r}' for k, v in values)})" for name, values in self.recipe)
        return " + ".join(calls)

    def _repr_html_(self) -> str:
        rows = {name: ", ".join(f"{k} = {v!r}" for k, v in values) or "no parameters" for name, values in self.recipe}
        return html_table(rows)

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
        return Method.from_dict({"methods": rows_to_plain(spelled(parse_method(text)))})

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> Method:
        """The method that `to_dict` wrote.

        What a row leaves out has its default; where that has changed, the one that old rows were written with
        (`rcad.loss.method_rows.CHANGED`).
        """
        rows = plain.get("methods")
        if not isinstance(rows, list) or not rows:
            raise InputError(f"expected a dict with a list under 'methods', but got {plain!r}")
        given = as_recorded((row.get("name", ""), tuple((k, v) for k, v in row.items() if k != "name")) for row in rows)
        return compose(*(method(name, **dict(values)) for name, values in given))


def method(name: str = "", **parameters: Any) -> Method:
    """A method by its name: method("rcad", alpha=1.0, lam=0.1)."""
    import rcad.loss.methods  # noqa: F401  # where they register themselves

    check_named(((name, tuple(parameters.items())),))
    one_of("method", name, METHODS if name not in OWN else OWN)
    make = OWN.get(name) or METHODS[name]
    known = signature(make).parameters
    for key in parameters:
        if key != SOURCE or name not in OWN:
            one_of(f"a parameter of {name}", key, known)
    return make(**{key: tuple(v) if isinstance(v, list) else v for key, v in parameters.items()})


def compose(*methods: Method) -> Method:
    """All of them at once: terms and augmentations add; a slot that two methods own raises."""
    if not methods:
        raise InputError("expected at least one method to compose, but got none")
    result = methods[0]
    for other in methods[1:]:
        both = result.slots() & other.slots()
        if both:
            slot = min(both)
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
    check_terms(result.terms)
    _check_likelihoods(result)
    return result


def _check_likelihoods(result: Method) -> None:
    """A term with a likelihood of its own must read the output as the others do."""
    common = type(result.likelihood or Categorical())
    for term in result.terms:
        if term.likelihood is not None and type(term.likelihood) is not common:
            raise InputError(
                f"expected one method to set the likelihood, but got {result.owner('likelihood')!r} and {term.name!r}"
            )


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
