"""One training step of many replicas: the gradients of the terms, in as few passes as `fused` takes for one model.

Each replica's loss is a mean over its own batch, and replicas share no parameter: the gradient of the sum of their
losses is the gradient of each. Terms have their gradients with respect to the output in closed form where there is a
short one: for nets this small autograd, which gives the same numbers, takes longer than the net itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rcad.loss.likelihoods import LOG_2PI, Categorical, Gaussian
from rcad.loss.perturbations import GradientStep, Move, Norm, RandomStep, unit
from rcad.stacked.method import StackedLikelihood, StackedMethod, StackedTerm
from rcad.stacked.model import Passes

Closed = Callable[[StackedLikelihood, Tensor, Tensor], tuple[Tensor, Tensor]]


def pulled(
    terms: Sequence[StackedTerm], output: Tensor, y: Tensor, shares: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The weighted sum of the terms for each replica (R,), and its gradient with respect to the output (R, B, K).

    `shares` (R * B,) says what each example counts in a mean.
    """
    only = terms[0]
    if len(terms) == y.ndim == 1 and (closed := _closed(only.likelihood, only.term.measure)) is not None:
        with torch.no_grad():
            values, slopes = closed(only.likelihood, output.detach().flatten(0, 1), y)
            if shares is not None:
                values, slopes = shares * values, slopes.mul_(shares[:, None])
            means = values.view(len(only.weight), -1).mean(1)
            return only.weight * means, slopes.view_as(output).mul_((only.weight / output.shape[1]).view(-1, 1, 1))
    return _by_autograd(terms, output, y, shares)


