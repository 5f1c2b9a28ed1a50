"""Predictions beside their labels: checked without a synchronisation of their own, scored, and their calibration.

Shapes are checked at once. Values are checked on the device, made harmless (a label out of range is clamped, so that
no kernel fails), and looked at together with the results, in the one transfer of `fetch`. The scores at the end are
what training averages every epoch; they check and fetch nothing: a diverged model gives NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from rcad.errors import InputError, one_of, whole
from rcad.loss.likelihoods import Categorical, Gaussian


class Check(NamedTuple):
    """A flag on the device, and what to say if it is up."""

    bad: Tensor
    says: Callable[[], str]


def fetch(values: Mapping[str, Tensor], checks: Sequence[Check]) -> dict[str, list[float]]:
    """All values, flattened, in one transfer; the first check that failed raises instead."""
    flags = torch.stack([check.bad for check in checks])
    parts = [value.detach().reshape(-1).double() for value in values.values()]
    numbers = torch.cat([flags.double(), *parts]).tolist()
    for check, bad in zip(checks, numbers, strict=False):
        if bad:
            raise InputError(check.says())
    unread = iter(numbers[len(checks) :])
    return {name: list(islice(unread, len(part))) for name, part in zip(values, parts, strict=True)}


def fetch_numbers(values: Mapping[str, Tensor], checks: Sequence[Check]) -> dict[str, float]:
    """`fetch` for values that are one number each."""
    return {name: numbers[0] for name, numbers in fetch(values, checks).items()}


def finite_check(name: str, values: Tensor, hint: str) -> Check:
    return Check(~torch.isfinite(values).all(), lambda: f"expected finite {name}, but got NaN or inf; {hint}")


@dataclass(frozen=True, eq=False)
class Labelled:
    """Logits (B, K) and labels (B,) in float64 and int64, and what several metrics share, computed once."""

    logits: Tensor
    y: Tensor
    checks: tuple[Check, ...]

    @classmethod
    def of(cls, output: Tensor, y: Tensor) -> Labelled:
        if output.ndim != 2 or not output.is_floating_point():
            raise InputError(f"expected logits of shape (B, K), but got {output.dtype} of shape {tuple(output.shape)}")
        if y.is_floating_point() or y.dtype == torch.bool:
            raise InputError(f"expected integer labels of shape ({len(output)},), but got {y.dtype}")
        Categorical().check_shapes(output, y)
        if len(y) == 0:
            raise InputError("expected at least one example, but got none")
        logits = output.detach().double()
        labels = y.detach().to(output.device).long()
        last = output.shape[1] - 1
        outside = Check(((labels < 0) | (labels > last)).any(), lambda: _label_fault(labels, last))
        wrong = finite_check("logits", logits, "the model has diverged or its input is not finite")
        return cls(logits, labels.clamp(0, last), (wrong, outside))

    def within_top(self, k: int) -> Tensor:
        """1.0 where the label is among the k largest logits, the first of equals; (B,)."""
        own = self.logits.gather(1, self.y[:, None])
        earlier = torch.arange(self.logits.shape[1], device=self.y.device) < self.y[:, None]
        before = (self.logits > own) | ((self.logits == own) & earlier)
        return (before.sum(1) < k).double()

    @cached_property
    def p(self) -> Tensor:
        """The predicted probabilities (B, K)."""
        return self.logits.softmax(1)

    @cached_property
    def predicted(self) -> Tensor:
        """The class of the largest logit, the first of equals."""
        return self.logits.argmax(1)

    @cached_property
    def confidence(self) -> Tensor:
        return self.p.amax(1)

    @cached_property
    def hit(self) -> Tensor:
        return (self.predicted == self.y).double()

    @cached_property
    def log_confidence(self) -> Tensor:
        return log_confidence(self.logits)


def log_confidence(logits: Tensor) -> Tensor:
    """The logarithm of the largest probability, which still ranks examples whose probability rounds to 1."""
    top = logits.argmax(1, keepdim=True)
    odds = (logits - logits.gather(1, top)).exp().scatter(1, top, 0.0)
    return -odds.sum(1).log1p()


def _label_fault(labels: Tensor, last: int) -> str:
    low, high = labels.min().item(), labels.max().item()
    return f"expected labels from 0 to {last} for a model with {last + 1} outputs, but got {low if low < 0 else high}"


def tie_bounds(ordered: Tensor) -> tuple[Tensor, Tensor]:
    """For each place of an ascending order, the first place of its group of equals and the one after the last."""
    return torch.searchsorted(ordered, ordered), torch.searchsorted(ordered, ordered, right=True)


def tie_means(ordered: Tensor, values: Tensor) -> Tensor:
    """Each value replaced by the mean of its group: what it is on average when equals are put in random order."""
    first, after = tie_bounds(ordered)
    total = F.pad(values.cumsum(0), (1, 0))
    means = (total[after] - total[first]) / (after - first)
    # A group of one keeps its value to the last bit.
    return torch.where(after - first == 1, values, means)


@torch.no_grad()
def label_scores(output: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Float64 (B,) each: `hit` (1 where the largest logit, the first of equals, is the label's), `nll`, `brier`."""
    wide = output.double()
    miss = wide.softmax(1)
    miss.scatter_add_(1, y[:, None], miss.new_full((len(y), 1), -1.0))
    hit = (output.argmax(1) == y).double()
    return {"hit": hit, "nll": Categorical().nll(wide, y), "brier": miss.square().sum(1)}


