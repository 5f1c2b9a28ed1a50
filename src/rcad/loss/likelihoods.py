"""What a model's output means. A likelihood gives one number per example; nothing here averages over the batch.

Extra dimensions (pixels, labels, coordinates of a target) are averaged within their example.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional as F

from rcad.errors import InputError, Value, finite, fraction, one_of

LOG_2PI = math.log(2 * math.pi)
LABELS_OR_NUMBERS = "pass y.long(), or for regression targets likelihood=Gaussian() and a model with 2 outputs"


@runtime_checkable
class Likelihood(Protocol):
    """The least a likelihood must offer: two functions of the model's output, each giving shape (B,)."""

    def nll(self, output: Tensor, target: Tensor) -> Tensor:
        """Minus the log-likelihood of `target`, one number per example."""

    def entropy(self, output: Tensor, valid: Tensor | None = None) -> Tensor:
        """The entropy of the predicted distribution; `valid` masks positions of dense outputs."""


@dataclass(frozen=True, repr=False)
class Categorical(Value):
    """One of K classes from K logits.

    Args:
        smoothing: label smoothing eps in [0, 1).
        convention: where eps goes: "all" spreads eps/K over all classes (PyTorch), "others" spreads
            eps/(K-1) over the classes that are not the label (the RCAD paper).
        weight: one factor per class, or None. An example's loss is multiplied, not renormalised.
        class_dim: the dimension of the logits that holds the classes: 1 for (B, K) and (B, K, H, W),
            -1 for tokens (B, T, K).
        ignore_index: positions of a dense target with this label count for nothing.

    Shape: output (B, K, ...). Target: integer labels (B, ...), or probabilities of the output's shape.
    """

    smoothing: float = 0.0
    convention: Literal["all", "others"] = "all"
    weight: tuple[float, ...] | None = None
    class_dim: int = 1
    ignore_index: int = -100

    def __post_init__(self) -> None:
        fraction("smoothing", self.smoothing)
        one_of("convention", self.convention, ("all", "others"))
        if self.weight is not None:
            object.__setattr__(self, "weight", numbers("weight", self.weight, "class"))
            for value in self.weight:
                finite("each class weight", value, minimum=0.0)

    def nll(self, output: Tensor, target: Tensor) -> Tensor:
        cost = -self._log_p(output)
        if self.weight is not None:
            cost = cost * cost.new_tensor(self.weight).view(1, -1, *[1] * (cost.ndim - 2))
        if target.is_floating_point():
            return per_example(self._soft_cost(cost, target.movedim(self.class_dim, 1).to(cost.dtype)))
        valid = self.valid(target)
        index = target if valid is None else torch.where(valid, target, 0)
        picked = cost.gather(1, index.long().unsqueeze(1)).squeeze(1)
        if self.smoothing:
            picked = (1 - self.smoothing) * picked + self.smoothing * self._spread(cost, picked)
        return per_example(picked, valid)

    def entropy(self, output: Tensor, valid: Tensor | None = None) -> Tensor:
        log_p = self._log_p(output)
        p = log_p.exp()
        # A class of probability exactly 0 adds 0, in value and in gradient, even where its logarithm is -inf.
        return per_example(-(p * torch.where(p > 0, log_p, 0)).sum(1), valid)

    def uniform_nll(self, output: Tensor, valid: Tensor | None = None) -> Tensor:
        """The cross-entropy to the uniform distribution: at least log K, there exactly when p is uniform."""
        return per_example(-self._log_p(output).mean(1), valid)

    def valid(self, target: Tensor) -> Tensor | None:
        """Which positions of a dense target count; None where all do."""
        return None if target.is_floating_point() or target.ndim < 2 else target.long() != self.ignore_index

    def plain(self) -> Categorical:
        """The same likelihood without smoothing and weights."""
        return replace(self, smoothing=0.0, weight=None)

    def check_shapes(self, output: Tensor, target: Tensor) -> None:
        if output.ndim < 2:
            raise InputError(f"expected logits of shape (B, K, ...), but got {tuple(output.shape)}")
        classes = output.shape[self.class_dim]
        if classes < 2:
            raise InputError(
                f"expected at least 2 classes, but got an output of shape {tuple(output.shape)}; "
                "for one logit per example use likelihood=Bernoulli(), for regression targets Gaussian() with 2 outputs"
            )
        if self.weight is not None and len(self.weight) != classes:
            raise InputError(f"expected {classes} class weights, one per class, but got {len(self.weight)}")
        hard = output.select(self.class_dim, 0).shape
        expected = output.shape if target.is_floating_point() else hard
        if target.shape != expected:
            remedy = f"; {LABELS_OR_NUMBERS}" if target.shape == hard else ""
            raise InputError(
                f"expected integer labels of shape {tuple(hard)} or probabilities of shape {tuple(output.shape)}, "
                f"but got {target.dtype} of shape {tuple(target.shape)}{remedy}"
            )

    def check_values(self, output: Tensor, target: Tensor) -> None:
        classes = output.shape[self.class_dim]
        if target.is_floating_point():
            sums = target.sum(self.class_dim)
            if not (bool((target >= 0).all()) and bool(((sums - 1).abs() <= 1e-3).all())):  # NaN is neither
                worst = sums.flatten()[(sums - 1).abs().argmax()].item()
                raise InputError(
                    "expected soft labels to be probabilities that sum to 1, "
                    f"but got a smallest entry of {target.min().item():.4g} and a sum of {worst:.4g}"
                )
            return
        target = target.long()  # 8 bits hold neither -100 nor many classes
        ignored = target == self.ignore_index
        outside = (target < 0) | (target >= classes)
        wrong = target[outside | ignored if target.ndim < 2 else outside & ~ignored]
        if wrong.numel():
            hint = "; drop the examples to be ignored" if int(wrong[0]) == self.ignore_index else ""
            raise InputError(
                f"expected labels from 0 to {classes - 1} for a model with {classes} outputs"
                f"{' and none of ignore_index, which is for dense ones' if hint else ''}, "
                f"but got {int(wrong[0])}{hint}"
            )

    def _log_p(self, output: Tensor) -> Tensor:
        return F.log_softmax(full_precision(output), dim=self.class_dim).movedim(self.class_dim, 1)

    def _soft_cost(self, cost: Tensor, target: Tensor) -> Tensor:
        if self.smoothing and self.convention == "all":
            target = (1 - self.smoothing) * target + self.smoothing / cost.shape[1]
        elif self.smoothing:
            target = (1 - self.smoothing) * target + self.smoothing * (1 - target) / (cost.shape[1] - 1)
        return (target * torch.where(target > 0, cost, 0)).sum(1)

    def _spread(self, cost: Tensor, picked: Tensor) -> Tensor:
        if self.convention == "all":
            return cost.mean(1)
        return (cost.sum(1) - picked) / (cost.shape[1] - 1)


