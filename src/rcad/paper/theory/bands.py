"""How a number spreads over draws: quantiles, means with intervals, shares with intervals."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
Z95 = 1.959964  # two-sided 95% point of the normal


@dataclass(frozen=True)
class Band:
    """Quantiles and mean over draws, one entry per iteration or grid point."""

    q05: list[float]
    q25: list[float]
    median: list[float]
    q75: list[float]
    q95: list[float]
    mean: list[float]

    @classmethod
    def over_draws(cls, values: Tensor) -> Band:
        """values: (points, draws)."""
        # Sorted by hand: torch.quantile refuses inputs of more than 16 million elements.
        ordered = values.double().sort(dim=-1).values
        last = ordered.shape[-1] - 1
        columns = []
        for q in QUANTILES:
            low = math.floor(q * last)
            part = q * last - low
            columns.append(ordered[:, low] * (1 - part) + ordered[:, min(low + 1, last)] * part)
        return cls(*(_rounded(c) for c in (*columns, values.double().mean(-1))))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _rounded(values: Tensor) -> list[float]:
    return [round(v, 5) for v in values.tolist()]


@dataclass(frozen=True)
class Interval:
    """An estimate with a 95% interval."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def mean_interval(values: Tensor) -> Interval:
    """Mean over draws with its normal interval. values: (draws,)."""
    mean = values.double().mean().item()
    half = Z95 * values.double().std().item() / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def share_interval(holds: Tensor) -> Interval:
    """Share of draws where something holds, with Wilson's interval, which is honest at 0 and 1 too. holds: (draws,)."""
    n, p = len(holds), holds.double().mean().item()
    scale = 1 + Z95**2 / n
    centre = (p + Z95**2 / (2 * n)) / scale
    half = Z95 / scale * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n * n))
    return Interval(p, max(0.0, centre - half), min(1.0, centre + half))
