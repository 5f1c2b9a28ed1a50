"""Does a model that says 80% get 80% right? Expected calibration errors, as fractions, and the reliability curve.

Bins are right-closed, ((b - 1) / M, b / M]; a probability of exactly 0 belongs to the first, 1 to the last. M = 15 as
in Guo et al., "On calibration of modern neural networks", 2017. An empty bin adds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from rcad.errors import one_of
from rcad.loss.predictions import Labelled, checked_bins, fetch, fetch_numbers, tie_means

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
    """One entry per bin that holds examples, in ascending confidence.

    Attributes:
        lower, upper: the bin's edges; for bins of equal mass the smallest and largest confidence in it.
        count: how many examples.
        confidence, accuracy: their means, as fractions.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    count: tuple[int, ...]
    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]


def ece(output: Tensor, y: Tensor, *, bins: int = BINS, kind: Literal["width", "mass", "classwise"] = "width") -> float:
    """The expected calibration error, a fraction in [0, 1].

    Args:
        output: logits (B, K).
        y: labels (B,).
        kind: "width" and "mass" compare the confidence in the predicted class with its accuracy, in bins of equal
            width or of equally many examples; "classwise" does so for the probability of every class, in bins of
            equal width, and averages over the K classes (Kull et al., 2019; Nixon et al., 2019).

    With equal mass, place i (from 0) of the N sorted confidences belongs to bin floor(i M / N); examples of equal
    confidence each count with their common accuracy, so that their order does not matter.
    """
    one_of("kind", kind, ("width", "mass", "classwise"))
    seen = Labelled.of(output, y)
    if kind == "classwise":
        return fetch_numbers({"ece": classwise_error(seen, class_bins(seen, bins))}, seen.checks)["ece"]
    return fetch_numbers({"ece": top_label_error(seen, bins, kind)}, seen.checks)["ece"]


def reliability(output: Tensor, y: Tensor, *, bins: int = BINS, kind: Kind = "width") -> Reliability:
    """Confidence against accuracy of the predicted class, bin by bin."""
    one_of("kind", kind, ("width", "mass"))
    seen = Labelled.of(output, y)
    found = top_label_bins(seen, bins, kind)
    edges = torch.arange(bins + 1, device=output.device, dtype=torch.float64) / bins
    lower, upper = (edges[:-1], edges[1:]) if kind == "width" else _mass_edges(seen.confidence, bins)
    columns = {"lower": lower, "upper": upper, **found._asdict()}
    rows = [row for row in zip(*fetch(columns, seen.checks).values(), strict=True) if row[2] > 0]
    low, high, count, forecast, outcome = zip(*rows, strict=True)
    return Reliability(
        low,
        high,
        tuple(int(c) for c in count),
        tuple(f / c for f, c in zip(forecast, count, strict=True)),
        tuple(o / c for o, c in zip(outcome, count, strict=True)),
    )


def top_label_error(seen: Labelled, bins: int, kind: Kind) -> Tensor:
    return top_label_bins(seen, bins, kind).gap() / len(seen.y)


def classwise_error(seen: Labelled, found: Binned) -> Tensor:
    return found.gap() / seen.p.numel()


def top_label_bins(seen: Labelled, bins: int, kind: Kind) -> Binned:
    """The bins of the predicted class, (M,) each."""
    if kind == "width":
        return _binned(width_bins(seen.confidence, bins), seen.confidence, seen.hit, bins)
    ordered, order = seen.confidence.sort()
    return _binned(_mass_bins(len(order), bins, order.device), ordered, tie_means(ordered, seen.hit[order]), bins)


def class_bins(seen: Labelled, bins: int) -> Binned:
    """The bins of equal width of each class's probability, (K M,) each."""
    classes = seen.p.shape[1]
    place = width_bins(seen.p, bins) + bins * torch.arange(classes, device=seen.p.device)
    own = place.gather(1, seen.y[:, None]).view(-1)
    p = seen.p.view(-1)
    found = _binned(place.view(-1), p, torch.ones_like(p), classes * bins)
    return found._replace(outcome=torch.zeros_like(found.size).index_add_(0, own, p.new_ones(len(own))))


def width_bins(p: Tensor, bins: int) -> Tensor:
    """The index of each probability's right-closed bin of equal width."""
    inner = torch.arange(1, checked_bins(bins), device=p.device, dtype=p.dtype) / bins
    return torch.bucketize(p, inner)


def _mass_bins(count: int, bins: int, device: torch.device) -> Tensor:
    return torch.arange(count, device=device) * checked_bins(bins) // count


def _mass_edges(confidence: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """The first and the last confidence of each bin; what an empty bin gets is not looked at."""
    ordered = confidence.sort().values
    first = -(-torch.arange(bins + 1, device=ordered.device) * len(ordered) // bins)
    last = (first[1:] - 1).clamp(min=0)
    return ordered[first[:-1].clamp(max=len(ordered) - 1)], ordered[last]


def _binned(place: Tensor, forecast: Tensor, outcome: Tensor, size: int) -> Binned:
    nothing = forecast.new_zeros(size)
    return Binned(*(nothing.index_add(0, place, v) for v in (torch.ones_like(forecast), forecast, outcome)))
