"""What a skorch net's criterion says about the module's output, and the criterion that regression needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from rcad.errors import InputError, Value
from rcad.integrations.resolve import OPTIONS
from rcad.loss.criterion import Criterion
from rcad.loss.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood, full_precision

INSTEAD = {
    "weight": "pass method=rcad.RCAD(..., likelihood=rcad.Categorical(weight=...))",
    "pos_weight": "pass method=rcad.RCAD(..., likelihood=rcad.Bernoulli(positive_weight=...))",
    "label_smoothing": "put label_smoothing(eps=...) into the method",
}


class GaussianLoss(nn.Module):
    """A criterion for regression: the module gives the means, then the log-variances. See `rcad.Gaussian`."""

    def __init__(self, cap: float | tuple[float, ...] | None = 0.0) -> None:
        super().__init__()
        self.likelihood = Gaussian(cap=cap)

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return self.likelihood.nll(output, target).mean()


@dataclass(frozen=True, repr=False)
class FromProbabilities(Value):
    """Classes from a module that ends in a softmax, as skorch's default criterion expects it."""

    inner: Categorical = Categorical()

    def nll(self, output: Tensor, target: Tensor) -> Tensor:
        return self.inner.nll(_log(output), target)

    def entropy(self, output: Tensor, valid: Tensor | None = None) -> Tensor:
        return self.inner.entropy(_log(output), valid)

    def uniform_nll(self, output: Tensor, valid: Tensor | None = None) -> Tensor:
        return self.inner.uniform_nll(_log(output), valid)

    def valid(self, target: Tensor) -> Tensor | None:
        return self.inner.valid(target)

    def plain(self) -> FromProbabilities:
        return FromProbabilities(self.inner.plain())

    def check_shapes(self, output: Tensor, target: Tensor) -> None:
        self.inner.check_shapes(output, target)

    def check_values(self, output: Tensor, target: Tensor) -> None:
        self.inner.check_values(output, target)
        sums = output.detach().sum(1)
        if bool((output < 0).any()) or bool(((sums - 1).abs() > 1e-3).any()):
            raise InputError(
                "expected probabilities from the module, since the criterion is NLLLoss, but they do not sum to 1; "
                "end it in a softmax, or use criterion=torch.nn.CrossEntropyLoss"
            )


def _log(p: Tensor) -> Tensor:
    """As skorch takes it: with the smallest number that keeps the logarithm of 0 finite."""
    p = full_precision(p)
    return torch.log(p + torch.finfo(p.dtype).eps)


def likelihood_of(criterion: nn.Module) -> Likelihood | None:
    """What the module's output means to a net with this criterion; None if that cannot be told."""
    criterion = getattr(criterion, "_orig_mod", criterion)
    for name in ("weight", "pos_weight", "label_smoothing", "reduction"):
        value = getattr(criterion, name, None)
        # reduction="none" belongs to skorch's own way with sample weights.
        if isinstance(value, Tensor) or value not in (None, 0.0, "mean", "none"):
            found = f"a {name}" if isinstance(value, Tensor) else f"{name}={value}"
            hint = f"; {INSTEAD[name]}" if name in INSTEAD else ""
            raise InputError(
                f"expected a plain {type(criterion).__name__}, whose place the method takes in training, "
                f"but got {found}{hint}"
            )
    if isinstance(criterion, GaussianLoss):
        return criterion.likelihood
    if isinstance(criterion, nn.MSELoss):
        raise InputError(
            "expected a criterion for a mean and a log-variance, but got MSELoss, under which nothing is ever unsure; "
            "use RCADNetRegressor with a module that has two outputs per target"
        )
    if isinstance(criterion, nn.BCEWithLogitsLoss):
        return Bernoulli()
    return Categorical() if isinstance(criterion, nn.CrossEntropyLoss | nn.NLLLoss) else None


def reading_probabilities(criterion: Criterion) -> Criterion:
    """The same loss for a module that gives probabilities in place of logits."""

    def reading(likelihood: Any) -> Any:
        return FromProbabilities(likelihood) if isinstance(likelihood, Categorical) else likelihood

    loss = criterion.loss
    terms = [replace(term, likelihood=reading(term.likelihood)) for term in loss.terms]
    options: dict[str, Any] = {name: getattr(loss, name) for name in OPTIONS}
    return Criterion(reading(loss.likelihood), terms, **options)
