"""How much a held-out split can tell apart: a choice among trials is no better than the examples it was made by."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

FEW = 100
"""Below so many examples an accuracy is known to no better than ten points."""
Z = 1.96


class HeldOut(NamedTuple):
    """The examples that a choice is made by.

    Attributes:
        examples: of one seed's held-out split.
        seeds: over which the numbers are averaged before the choice; each has a split of its own.
        metric: what decides.
    """

    examples: int
    seeds: int
    metric: str

    @property
    def few(self) -> bool:
        return self.examples * self.seeds < FEW

    @property
    def points(self) -> float | None:
        """Half the 95% interval of an accuracy over all of them, where it is widest: at 50%. None for other metrics."""
        return 100 * Z * math.sqrt(0.25 / (self.examples * self.seeds)) if self.metric == "accuracy" else None

    def __str__(self) -> str:
        many = "1 held-out example" if self.examples == 1 else f"{self.examples:,} held-out examples"
        where = f" on each of {self.seeds} seeds" if self.seeds > 1 else ""
        if self.points is None:
            return f"chosen by {many}{where}" + (", so few that small differences may be chance" if self.few else "")
        return (
            f"chosen by {many}{where}: an accuracy over so many is known to within {self.points:.2g} points (half the "
            "95% interval at its widest), and smaller differences may be chance"
        )

    def to_dict(self) -> dict[str, Any]:
        return {"examples": self.examples, "seeds": self.seeds, "points": self.points, "told": str(self)}