def _by_autograd(
    terms: Sequence[StackedTerm], output: Tensor, y: Tensor, shares: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    leaf = output.detach().flatten(0, 1).requires_grad_(True)
    total = terms[0].weight * terms[0].means(leaf, y, shares)
    for term in terms[1:]:
        total = total + term.weight * term.means(leaf, y, shares)
    (gradient,) = torch.autograd.grad(total.sum(), leaf)
    return total.detach(), gradient.view_as(output)


def nll_slopes(likelihood: StackedLikelihood, output: Tensor, y: Tensor) -> Tensor:
    """The gradient of the summed negative log-likelihood with respect to the output, (R, B, K)."""
    if y.ndim == 1 and (closed := _closed(likelihood, "nll")) is not None:
        with torch.no_grad():
            return closed(likelihood, output.detach().flatten(0, 1), y)[1].view_as(output)
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
    mean, log_variance = _split(likelihood, output)
    error, precision = mean - y, (-log_variance).exp_()
    slope = error * precision
    square = slope * error
    values = (log_variance + square).add_(LOG_2PI).mul_(0.5)
    return values, torch.stack([slope, _above(likelihood, output, (1 - square).mul_(0.5))], 1)


def _real_negative_entropy(likelihood: StackedLikelihood, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    mean, log_variance = _split(likelihood, output)
    cap: float | None = getattr(likelihood.base, "cap", None)
    limit = float("inf") if cap is None else cap
    slope = (log_variance < limit).to(output.dtype).mul_(-0.5)
    values = log_variance.clamp_(max=limit).add_(LOG_2PI + 1).mul_(-0.5)
    return values, torch.stack([torch.zeros_like(mean), _above(likelihood, output, slope)], 1)


def _split(likelihood: StackedLikelihood, output: Tensor) -> tuple[Tensor, Tensor]:
    assert isinstance(likelihood.base, Gaussian)
    mean, log_variance = output.unbind(1)
    return mean, log_variance.clamp(min=likelihood.base.floor)


def _above(likelihood: StackedLikelihood, output: Tensor, slope: Tensor) -> Tensor:
    """No slope below the floor of the log-variance."""
    assert isinstance(likelihood.base, Gaussian)
    return slope.mul_(output[:, 1] >= likelihood.base.floor)


CLOSED: dict[tuple[type, str], Closed] = {
    (Categorical, "nll"): _label_nll,
    (Categorical, "negative_entropy"): _label_negative_entropy,
    (Gaussian, "nll"): _real_nll,
    (Gaussian, "negative_entropy"): _real_negative_entropy,
}


Noise = Callable[[tuple[int, ...]], Tensor]
Step = Callable[[Tensor, Tensor, int, Tensor | None], tuple[Tensor, Tensor | None]]
"""Writes the gradients of a batch (x, target, number, shares); gives the losses and the outputs. See `StackedStep`."""


class StackedStep:
    """The gradients of one batch.

    Args:
        method: the terms, with their numbers per replica.
        passes: through the model, for batches of this size.
        noise: standard normal numbers of shape (R, B, D), each replica's from its own stream.
    """

    def __init__(self, method: StackedMethod, passes: Passes, noise: Noise) -> None:
        self.method, self.passes, self.noise = method, passes, noise

    def __call__(
        self, x: Tensor, target: Tensor, number: int, shares: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Writes the gradients of step `number`.

        Args:
            x: (R, B, D).
            target: labels or scaled targets, (R, B) or (R, B, T).
            shares: what each example counts in its mean, (R, B); 1 each by default.

        Returns:
            The total loss of each replica (R,), and the output at x (R, B, K) where it was computed.
        """
        terms = self.method.active(number)
        clean = [term for term in terms if term.alpha is None]
        moved = [term for term in terms if term.alpha is not None]
        y = target.flatten(0, 1)
        shares = None if shares is None else shares.reshape(-1)
        wanted = self._directions(moved)
        total = x.new_zeros(len(x))
        output: Tensor | None = None
        gradients: dict[bool, Tensor] = {}
        self.passes.start()
        if clean or wanted:
            output = self.passes.forward(x)
            fused = shares is None and self._is_exact(clean, wanted)  # a share of 0 would erase a direction
            for plain, likelihood in wanted.items():
                if not fused:
                    gradients[plain] = self._direction(likelihood, output, y)
            if clean:
                share, pull = pulled(clean, output, y, shares)
                total += share
                uphill = self.passes.backward(pull, inputs=fused)
                if uphill is not None:
                    # The backward ran on a weighted mean: undo that for directions that keep the gradient's length.
                    scale = x.shape[1] / clean[0].weight
                    gradients[next(iter(wanted))] = uphill * scale.view(-1, 1, 1)
            output = output.clone() if moved else output
        for term in moved:
            share, pull = pulled([term], self.passes.forward(self._moved(term, x, y, gradients)), y, shares)
            total += share
            self.passes.backward(pull)
        return total, output

    def _directions(self, terms: Sequence[StackedTerm]) -> dict[bool, StackedLikelihood]:
        """The losses whose gradient with respect to x is needed: the training loss, the plain one, or both."""
        steps = [term.term.where for term in terms if isinstance(term.term.where, GradientStep)]
        return {self._is_plain(where): self._loss(where) for where in steps}

    def _is_plain(self, where: GradientStep) -> bool:
        """Whether the direction comes from another loss than the training loss."""
        return where.loss == "plain" and self.method.likelihood.smoothing is not None

    def _loss(self, where: GradientStep) -> StackedLikelihood:
        return self.method.likelihood.plain() if self._is_plain(where) else self.method.likelihood

    def _is_exact(self, clean: Sequence[StackedTerm], wanted: dict[bool, StackedLikelihood]) -> bool:
        """Whether the clean backward gives the one direction that is wanted; as in `fused.third_backward`."""
        if len(clean) != 1 or list(wanted) != [False]:
            return False
        only = clean[0]
        return only.term.measure == "nll" and only.likelihood is self.method.likelihood and only.positive

    def _direction(self, likelihood: StackedLikelihood, output: Tensor, y: Tensor) -> Tensor:
        """The gradient of the summed negative log-likelihood with respect to x, (R, B, D)."""
        uphill = self.passes.backward(nll_slopes(likelihood, output, y), weights=False, inputs=True)
        assert uphill is not None
        return uphill.clone()

    def _moved(self, term: StackedTerm, x: Tensor, y: Tensor, gradients: dict[bool, Tensor]) -> Tensor:
        """x' of a term, (R, B, D): what the term's perturbation does, with a distance per replica."""
        where = term.term.where
        assert term.alpha is not None
        alpha = term.alpha.view(-1, 1, 1)
        if isinstance(where, RandomStep):
            return _within(where, x + alpha * _unit(self.noise(tuple(x.shape)), where.norm))
        assert isinstance(where, GradientStep)
        size = alpha / where.steps
        step = size * _unit(gradients[self._is_plain(where)], where.norm)
        for _ in range(where.steps - 1):
            output = self.passes.forward(_within(where, x + step))
            step = step + size * _unit(self._direction(self._loss(where), output, y), where.norm)
        if where.steps > 1 and where.norm == "l2":
            step = alpha * _unit(step, "l2")
        return _within(where, x + step)


def _unit(g: Tensor, norm: Norm) -> Tensor:
    """Every example of every replica scaled to length 1, (R, B, D)."""
    return unit(g.flatten(0, 1), norm).view_as(g)


def _within(where: Move, x: Tensor) -> Tensor:
    return x if where.bounds is None else x.clamp(*where.bounds)