@dataclass(frozen=True, repr=False)
class Gaussian(Value):
    """A regression target from a mean and a log-variance.

    The differential entropy has no maximum: paying the model for it makes the variance explode. It is therefore
    capped at the entropy of the marginal target, the counterpart of log K for K classes.

    Args:
        cap: upper limit on the log-variance inside `entropy`: log var(y_train), one number or one per target
            dimension. The default 0 is right for standardised targets, which also train best; `Gaussian.fit(y)`
            measures it; None removes the cap.
        floor: lower limit on the log-variance everywhere, so that a perfect fit stays finite.

    Shape: output (B, 2 D), the D means first, then the D log-variances. Target (B, D), or (B,) for D = 1.
    """

    cap: float | tuple[float, ...] | None = 0.0
    floor: float = -20.0

    def __post_init__(self) -> None:
        if isinstance(self.cap, Sequence):
            object.__setattr__(self, "cap", numbers("cap", self.cap, "target"))
        for value in () if self.cap is None else self.cap if isinstance(self.cap, tuple) else (self.cap,):
            finite("cap", value)
        finite("floor", self.floor)

    @classmethod
    def fit(cls, target: Any) -> Gaussian:
        """The likelihood whose entropy is capped at that of these training targets, (N,) or (N, D)."""
        y = torch.as_tensor(target, dtype=torch.float64)
        if y.ndim not in (1, 2) or len(y) < 2:
            raise InputError(f"expected at least 2 targets of shape (N,) or (N, D), but got {tuple(y.shape)}")
        variance = y.var(dim=0, correction=0)
        if not bool((variance > 0).all()):
            raise InputError("expected targets that vary, but got a constant target")
        log_variance = variance.log()
        return cls(cap=float(log_variance) if y.ndim == 1 else tuple(log_variance.tolist()))

    def nll(self, output: Tensor, target: Tensor) -> Tensor:
        mean, log_variance = self._split(output)
        error = mean - matching_target(mean, target).to(mean.dtype)
        return per_example(0.5 * (LOG_2PI + log_variance + error.square() * (-log_variance).exp()))

    def entropy(self, output: Tensor, valid: Tensor | None = None) -> Tensor:
        _, log_variance = self._split(output)
        if self.cap is not None:
            log_variance = torch.minimum(log_variance, log_variance.new_tensor(self.cap))
        return per_example(0.5 * (LOG_2PI + 1 + log_variance), valid)

    def plain(self) -> Gaussian:
        return self

    def check_shapes(self, output: Tensor, target: Tensor) -> None:
        if output.ndim != 2 or output.shape[1] % 2:
            raise InputError(
                f"expected an output of shape (B, 2 D), D means and D log-variances, but got {tuple(output.shape)}"
            )
        width = output.shape[1] // 2
        if isinstance(self.cap, tuple) and len(self.cap) != width:
            raise InputError(f"expected {width} caps, one per target dimension, but got {len(self.cap)}")
        matching_target(output[:, :width], target)

    def check_values(self, output: Tensor, target: Tensor) -> None:
        if not bool(torch.isfinite(target).all()):
            raise InputError("expected finite targets, but got NaN or inf; drop or impute those rows")

    def _split(self, output: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = full_precision(output).chunk(2, dim=1)
        return mean, log_variance.clamp(min=self.floor)


@dataclass(frozen=True, repr=False)
class Bernoulli(Value):
    """Independent yes/no labels from one logit each: binary classification (B,) or multi-label (B, L).

    Args:
        smoothing: eps in [0, 1): targets become (1 - eps) y + eps / 2.
        positive_weight: factor on the loss of positive labels.
    """

    smoothing: float = 0.0
    positive_weight: float = 1.0

    def __post_init__(self) -> None:
        fraction("smoothing", self.smoothing)
        finite("positive_weight", self.positive_weight, minimum=0.0)

    def nll(self, output: Tensor, target: Tensor) -> Tensor:
        z = full_precision(output)
        y = matching_target(z, target).to(z.dtype)
        y = (1 - self.smoothing) * y + self.smoothing / 2
        return per_example(self.positive_weight * y * F.softplus(-z) + (1 - y) * F.softplus(z))

    def entropy(self, output: Tensor, valid: Tensor | None = None) -> Tensor:
        # In |z| no large numbers cancel: log(1 + e^-|z|) + |z| p, with p the smaller of the two probabilities.
        z = full_precision(output).abs()
        return per_example(F.softplus(-z) + z * torch.sigmoid(-z), valid)

    def uniform_nll(self, output: Tensor, valid: Tensor | None = None) -> Tensor:
        """The cross-entropy to a fair coin: at least log 2."""
        z = full_precision(output)
        return per_example(0.5 * (F.softplus(z) + F.softplus(-z)), valid)

    def plain(self) -> Bernoulli:
        return Bernoulli()

    def check_shapes(self, output: Tensor, target: Tensor) -> None:
        matching_target(output, target)

    def check_values(self, output: Tensor, target: Tensor) -> None:
        low, high = target.min().item(), target.max().item()
        if not (low >= 0 and high <= 1):
            raise InputError(f"expected binary targets in [0, 1], but got values from {low:.4g} to {high:.4g}")


def numbers(name: str, values: Any, each: str) -> tuple[float, ...]:
    """The values as numbers, one for `each` channel, class or target; a text of digits is none."""
    try:
        if not isinstance(values, str):
            return tuple(float(value) for value in values)
    except (TypeError, ValueError):
        pass
    raise InputError(f"expected {name} to be numbers, one per {each}, but got {values!r}")


def full_precision(x: Tensor) -> Tensor:
    """x in at least float32: half precision is for the network, not for logarithms."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def per_example(values: Tensor, valid: Tensor | None = None) -> Tensor:
    """Averages every dimension but the first, over the `valid` positions only."""
    if values.ndim == 1:
        return values if valid is None else values * valid
    if valid is None:
        return values.flatten(1).mean(1)
    return (values * valid).flatten(1).sum(1) / valid.flatten(1).sum(1).clamp(min=1)


def matching_target(output: Tensor, target: Tensor) -> Tensor:
    """The target in the output's shape: (B,) is read as (B, 1)."""
    if target.shape == output.shape:
        return target
    if target.ndim == 1 and output.shape == (len(target), 1):
        return target[:, None]
    if target.ndim == 2 and output.ndim == 1 and target.shape == (len(output), 1):
        return target[:, 0]
    raise InputError(
        f"expected a target of shape {tuple(output.shape)} like the prediction, but got {tuple(target.shape)}"
    )
