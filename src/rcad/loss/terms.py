"""A term of the objective: what is measured, where, how heavily, how often; and the passes that a sum of them takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Literal, NamedTuple

from torch import Tensor

from rcad.errors import InputError, Value, finite, html_table, one_of, shown, whole
from rcad.loss.likelihoods import Likelihood
from rcad.loss.method_rows import AUTO
from rcad.loss.perturbations import Perturbation

Measure = Callable[[Likelihood, Tensor, Tensor], Tensor]
MeasureName = Literal["nll", "negative_entropy", "uniform_cross_entropy"]
ViewName = Literal["batch", "raw"]


def nll(likelihood: Likelihood, output: Tensor, target: Tensor) -> Tensor:
    """Minus the log-likelihood, (B,)."""
    return likelihood.nll(output, target)


def negative_entropy(likelihood: Likelihood, output: Tensor, target: Tensor) -> Tensor:
    """Minus the entropy of the prediction, (B,): small where the model is unsure."""
    return -likelihood.entropy(output, _valid(likelihood, target))


def uniform_cross_entropy(likelihood: Likelihood, output: Tensor, target: Tensor) -> Tensor:
    """The cross-entropy to the uniform distribution, (B,): like `negative_entropy`, but steep when sure."""
    if not hasattr(likelihood, "uniform_nll"):
        raise InputError(
            f"expected a likelihood over finitely many outcomes, but got {type(likelihood).__name__}; "
            "use measure='negative_entropy'"
        )
    result: Tensor = likelihood.uniform_nll(output, _valid(likelihood, target))
    return result


def _valid(likelihood: Likelihood, target: Tensor) -> Tensor | None:
    return likelihood.valid(target) if hasattr(likelihood, "valid") else None


MEASURES: dict[str, Measure] = {
    "nll": nll,
    "negative_entropy": negative_entropy,
    "uniform_cross_entropy": uniform_cross_entropy,
}


def _check_arguments(term: str, measure: Measure) -> None:
    """Raises where a function of the user's own does not take what a measure is called with."""
    try:
        arguments = signature(measure)
    except ValueError:  # of a builtin
        return
    try:
        arguments.bind("likelihood", "output", "target")
    except TypeError:
        code = getattr(measure, "__code__", None)
        name = shown(measure) if code is None else f"{os.path.relpath(code.co_filename)}:{code.co_name}"
        told = (
            f"expected the measure of the term {term!r} to take (likelihood, output, target), but got {name}{arguments}"
        )
        raise InputError(f"{told}; give it these three arguments") from None


WEIGHT, REAL_WEIGHT = 0.1, 0.3
"""lam="auto" for labels and for regression targets, chosen on held-out data: `results/defaults`, `results/uci`."""


def weight_for(lam: float | Literal["auto"], *, real: bool = False) -> float:
    """The weight of an entropy that a user gave, or left to the kind of target."""
    if not isinstance(lam, str) or lam != AUTO:
        finite("lam", lam, minimum=0.0)
        return lam
    return REAL_WEIGHT if real else WEIGHT


@dataclass(frozen=True, repr=False)
class Term(Value):
    """weight * mean over the batch of measure(model(where(x)), target).

    Args:
        name: its key in `Losses.parts`.
        measure: a name in MEASURES, or a function of (likelihood, output, target) giving shape (B,).
        weight: factor in the total.
        where: the perturbation that gives x'; None measures at x itself.
        every: apply the term at every k-th step only, with k times the weight. A criterion counts its calls unless
            `step` is given: one that two models share at each step would give one of them every turn with k = 2.
        view: "batch" for the (augmented) batch, "raw" for the same images before augmentation.
        likelihood: another likelihood for this term alone, e.g. one with label smoothing.
    """

    name: str
    measure: MeasureName | Measure = "nll"
    weight: float = 1.0
    where: Perturbation | None = None
    every: int = 1
    view: ViewName = "batch"
    likelihood: Likelihood | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name):
            raise InputError(f"expected a term's name to be a non-empty string, but got {self.name!r}")
        if callable(self.measure):
            _check_arguments(self.name, self.measure)
        else:
            one_of("measure", self.measure, MEASURES)
        finite("weight", self.weight)
        whole("every", self.every, minimum=1)
        one_of("view", self.view, ("batch", "raw"))

    def values(self, likelihood: Likelihood, output: Tensor, target: Tensor) -> Tensor:
        """The measure, one number per example."""
        if not callable(self.measure):
            return MEASURES[self.measure](self.likelihood or likelihood, output, target)
        values = self.measure(self.likelihood or likelihood, output, target)
        if not isinstance(values, Tensor) or values.shape != output.shape[:1]:
            got = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else shown(values)
            raise InputError(
                f"expected the measure of the term {self.name!r} to give one number for each of {len(output)} "
                f"examples, but got {got}; sum over all dimensions but the first"
            )
        return values

    def mean(
        self, likelihood: Likelihood, output: Tensor, target: Tensor, weight: Tensor | None, runs: int = 1
    ) -> Tensor:
        """The measure averaged over the batch, or over each of the runs whose examples alternate in it, (runs,)."""
        values = self.values(likelihood, output, target)
        weighted = values if weight is None else weight.to(values.dtype) * values
        return weighted.mean() if runs == 1 else weighted.view(-1, runs).mean(0)


