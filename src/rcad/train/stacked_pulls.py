"""The terms of a step and their gradients with respect to the output, in closed form where there is a short one.

Autograd gives the same numbers (a test compares them), but for nets this small it takes longer than the net itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rcad.likelihoods import LOG_2PI, Categorical, Gaussian
from rcad.train.stacked_method import StackedTerm

Closed = Callable[[StackedTerm, Tensor, Tensor], tuple[Tensor, Tensor]]


def pulled(
    terms: Sequence[StackedTerm], output: Tensor, y: Tensor, shares: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The weighted sum of the terms for each replica (R,), and its gradient with respect to the output (R, B, K).

    `shares` (R * B,) says what each example counts in a mean.
    """
    if len(terms) == 1 and (closed := _closed(terms[0])) is not None:
        only = terms[0]
        with torch.no_grad():
            values, slopes = closed(only, output.detach().flatten(0, 1), y)
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


def _closed(term: StackedTerm) -> Closed | None:
    """What gives the measure of each row (N,) and its own gradient (N, K) without a graph."""
    base, measure = term.likelihood.base, term.term.measure
    if term.likelihood.smoothing is not None or not isinstance(measure, str):
        return None
    if isinstance(getattr(base, "cap", None), tuple):
        return None
    return CLOSED.get((type(base), measure))


def _label_nll(term: StackedTerm, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    log_p, index = output.log_softmax(1), y.long().unsqueeze(1)
    values = -log_p.gather(1, index).squeeze(1)
    return values, log_p.exp_().scatter_(1, index, -1.0, reduce="add")


def _label_negative_entropy(term: StackedTerm, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    log_p = output.log_softmax(1)
    p = log_p.exp()
    values = (p * log_p).sum(1, keepdim=True)
    return values.squeeze(1), log_p.sub_(values).mul_(p)


def _real_nll(term: StackedTerm, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    mean, log_variance = _split(term, output)
    error, precision = mean - y, (-log_variance).exp_()
    slope = error * precision
    square = slope * error
    values = (log_variance + square).add_(LOG_2PI).mul_(0.5)
    return values, torch.stack([slope, _above(term, output, (1 - square).mul_(0.5))], 1)


def _real_negative_entropy(term: StackedTerm, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    mean, log_variance = _split(term, output)
    cap: float | None = getattr(term.likelihood.base, "cap", None)
    limit = float("inf") if cap is None else cap
    slope = (log_variance < limit).to(output.dtype).mul_(-0.5)
    values = log_variance.clamp_(max=limit).add_(LOG_2PI + 1).mul_(-0.5)
    return values, torch.stack([torch.zeros_like(mean), _above(term, output, slope)], 1)


def _split(term: StackedTerm, output: Tensor) -> tuple[Tensor, Tensor]:
    assert isinstance(term.likelihood.base, Gaussian)
    mean, log_variance = output.unbind(1)
    return mean, log_variance.clamp(min=term.likelihood.base.floor)


def _above(term: StackedTerm, output: Tensor, slope: Tensor) -> Tensor:
    """No slope below the floor of the log-variance."""
    assert isinstance(term.likelihood.base, Gaussian)
    return slope.mul_(output[:, 1] >= term.likelihood.base.floor)


CLOSED: dict[tuple[type, str], Closed] = {
    (Categorical, "nll"): _label_nll,
    (Categorical, "negative_entropy"): _label_negative_entropy,
    (Gaussian, "nll"): _real_nll,
    (Gaussian, "negative_entropy"): _real_negative_entropy,
}
