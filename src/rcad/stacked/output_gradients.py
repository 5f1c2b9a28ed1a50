"""The terms of a step and their gradients with respect to the output, in closed form where there is a short one.

Autograd gives the same numbers (a test compares them), but for nets this small it takes longer than the net itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rcad.loss.likelihoods import LOG_2PI, Categorical, Gaussian
from rcad.stacked.method import StackedLikelihood, StackedTerm

Closed = Callable[[StackedLikelihood, Tensor, Tensor], tuple[Tensor, Tensor]]


def pulled(
    terms: Sequence[StackedTerm], output: Tensor, y: Tensor, shares: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The weighted sum of the terms for each replica (R,), and its gradient with respect to the output (R, B, K).

    `shares` (R * B,) says what each example counts in a mean.
    """
    if len(terms) == 1 and (closed := _closed(terms[0].likelihood, terms[0].term.measure)) is not None:
        only = terms[0]
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
    if (closed := _closed(likelihood, "nll")) is not None:
        with torch.no_grad():
            return closed(likelihood, output.detach().flatten(0, 1), y)[1].view_as(output)
    leaf = output.detach().flatten(0, 1).requires_grad_(True)
    (slopes,) = torch.autograd.grad(likelihood.nll(leaf, y).sum(), leaf)
    return slopes.view_as(output)


def _closed(likelihood: StackedLikelihood, measure: object) -> Closed | None:
    """What gives the measure of each row (N,) and its own gradient (N, K) without a graph."""
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
