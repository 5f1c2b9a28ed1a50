"""Does a model know when it errs? Risk against coverage when the least confident examples are left out.

Geifman and El-Yaniv (2017): the risk at coverage k / N is the mean loss of the k most confident examples, and AURC is
its mean over k = 1 .. N. Equal confidences count with their mean loss, which is the exact expectation over a random
order among them. Excess AURC subtracts the AURC of the best order for the same losses (Geifman, Uziel and El-Yaniv,
2019, here for N examples and not in the limit), so that 0 is a perfect ranking. Losses are 0 or 1, so all are
fractions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rcad.errors import InputError, whole
from rcad.loss.predictions import Check, Labelled, fetch, finite_check, tie_means


@dataclass(frozen=True)
class RiskCoverage:
    """The risk among the `coverage` most confident examples, and the area under it."""

    coverage: tuple[float, ...]
    risk: tuple[float, ...]
    aurc: float
    excess_aurc: float


def risk_coverage(output: Tensor, y: Tensor, *, points: int = 100) -> RiskCoverage:
    """For logits (B, K) and labels (B,): the share of errors among the examples of largest probability.

    Args:
        points: the curve is given at the coverages j / points (rounded up to whole examples); the areas always use
            every example.
    """
    seen = Labelled.of(output, y)
    return _curve(seen.log_confidence, 1 - seen.hit, points, seen.checks)


def risk_coverage_by(confidence: Tensor, loss: Tensor, *, points: int = 100) -> RiskCoverage:
    """The same for any score (B,), larger for surer, and any loss (B,): minus a predicted deviation and a square."""
    if confidence.ndim != 1 or confidence.shape != loss.shape or len(loss) == 0:
        raise InputError(
            f"expected one confidence and one loss per example, but got {tuple(confidence.shape)} and "
            f"{tuple(loss.shape)}"
        )
    confidence, loss = confidence.detach().double(), loss.detach().to(confidence.device).double()
    checks = finite_check("confidences", confidence, "drop those examples"), finite_check("losses", loss, "drop them")
    return _curve(confidence, loss, points, checks)


def areas(confidence: Tensor, loss: Tensor) -> dict[str, Tensor]:
    """`aurc` and `excess_aurc`."""
    aurc = risks(confidence, loss).mean()
    return {"aurc": aurc, "excess_aurc": aurc - risks(-loss, loss).mean()}


def risks(confidence: Tensor, loss: Tensor) -> Tensor:
    """The mean loss of the k most confident examples, for k = 1 .. N."""
    ordered, order = (-confidence).sort()
    expected = tie_means(ordered, loss[order])
    return expected.cumsum(0) / torch.arange(1, len(loss) + 1, device=loss.device)


def _curve(confidence: Tensor, loss: Tensor, points: int, checks: tuple[Check, ...]) -> RiskCoverage:
    whole("points", points, minimum=1)
    total = len(loss)
    points = min(points, total)
    kept = -(-torch.arange(1, points + 1, device=loss.device) * total // points)
    values = {"coverage": kept.double() / total, "risk": risks(confidence, loss)[kept - 1], **areas(confidence, loss)}
    found = fetch(values, checks)
    return RiskCoverage(tuple(found["coverage"]), tuple(found["risk"]), found["aurc"][0], found["excess_aurc"][0])
