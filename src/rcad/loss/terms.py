"""A term of the objective: what is measured, where, how heavily, how often. Plain values, no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from torch import Tensor

from rcad.errors import InputError, Value, finite, one_of, whole
from rcad.loss.likelihoods import Likelihood
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
    valid: Callable[[Tensor], Tensor | None] | None = getattr(likelihood, "valid", None)
    return None if valid is None else valid(target)


MEASURES: dict[str, Measure] = {
    "nll": nll,
    "negative_entropy": negative_entropy,
    "uniform_cross_entropy": uniform_cross_entropy,
}


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
        if not callable(self.measure):
            one_of("measure", self.measure, MEASURES)
        finite("weight", self.weight)
        whole("every", self.every, minimum=1)
        one_of("view", self.view, ("batch", "raw"))

    def values(self, likelihood: Likelihood, output: Tensor, target: Tensor) -> Tensor:
        """The measure, one number per example."""
        measure = self.measure if callable(self.measure) else MEASURES[self.measure]
        return measure(self.likelihood or likelihood, output, target)

    def mean(
        self, likelihood: Likelihood, output: Tensor, target: Tensor, weight: Tensor | None, runs: int = 1
    ) -> Tensor:
        """The measure averaged over the batch, or over each of the runs whose examples alternate in it, (runs,).

        The one place where that happens.
        """
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
