"""Many methods of one structure as one, with a number per replica where they differ; and the step that trains by it.

Each replica's loss is a mean over its own batch, and replicas share no parameter: the gradient of the sum of their
losses is the gradient of each. A step takes as few passes as `fused` takes for one model. Terms have their gradients
with respect to the output in closed form where there is a short one: for nets this small autograd, which gives the same
numbers, takes longer than the net itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rcad.errors import InputError
from rcad.loss.growth import FeatureAscent, ascend
from rcad.loss.likelihoods import LOG_2PI, Categorical, Gaussian, Likelihood
from rcad.loss.methods import Method
from rcad.loss.objective import Loss
from rcad.loss.perturbations import GradientStep, Move, Norm, RandomStep, unit
from rcad.loss.terms import Look, Plan, Term
from rcad.stacked.model import Passes, StackedMLP


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
        if not isinstance(self.base, Categorical):
            raise InputError("expected classes for uniform_cross_entropy, but got a Gaussian; use negative_entropy")
        return self.base.uniform_nll(output, valid)

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

        `default` is the likelihood of methods that set none, `like` a tensor for dtype and device.
        """
        shapes = [_structure(method, default) for method in methods]
        for method, shape in zip(methods, shapes, strict=True):
            if shape != shapes[0]:
                raise InputError(
                    f"expected methods that differ in numbers only, but got {methods[0]!r} and {method!r}; "
                    "train each structure by itself"
                )

        def stacked(likelihoods: Sequence[Likelihood]) -> StackedLikelihood:
            eps = [getattr(likelihood, "smoothing", 0.0) for likelihood in likelihoods]
            to_others = getattr(likelihoods[0], "convention", "all") == "others"
            base = likelihoods[0].plain()  # type: ignore[attr-defined]
            return StackedLikelihood(base, like.new_tensor(eps) if any(eps) else None, to_others)

        common = stacked([method.likelihood or default for method in methods])
        terms = []
        for column in zip(*(method.terms for method in methods), strict=True):
            if not any(term.weight for term in column):
                continue
            own = [term.likelihood for term in column if term.likelihood is not None]
            likelihood = stacked(own) if own else None
            weights = [term.weight for term in column]
            distances = [term.where.distance for term in column if isinstance(term.where, Move)]
            alpha = like.new_tensor(distances) if distances else None
            bare = replace(column[0], weight=1.0 if min(weights) > 0 else -1.0, likelihood=likelihood)
            terms.append(StackedTerm(bare, like.new_tensor(weights), alpha, likelihood or common))
        growth = tuple(method.growth for method in methods if method.growth is not None)
        return cls(common, tuple(terms), growth)

    @cached_property
    def loss(self) -> Loss:
        """The terms without their numbers, which plan the passes as for one model."""
        return Loss(self.likelihood, tuple(term.term for term in self.terms))

    @property
    def draws(self) -> bool:
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


Closed = Callable[[StackedLikelihood, Tensor, Tensor], tuple[Tensor, Tensor]]


class Part(NamedTuple):
    """A term at a step, with what follows from it and the size of the batch alone."""

    term: StackedTerm  # with its weights at that step
    each: Tensor  # what one example weighs, (R, 1, 1)
    closed: Closed | None  # the measure with its gradient, where there is a short form
    alpha: Tensor | None  # the distance to x', (R, 1, 1); None at x itself
    size: Tensor | None  # that of one of its steps
    direction: int | None  # which of the step's directions leads to x'; None where it needs none

    @classmethod
    def of(cls, term: StackedTerm, batch: int, direction: int | None = None) -> Part:
        alpha = None if term.alpha is None else term.alpha.view(-1, 1, 1)
        size = None if alpha is None else alpha / getattr(term.term.where, "steps", 1)
        closed = _closed(term.likelihood, term.term.measure)
        return cls(term, (term.weight / batch).view(-1, 1, 1), closed, alpha, size, direction)


