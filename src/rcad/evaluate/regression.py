"""All numbers of a Gaussian head: how far its means are off, and how honest its deviations are.

The output (B, 2) holds a mean and a log-variance, floored as in `rcad.Gaussian`, both in units of `scale`
times smaller than the target's own; every number below is in the target's own unit. With z = (y - mean) / deviation:

    nll         mean of -log density, nats
    rmse, mae   of the mean (which is also the median)
    crps        mean of deviation * (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)) (Gneiting and Raftery, 2007)
    coverage_L  fraction of targets inside the central interval of L percent; its ends count as inside
    sharpness   mean deviation; the mean width of a central interval is 2 Phi^-1((1 + L) / 2) times it
    pit_error   integral over u from 0 to 1 of |share of Phi(z) <= u  -  u|: 0 is calibrated, 1/2 the worst. It needs
                no bins: it is the distance by which the values Phi(z) must be moved, on average, to be uniform.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import torch
from torch import Tensor

from rcad.errors import InputError, finite, is_number
from rcad.loss.likelihoods import Gaussian, full_precision, matching_target
from rcad.loss.predictions import Check, fetch, fetch_numbers, finite_check, value_scores

LEVELS = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True, eq=False)
class Predicted:
    """A Gaussian head (B, 2) and its targets (B,), as they came, and their standardised errors in float64."""

    output: Tensor
    y: Tensor
    checks: tuple[Check, ...]

    @classmethod
    def of(cls, output: Tensor, y: Tensor) -> Predicted:
        if output.ndim != 2 or output.shape[1] != 2 or not output.is_floating_point():
            raise InputError(
                "expected a mean and a log-variance per example, shape (B, 2), "
                f"but got {output.dtype} of shape {tuple(output.shape)}"
            )
        target = matching_target(output[:, :1], y.detach().to(output.device))[:, 0]
        if len(target) == 0:
            raise InputError("expected at least one example, but got none")
        output = full_precision(output.detach())
        hint = "the model has diverged or its input is not finite"
        checks = finite_check("outputs", output, hint), finite_check("targets", target, "drop or impute those rows")
        return cls(output, target, checks)

    @cached_property
    def error(self) -> Tensor:
        return self.y.double() - self.output[:, 0].double()

    @cached_property
    def deviation(self) -> Tensor:
        return (0.5 * self.output[:, 1].double().clamp(min=Gaussian().floor)).exp()

    @cached_property
    def z(self) -> Tensor:
        return self.error / self.deviation


def regression(output: Tensor, y: Tensor, scale: float = 1.0, *, levels: Sequence[float] = LEVELS) -> dict[str, float]:
    """Every number of the list above, with one synchronisation; `nll` and `rmse` are those of `train.metrics.scores`.

    Args:
        output: mean and log-variance (B, 2), in the unit in which the model was trained.
        y: targets (B,) or (B, 1), in the same unit.
        scale: the deviation by which the targets were divided for training; 1 leaves everything in that unit.
    """
    finite("scale", scale, above=0.0)
    seen = Predicted.of(output, y)
    rows = value_scores(seen.output, seen.y)
    values = {
        # The density of y in its own unit is that of the scaled target divided by the scale.
        "nll": rows["nll"].mean() + math.log(scale),
        "rmse": rows["square"].mean().sqrt() * scale,
        "mae": seen.error.abs().mean() * scale,
        "crps": crps(seen).mean() * scale,
        "sharpness": seen.deviation.mean() * scale,
        "pit_error": pit_error(seen),
        **{f"coverage_{100 * level:g}": covered(seen, level).mean() for level in levels},
    }
    return fetch_numbers(values, seen.checks)


def interval_coverage(output: Tensor, y: Tensor, levels: Sequence[float] = LEVELS) -> tuple[float, ...]:
    """The fraction of targets inside the central interval of each level, for a calibration curve."""
    seen = Predicted.of(output, y)
    shares = torch.stack([covered(seen, level).mean() for level in levels])
    return tuple(fetch({"coverage": shares}, seen.checks)["coverage"])


def crps(seen: Predicted) -> Tensor:
    """The continuous ranked probability score of each example, in the unit of y."""
    z = seen.z
    below: Tensor = torch.special.ndtr(z)
    density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
    return seen.deviation * (z * (2 * below - 1) + 2 * density - 1 / math.sqrt(math.pi))


def covered(seen: Predicted, level: float) -> Tensor:
    """1.0 where the target lies in the central interval."""
    check_coverage(level)
    return (seen.z.abs() <= NormalDist().inv_cdf(0.5 + level / 2)).double()


def pit_error(seen: Predicted) -> Tensor:
    """The mean of |u_(i) - t| for t uniform in the i-th of B equal parts of [0, 1], u = Phi(z) in ascending order."""
    u: Tensor = torch.special.ndtr(seen.z).sort().values
    edges = torch.arange(len(u) + 1, device=u.device, dtype=u.dtype) / len(u)
    after, before = edges[1:] - u, edges[:-1] - u
    return 0.5 * (after * after.abs() - before * before.abs()).sum()


def check_coverage(coverage: float) -> None:
    if not (is_number(coverage) and 0 < coverage < 1):
        raise InputError(f"expected coverage to be a number between 0 and 1, but got {coverage!r}")