class Losses(NamedTuple):
    """What one evaluation gives.

    Attributes:
        total: the sum of weight * part; carries the graph unless it was already run backward.
        parts: each term's mean measure, unweighted and detached, by name; absent where a term rested.
            Where several runs share the batch, both hold one number for each.
        output: the model's prediction for the unperturbed batch, detached; None if it was never computed.
    """

    total: Tensor
    parts: dict[str, Tensor]
    output: Tensor | None

    def _texts(self) -> dict[str, str]:
        rows = {
            name: ", ".join(f"{number:.4g}" for number in value.flatten().tolist())
            for name, value in {"total": self.total, **self.parts}.items()
        }
        return {**rows, "output": "none" if self.output is None else f"a tensor of shape {tuple(self.output.shape)}"}

    def __repr__(self) -> str:
        return f"Losses({', '.join(f'{name}: {text}' for name, text in self._texts().items())})"

    def _repr_html_(self) -> str:
        return html_table(self._texts())


def check_terms(terms: Sequence[Term]) -> tuple[Term, ...]:
    """The terms as a tuple, with distinct names and at least one that counts."""
    terms = tuple(terms)
    names = [term.name for term in terms]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"expected terms with distinct names, but got {twice!r} twice")
    if not any(term.weight for term in terms):
        raise InputError("expected at least one term with a weight other than 0, but got none")
    if not any(term.weight and term.every == 1 for term in terms):
        raise InputError("expected a term that counts at every step, but got only terms with every > 1")
    return terms


def active(terms: Sequence[Term], step: int) -> list[Term]:
    """The terms that count at this step, each with its weight there: k times its own where every=k."""
    due = [term for term in terms if term.weight and step % term.every == 0]
    return [replace(term, weight=term.weight * term.every) if term.every > 1 else term for term in due]


class Look(NamedTuple):
    """The passes over one view: at x where a clean term or a direction needs it, then at each x'."""

    view: ViewName  # the batch, or the same examples before augmentation
    terms: tuple[Term, ...]  # the terms that look there, in their order
    clean: tuple[Term, ...]  # those measured at x itself
    directions: tuple[Likelihood, ...]  # the distinct likelihoods whose gradient with respect to x is needed
    source: tuple[int | None, ...]  # for each term the number of its direction; None where it needs none
    apart: str | None  # why the gradient of the clean loss is not the direction, which takes a backward of its own
    keeps_length: bool  # whether a direction keeps the gradient's length, which a loss scale would change

    def why_apart(self, *, weighted: bool, scaled: bool) -> str | None:
        """Why the clean backward of such a batch does not give the directions; None if it does, or none are needed."""
        if not self.directions or self.apart is not None:
            return self.apart
        if weighted:
            return "sample weights may be zero, which would erase directions"
        return "a raw gradient cannot be told from its loss scale" if scaled and self.keeps_length else None


class Plan(NamedTuple):
    """The passes of one step."""

    looks: tuple[Look, ...]  # one for each view, in the order in which the terms name them
    passes: int  # how many forwards with a backward there are: the clean terms of a view share one

    @property
    def one_pass(self) -> bool:
        """Whether there is a single forward, at x."""
        return len(self.looks) == 1 and len(self.looks[0].clean) == len(self.looks[0].terms)

    @property
    def cost(self) -> int:
        """What one example costs: a forward counts 1, a backward 2, a backward to x alone 1; plain training is 3."""
        ways = [term.where for look in self.looks for term in look.terms]
        further = sum(max(0, getattr(way, "steps", 1) - (not getattr(way, "random_start", False))) for way in ways)
        directions = sum(len(look.directions) for look in self.looks if look.apart is not None)
        looks_only = sum(bool(look.directions) and not look.clean for look in self.looks)
        return 3 * self.passes + directions + looks_only + 2 * further


def plan_passes(likelihood: Likelihood, terms: Sequence[Term]) -> Plan:
    """The passes that these terms take together."""
    names = dict.fromkeys(term.view for term in terms)
    looks = tuple(_look(likelihood, name, tuple(term for term in terms if term.view == name)) for name in names)
    moved = sum(term.where is not None for term in terms)
    return Plan(looks, moved + sum(bool(look.clean) for look in looks))


def _look(likelihood: Likelihood, view: ViewName, terms: tuple[Term, ...]) -> Look:
    choose = [getattr(term.where, "direction_loss", None) for term in terms]
    losses: list[Likelihood | None] = [None if chosen is None else chosen(likelihood) for chosen in choose]
    try:
        directions = tuple(dict.fromkeys(loss for loss in losses if loss is not None))
    except TypeError:
        raise InputError(
            f"expected a likelihood that can be hashed, but got {shown(likelihood)}; write @dataclass(frozen=True)"
        ) from None
    source = tuple(None if loss is None else directions.index(loss) for loss in losses)
    clean = tuple(term for term in terms if term.where is None)
    moves = [term.where for term, loss in zip(terms, losses, strict=True) if loss is not None]
    keeps_length = any(getattr(move, "norm", None) not in ("l2", "linf") for move in moves)
    apart = None
    if directions and (len(clean) != 1 or clean[0].measure != "nll" or clean[0].weight <= 0):
        apart = "the clean loss is not one negative log-likelihood, so its gradient is not the direction"
    elif directions and directions != (clean[0].likelihood or likelihood,):
        apart = "the direction comes from another loss than the clean term's"
    return Look(view, terms, clean, directions, source, apart, keeps_length)