@torch.no_grad()
def value_scores(output: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Float64 (B,) each, in the unit of y: `nll` of a Gaussian head (B, 2), `square` of the error of its mean."""
    # Computed in the output's own precision, as in training; only what follows is wider.
    return {"nll": Gaussian().nll(output, y).double(), "square": (output[:, 0] - y).double().square()}


# Does a model that says 80% get 80% right? Bins are right-closed, ((b - 1) / M, b / M]; a probability of exactly 0
# belongs to the first. M = 15 as in Guo et al., "On calibration of modern neural networks", 2017.
BINS = 15
Kind = Literal["width", "mass"]


class Binned(NamedTuple):
    """Sums over the examples of each bin: how many, of the stated probability, of the outcome (0 or 1)."""

    size: Tensor
    forecast: Tensor
    outcome: Tensor

    def gap(self) -> Tensor:
        """The sum over bins of |outcomes - forecasts|."""
        return (self.outcome - self.forecast).abs().sum()


@dataclass(frozen=True)
class Reliability:
    """One entry per bin that holds examples, in ascending confidence, with its mean confidence and accuracy in [0, 1].

    The edges of bins of equal mass are the smallest and largest confidence in them.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    count: tuple[int, ...]
    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]


def ece(output: Tensor, y: Tensor, *, bins: int = BINS, kind: Literal["width", "mass", "classwise"] = "width") -> float:
    """The expected calibration error, a fraction in [0, 1].

    Args:
        output, y: logits (B, K) and labels (B,).
        kind: "width" and "mass" compare the confidence in the predicted class with its accuracy, in bins of equal
            width or of equally many examples; "classwise" does so for the probability of every class, in bins of
            equal width, and averages over the K classes (Kull et al., 2019; Nixon et al., 2019).

    With equal mass, place i (from 0) of the N sorted confidences belongs to bin floor(i M / N); examples of equal
    confidence each count with their common accuracy, so that their order does not matter.
    """
    one_of("kind", kind, ("width", "mass", "classwise"))
    labelled = Labelled.of(output, y)
    if kind == "classwise":
        return fetch_numbers({"ece": classwise_error(labelled, class_bins(labelled, bins))}, labelled.checks)["ece"]
    return fetch_numbers({"ece": top_label_error(labelled, bins, kind)}, labelled.checks)["ece"]


def reliability(output: Tensor, y: Tensor, *, bins: int = BINS, kind: Kind = "width") -> Reliability:
    """Confidence against accuracy of the predicted class, bin by bin."""
    one_of("kind", kind, ("width", "mass"))
    labelled = Labelled.of(output, y)
    binned = top_label_bins(labelled, bins, kind)
    edges = torch.arange(bins + 1, device=output.device, dtype=torch.float64) / bins
    lower, upper = (edges[:-1], edges[1:]) if kind == "width" else _mass_edges(labelled.confidence, bins)
    columns = {"lower": lower, "upper": upper, **binned._asdict()}
    found = zip(*fetch(columns, labelled.checks).values(), strict=True)
    rows = [(low, high, int(n), forecast / n, outcome / n) for low, high, n, forecast, outcome in found if n > 0]
    return Reliability(*zip(*rows, strict=True))


def top_label_error(labelled: Labelled, bins: int, kind: Kind) -> Tensor:
    return top_label_bins(labelled, bins, kind).gap() / len(labelled.y)


def classwise_error(labelled: Labelled, binned: Binned) -> Tensor:
    return binned.gap() / labelled.p.numel()


def top_label_bins(labelled: Labelled, bins: int, kind: Kind) -> Binned:
    """The bins of the predicted class, (M,) each."""
    if kind == "width":
        return _binned(width_bins(labelled.confidence, bins), labelled.confidence, labelled.hit, bins)
    whole("bins", bins, minimum=1)
    ordered, order = labelled.confidence.sort()
    places = torch.arange(len(order), device=order.device) * bins // len(order)
    return _binned(places, ordered, tie_means(ordered, labelled.hit[order]), bins)


def class_bins(labelled: Labelled, bins: int) -> Binned:
    """The bins of equal width of each class's probability, (K M,) each."""
    classes = labelled.p.shape[1]
    place = width_bins(labelled.p, bins) + bins * torch.arange(classes, device=labelled.p.device)
    own = place.gather(1, labelled.y[:, None]).view(-1)
    p = labelled.p.view(-1)
    binned = _binned(place.view(-1), p, torch.ones_like(p), classes * bins)
    return binned._replace(outcome=torch.zeros_like(binned.size).index_add_(0, own, p.new_ones(len(own))))


def width_bins(p: Tensor, bins: int) -> Tensor:
    """The index of each probability's right-closed bin of equal width."""
    whole("bins", bins, minimum=1)
    inner = torch.arange(1, bins, device=p.device, dtype=p.dtype) / bins
    return torch.bucketize(p, inner)


def _mass_edges(confidence: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """The first and the last confidence of each bin; what an empty bin gets is not looked at."""
    ordered = confidence.sort().values
    first = -(-torch.arange(bins + 1, device=ordered.device) * len(ordered) // bins)
    last = (first[1:] - 1).clamp(min=0)
    return ordered[first[:-1].clamp(max=len(ordered) - 1)], ordered[last]


def _binned(place: Tensor, forecast: Tensor, outcome: Tensor, size: int) -> Binned:
    nothing = forecast.new_zeros(size)
    return Binned(*(nothing.index_add(0, place, v) for v in (torch.ones_like(forecast), forecast, outcome)))
