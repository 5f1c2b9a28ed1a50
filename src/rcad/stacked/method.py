"""Many methods of one structure as one: the same terms, with a number per replica where the methods differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from rcad.errors import InputError
from rcad.loss.growth import FeatureAscent
from rcad.loss.likelihoods import Categorical, Gaussian, Likelihood
from rcad.loss.methods import Method
from rcad.loss.objective import Loss
from rcad.loss.perturbations import GradientStep, Move, RandomStep
from rcad.loss.terms import Term
from rcad.stacked.model import StackedMLP


@dataclass(frozen=True, eq=False)
class StackedLikelihood:
    """A likelihood on rows (R * B, K), B for each replica in turn, with its own label smoothing for each replica."""

    base: Categorical | Gaussian  # without smoothing
    smoothing: Tensor | None = None  # eps (R,); None where no replica smooths
    to_others: bool = False  # eps goes to the classes other than the label, see `Categorical.convention`

    def nll(self, output: Tensor, target: Tensor) -> Tensor:
        """(R * B,). Smoothing is linear in the target, so a smoothed loss is a blend of two plain ones."""
        values = self.base.nll(output, target)
        if self.smoothing is None:
            return values
        assert isinstance(self.base, Categorical)
        spread = self.base.uniform_nll(output)
        if self.to_others:
            classes = output.shape[1]
            spread = (classes * spread - values) / (classes - 1)
        return torch.lerp(values, spread, self.smoothing.repeat_interleave(len(output) // len(self.smoothing)))

    def entropy(self, output: Tensor, valid: Tensor | None = None) -> Tensor:
        return self.base.entropy(output, valid)

    def uniform_nll(self, output: Tensor, valid: Tensor | None = None) -> Tensor:
        uniform: Any = getattr(self.base, "uniform_nll", None)
        if uniform is None:
            raise InputError("expected classes for uniform_cross_entropy, but got a Gaussian; use negative_entropy")
        result: Tensor = uniform(output, valid)
        return result

    def plain(self) -> StackedLikelihood:
        return self if self.smoothing is None else self._plain

    @cached_property
    def _plain(self) -> StackedLikelihood:
        return StackedLikelihood(self.base)


@dataclass(frozen=True, eq=False)
class StackedTerm:
    """A term with its numbers per replica.

    `term` is the first replica's: measure, where, norm, steps, bounds and how often. Its weight is 1, or -1 where that
    of some replica is not above 0: the clean backward then does not give the directions.
    """

    term: Term
    weight: Tensor  # (R,)
    alpha: Tensor | None  # the distance to x' (R,); None at x itself
    likelihood: StackedLikelihood  # the term's own, or that of all terms


@dataclass(frozen=True, eq=False)
class StackedMethod:
    """R methods of one structure."""

    likelihood: StackedLikelihood
    terms: tuple[StackedTerm, ...]
    growth: tuple[FeatureAscent, ...] = ()  # one per replica, or none

    @classmethod
    def of(cls, methods: Sequence[Method], default: Likelihood, like: Tensor) -> StackedMethod:
        """Stacks one method per replica: equal but for weights, distances, smoothing, and growth's factors.

        Args:
            default: the likelihood of methods that set none.
            like: a tensor, for dtype and device.
        """
        shapes = [_structure(method, default) for method in methods]
        for method, shape in zip(methods, shapes, strict=True):
            if shape != shapes[0]:
                raise InputError(
                    f"expected methods that differ in numbers only, but got {methods[0]!r} and {method!r}; "
                    "train each structure by itself"
                )

        def numbers(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=like.dtype, device=like.device)

        def stacked(likelihoods: Sequence[Likelihood]) -> StackedLikelihood:
            eps = [getattr(likelihood, "smoothing", 0.0) for likelihood in likelihoods]
            to_others = getattr(likelihoods[0], "convention", "all") == "others"
            base = likelihoods[0].plain()  # type: ignore[attr-defined]
            return StackedLikelihood(base, numbers(eps) if any(eps) else None, to_others)

        common = stacked([method.likelihood or default for method in methods])
        terms = []
        for column in zip(*(method.terms for method in methods), strict=True):
            if not any(term.weight for term in column):
                continue
            own = [term.likelihood for term in column if term.likelihood is not None]
            likelihood = stacked(own) if own else None
            weights = [term.weight for term in column]
            distances = [term.where.distance for term in column if isinstance(term.where, Move)]
            alpha = numbers(distances) if distances else None
            bare = replace(column[0], weight=1.0 if min(weights) > 0 else -1.0, likelihood=likelihood)
            terms.append(StackedTerm(bare, numbers(weights), alpha, likelihood or common))
        growth = tuple(method.growth for method in methods if method.growth is not None)
        return cls(common, tuple(terms), growth)

    @cached_property
    def loss(self) -> Loss:
        """The terms without their numbers, which plan the passes of each step as for one model."""
        return Loss(self.likelihood, tuple(term.term for term in self.terms))

    @property
    def draws(self) -> bool:
        """Whether a term needs noise."""
        return any(isinstance(term.term.where, RandomStep) for term in self.terms)


def _structure(method: Method, default: Likelihood) -> tuple[Any, ...]:
    """What replicas must share: the method with its numbers taken out."""
    if method.augment:
        raise InputError(f"expected no augmentation in a stacked run, but got {method!r}; train it by itself")
    growth = method.growth and replace(method.growth, eta=0.0, gamma=0.0, step_size=1.0)
    if growth is not None and growth.levels is not None:
        raise InputError(f"expected levels=None to grow stacked tables, but got levels={growth.levels}")
    return _bare(method.likelihood or default), tuple(_bare_term(term) for term in method.terms), growth


def _bare(likelihood: Likelihood) -> Likelihood:
    if isinstance(likelihood, Categorical):
        if likelihood.weight is not None:
            raise InputError(f"expected no class weights in a stacked run, but got {likelihood!r}")
        return replace(likelihood, smoothing=0.0)
    if isinstance(likelihood, Gaussian):
        return likelihood
    raise InputError(f"expected Categorical or Gaussian in a stacked run, but got {likelihood!r}")


def _bare_term(term: Term) -> Term:
    where = term.where
    steady = isinstance(where, GradientStep) and not where.jitter
    if where is not None and not steady and not isinstance(where, RandomStep):
        raise InputError(f"expected GradientStep without jitter or RandomStep in a stacked run, but got {where!r}")
    if term.view != "batch" or getattr(where, "std", None) is not None:
        raise InputError(f"expected terms on the batch in its own units in a stacked run, but got {term!r}")
    likelihood = None if term.likelihood is None else _bare(term.likelihood)
    bare = None if where is None else replace(where, alpha=1.0)  # type: ignore[type-var]
    return replace(term, weight=1.0, where=bare, likelihood=likelihood)


ROWS = 128
"""Examples of each replica that ascend at a time: bounds the memory of the activations."""


def grow(
    growth: Sequence[FeatureAscent], model: StackedMLP, x: Tensor, target: Tensor, likelihood: StackedLikelihood
) -> Tensor:
    """The new examples of each replica, (R, n, D), in the order of the old; their targets are the old ones'.

    Args:
        growth: one per replica; eta, gamma and step_size may differ.
        x: all training examples, (R, n, D).
        target: (R, n).
    """
    first = growth[0]
    if x[0].numel() * x.element_size() > first.max_bytes:
        raise InputError(f"expected training sets within max_bytes={first.max_bytes}, but got {tuple(x.shape)}")
    eta, gamma, size = (
        x.new_tensor([getattr(ascent, name) for ascent in growth])[:, None] for name in ("eta", "gamma", "step_size")
    )
    with_entropy = any(ascent.eta for ascent in growth)

    def ascended(start: Tensor, y: Tensor) -> Tensor:
        rows = start.shape[:2]
        with torch.no_grad():
            anchor = model.features(start)
        moved = start
        for _ in range(first.steps):
            moved = moved.detach().requires_grad_(True)
            features = model.features(moved)
            output = model.head(features).flatten(0, 1)
            gain = likelihood.nll(output, y.reshape(-1)).view(rows) - gamma * (features - anchor).square().mean(2)
            if with_entropy:
                gain = gain + eta * likelihood.entropy(output).view(rows)
            (gradient,) = torch.autograd.grad(gain.sum(), moved)
            moved = moved.detach() + size[..., None] * gradient
        return moved.detach()

    parts = zip(torch.split(x, ROWS, dim=1), torch.split(target, ROWS, dim=1), strict=True)
    return torch.cat([ascended(start, y) for start, y in parts], dim=1)