def pulled(parts: Sequence[Part], output: Tensor, y: Tensor, shares: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The weighted sum of the terms for each replica (R,), and its gradient with respect to the output (R, B, K).

    `shares` is what each example counts in a mean, (R * B,).
    """
    term, each, closed = parts[0][:3]
    if len(parts) == y.ndim == 1 and closed is not None:
        values, slopes = closed(term.likelihood, output.flatten(0, 1), y)
        if shares is not None:
            values, slopes = shares * values, slopes.mul_(shares[:, None])
        return term.weight * values.view(output.shape[0], -1).mean(1), slopes.view_as(output).mul_(each)
    leaf = output.detach().flatten(0, 1).requires_grad_(True)
    total = torch.zeros_like(term.weight)
    for term, *_ in parts:
        values = term.term.values(term.likelihood, leaf, y)
        values = values if shares is None else shares * values
        total = total + term.weight * values.view(len(total), -1).mean(1)
    (gradient,) = torch.autograd.grad(total.sum(), leaf)
    return total.detach(), gradient.view_as(output)


def nll_slopes(likelihood: StackedLikelihood, output: Tensor, y: Tensor) -> Tensor:
    """The gradient of the summed negative log-likelihood with respect to the output, (R, B, K)."""
    if y.ndim == 1 and (closed := _closed(likelihood, "nll")) is not None:
        return closed(likelihood, output.flatten(0, 1), y)[1].view_as(output)
    leaf = output.detach().flatten(0, 1).requires_grad_(True)
    (slopes,) = torch.autograd.grad(likelihood.nll(leaf, y).sum(), leaf)
    return slopes.view_as(output)


def _closed(likelihood: StackedLikelihood, measure: object) -> Closed | None:
    """What gives the measure of each row (N,) and its own gradient (N, K) without a graph; for one target each."""
    if likelihood.smoothing is not None or not isinstance(measure, str):
        return None
    if isinstance(getattr(likelihood.base, "cap", None), tuple):
        return None
    return CLOSED.get((type(likelihood.base), measure))


def _label_nll(likelihood: StackedLikelihood, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    log_p, index = output.log_softmax(1), y.long().unsqueeze(1)
    values = -log_p.gather(1, index).squeeze(1)
    return values, log_p.exp_().scatter_(1, index, -1.0, reduce="add")


def _label_negative_entropy(likelihood: StackedLikelihood, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    log_p = output.log_softmax(1)
    p = log_p.exp()
    values = (p * log_p).sum(1, keepdim=True)
    return values.squeeze(1), log_p.sub_(values).mul_(p)


def _real_nll(likelihood: StackedLikelihood, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    mean, log_variance, above = _split(likelihood, output)
    error, precision = mean - y, (-log_variance).exp_()
    slope = error * precision
    square = slope * error
    values = (log_variance + square).add_(LOG_2PI).mul_(0.5)
    return values, torch.stack([slope, (1 - square).mul_(0.5).mul_(above)], 1)


def _real_negative_entropy(likelihood: StackedLikelihood, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    mean, log_variance, above = _split(likelihood, output)
    cap: float | None = getattr(likelihood.base, "cap", None)
    limit = float("inf") if cap is None else cap
    slope = (log_variance < limit).to(output.dtype).mul_(-0.5)
    values = log_variance.clamp_(max=limit).add_(LOG_2PI + 1).mul_(-0.5)
    return values, torch.stack([torch.zeros_like(mean), slope.mul_(above)], 1)


def _split(likelihood: StackedLikelihood, output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, log-variance, and where the latter is not below its floor, under which it has no slope."""
    assert isinstance(likelihood.base, Gaussian)
    mean, log_variance = output.unbind(1)
    return mean, log_variance.clamp(min=likelihood.base.floor), log_variance >= likelihood.base.floor


CLOSED: dict[tuple[type, str], Closed] = {
    (Categorical, "nll"): _label_nll,
    (Categorical, "negative_entropy"): _label_negative_entropy,
    (Gaussian, "nll"): _real_nll,
    (Gaussian, "negative_entropy"): _real_negative_entropy,
}


Noise = Callable[[tuple[int, ...]], Tensor]
Step = Callable[[Tensor, Tensor, int, Tensor | None], tuple[Tensor, Tensor | None]]
"""Writes the gradients of a batch (x, target, number, shares); gives the losses and the outputs. See `StackedStep`."""


class _Planned(NamedTuple):
    look: Look
    clean: list[Part]  # the terms at x
    moved: list[Part]  # those at x'
    undo: Tensor | None  # what makes the gradient of the first clean term's weighted mean that of a sum, (R, 1, 1)

    @classmethod
    def of(cls, method: StackedMethod, plan: Plan, batch: int) -> _Planned:
        (look,) = plan.looks
        by_name = {term.term.name: term for term in method.terms}
        due = [replace(by_name[term.name], weight=by_name[term.name].weight * term.every) for term in look.terms]
        parts = [Part.of(term, batch, direction) for term, direction in zip(due, look.source, strict=True)]
        clean = [part for part in parts if part.alpha is None]
        undo = (batch / clean[0].term.weight).view(-1, 1, 1) if clean else None
        return cls(look, clean, [part for part in parts if part.alpha is not None], undo)


class StackedStep:
    """The gradients of one batch.

    Args:
        passes: through the model, for batches of this size.
        noise: standard normal numbers of shape (R, B, D), each replica's from its own stream.
        outputs: whether to return the outputs at x.
    """

    def __init__(self, method: StackedMethod, passes: Passes, noise: Noise, *, outputs: bool = True) -> None:
        self.method, self.passes, self.noise, self.outputs = method, passes, noise, outputs
        plans = method.loss.plans.values()
        self._planned = {id(plan): _Planned.of(method, plan, passes.batch) for plan in plans}

    def __call__(
        self, x: Tensor, target: Tensor, number: int, shares: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Writes the gradients of step `number`; gives the losses (R,), and the output at x (R, B, K) if it has one.

        x is (R, B, D), target (R, B) or (R, B, T); shares (R, B) are what each example counts in its mean.
        """
        look, clean, moved, undo = self._planned[id(self.method.loss.plan(number))]
        y = target.flatten(0, 1)
        shares = None if shares is None else shares.reshape(-1)
        total: Tensor | None = None
        output: Tensor | None = None
        gradients: list[Tensor] = []
        self.passes.start()
        if clean or look.directions:
            output = self.passes.forward(x)
            fused = bool(look.directions) and look.why_apart(weighted=shares is not None, scaled=False) is None
            if not fused:
                gradients = [self._direction(likelihood, output, y) for likelihood in look.directions]
            if clean:
                total, pull = pulled(clean, output, y, shares)
                uphill = self.passes.backward(pull, inputs=fused)
                if uphill is not None:
                    # The backward ran on a weighted mean: undo that for directions that keep the gradient's length.
                    assert undo is not None
                    gradients = [uphill * undo]
            output = output.clone() if moved and self.outputs else output
        for part in moved:
            x_adv = self._moved(part, look, x, y, gradients)
            share, pull = pulled([part], self.passes.forward(x_adv), y, shares)
            total = share if total is None else total + share
            self.passes.backward(pull)
        assert total is not None
        return total, output if self.outputs else None

    def _direction(self, likelihood: Likelihood, output: Tensor, y: Tensor) -> Tensor:
        """The gradient of the summed negative log-likelihood with respect to x, (R, B, D)."""
        assert isinstance(likelihood, StackedLikelihood)
        uphill = self.passes.backward(nll_slopes(likelihood, output, y), weights=False, inputs=True)
        assert uphill is not None
        return uphill.clone()

    def _moved(self, part: Part, look: Look, x: Tensor, y: Tensor, gradients: Sequence[Tensor]) -> Tensor:
        """x' of a term, (R, B, D): what the term's perturbation does, with a distance per replica."""
        where, alpha, size = part.term.term.where, part.alpha, part.size
        assert alpha is not None
        assert size is not None
        if isinstance(where, RandomStep):
            return _within(where, x + alpha * _unit(self.noise(tuple(x.shape)), where.norm))
        assert isinstance(where, GradientStep)
        assert part.direction is not None
        step = size * _unit(gradients[part.direction], where.norm)
        for _ in range(where.steps - 1):
            output = self.passes.forward(_within(where, x + step))
            step = step + size * _unit(self._direction(look.directions[part.direction], output, y), where.norm)
        if where.steps > 1 and where.norm == "l2":
            step = alpha * _unit(step, "l2")
        return _within(where, x + step)


def _unit(g: Tensor, norm: Norm) -> Tensor:
    return unit(g.flatten(0, 1), norm).view_as(g)


def _within(where: Move, x: Tensor) -> Tensor:
    return x if where.bounds is None else x.clamp(*where.bounds)


ROWS = 128  # examples of each replica that ascend at a time: bounds the memory of the activations


def grow(
    growth: Sequence[FeatureAscent], model: StackedMLP, x: Tensor, target: Tensor, likelihood: StackedLikelihood
) -> Tensor:
    """What grows from all training examples x (R, n, D) of each replica, in their order; targets are the old ones'."""
    first = growth[0]
    if x[0].numel() * x.element_size() > first.max_bytes:
        raise InputError(f"expected training sets within max_bytes={first.max_bytes}, but got {tuple(x.shape)}")
    eta, gamma, size = (
        x.new_tensor([getattr(ascent, name) for ascent in growth])[:, None] for name in ("eta", "gamma", "step_size")
    )
    with_entropy = any(ascent.eta for ascent in growth)

    def ascended(start: Tensor, y: Tensor) -> Tensor:
        def gain(output: Tensor, squares: Tensor) -> Tensor:
            rows = output.flatten(0, 1)
            value = likelihood.nll(rows, y.reshape(-1)).view(y.shape) - gamma * squares.mean(2)
            return value + eta * likelihood.entropy(rows).view(y.shape) if with_entropy else value

        return ascend(model, start, gain, first.steps, size[..., None])

    parts = zip(torch.split(x, ROWS, dim=1), torch.split(target, ROWS, dim=1), strict=True)
    return torch.cat([ascended(start, y) for start, y in parts], dim=1)
