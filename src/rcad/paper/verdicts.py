"""A suite's claims judged: two sides paired by seed, a rule written down beforehand, a note where it is silent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rcad.paper.claims import TRIAL, Draft, judged
from rcad.paper.suite import PlannedClaim, Side, Suite
from rcad.study.statistics import Paired, paired

FEWEST_SEEDS = 3
"""Below this a paired test has next to no power and no p-value is given."""
TOO_FEW, DIVERGED, NOT_RUN, NOT_MEASURED = "too few seeds", "a run diverged", "not run", "not measured"

Seeds = Mapping[int, float | None]
"""A cell's number by seed; None where its run diverged."""


def verdicts(
    suite: Suite,
    cells: Mapping[Side, Seeds],
    not_measured: frozenset[Side] = frozenset(),
    *,
    said: str = "",
    trial: bool = False,
) -> list[dict[str, Any]]:
    """Every claim of the suite as plain data; Holm over those that could be tested.

    Args:
        not_measured: cells whose runs are done but lack the number.
        said: a note on every claim that was tested, e.g. at which scale.
        trial: whether the data are too few for verdicts.
    """
    tested: list[Draft] = []
    drawn: list[tuple[PlannedClaim, Paired | None, str]] = []
    for claim in suite.claims:
        gain, note = compare(cells.get(claim.winner, {}), cells.get(claim.loser, {}), suite.higher_is_better)
        if {claim.winner, claim.loser} & not_measured:
            gain, note = None, NOT_MEASURED
        drawn.append((claim, gain, note or said))
        if gain is not None:
            tested.append(Draft(claim.where, claim.statement, gain, claim.published))
    done = iter(judged(tested, trial=trial))
    none = TRIAL if trial else "undecided"
    return [
        _plain(claim, note, {"verdict": none} if gain is None else next(done).to_dict()) for claim, gain, note in drawn
    ]


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


def _plain(claim: PlannedClaim, note: str, tested: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "where": claim.where,
        "statement": claim.statement,
        "gain": tested.get("gain"),
        "published": claim.published,
        "p_holm": tested.get("p_holm"),
        "p_reverse_holm": tested.get("p_reverse_holm"),
        "verdict": tested["verdict"],
        "note": note,
    }
