"""Two cells of a table, paired by seed."""

from __future__ import annotations

from collections.abc import Mapping

from rcad.study.statistics import Paired, paired

FEWEST_SEEDS = 3
"""Below this a paired test has next to no power and no p-value is given."""
TOO_FEW, DIVERGED, NOT_RUN, NOT_MEASURED = "too few seeds", "a run diverged", "not run", "not measured"

Side = tuple[str, str]
"""A row and a column."""
Seeds = Mapping[int, float | None]
"""A cell's number by seed; None where its run diverged."""
Cells = Mapping[Side, Seeds]


def compare(winner: Seeds, loser: Seeds, higher_is_better: bool = True) -> tuple[Paired | None, str]:
    """The gain, positive for the claim, over the seeds that both have; or why there is none."""
    common = sorted(winner.keys() & loser.keys())
    if not common:
        return None, NOT_RUN
    first, second = [winner[seed] for seed in common], [loser[seed] for seed in common]
    if None in first or None in second:
        return None, DIVERGED
    if len(common) < FEWEST_SEEDS:
        return None, TOO_FEW
    sides = (first, second) if higher_is_better else (second, first)
    return paired(*sides), ""  # type: ignore[arg-type]
