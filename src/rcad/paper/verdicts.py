"""A suite's claims judged: two sides paired by seed, a rule written down beforehand, a note where it is silent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rcad.paper.claims import TRIAL, Draft, judged
from rcad.paper.sides import NOT_MEASURED, Cells, Seeds, Side, compare
from rcad.paper.suite import PlannedClaim, Suite
from rcad.paper.summaries import Summary
from rcad.study.statistics import Paired

__all__ = ["Seeds", "compare", "verdicts"]


def verdicts(
    suite: Suite,
    cells: Cells,
    not_measured: frozenset[Side] = frozenset(),
    *,
    said: str = "",
    trial: bool = False,
) -> list[dict[str, Any]]:
    """Every claim of the suite as plain data: those on pairs, Holm over what could be tested, and those on the whole.

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
        notes = (note or said, printed_p(claim, gain))
        drawn.append((claim, gain, "; ".join(one for one in notes if one)))
        if gain is not None:
            tested.append(Draft(claim.where, claim.statement, gain, claim.published))
    done = iter(judged(tested, trial=trial))
    none = TRIAL if trial else "undecided"
    known = {side: seeds for side, seeds in cells.items() if side not in not_measured}
    return [
        *(_plain(c, note, {"verdict": none} if gain is None else next(done).to_dict()) for c, gain, note in drawn),
        *(_on_the_whole(summary, known, said, trial=trial) for summary in suite.summaries),
    ]


def printed_p(claim: PlannedClaim, gain: Paired | None) -> str:
    """The p-value that the paper gives for a claim beside ours, both before any correction."""
    if claim.p is None:
        return ""
    ours = "" if gain is None else f"; ours {gain.p_greater:.2g}, before Holm"
    return f"p in the paper {claim.p}{ours}"


def _on_the_whole(summary: Summary, cells: Cells, said: str, *, trial: bool) -> dict[str, Any]:
    found = summary.found(cells)
    return {
        "where": summary.where,
        "statement": summary.statement,
        "ours": found.ours,
        "rule": summary.rule,
        "gain": None if found.gain is None else found.gain.to_dict(),
        "published": found.published,
        "p_holm": None,
        "p_reverse_holm": None,
        "verdict": TRIAL if trial else found.verdict,
        "note": said,
    }


def _plain(claim: PlannedClaim, note: str, tested: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "where": claim.where,
        "statement": claim.statement,
        "gain": tested.get("gain"),
        "published": claim.published,
        "published_p": claim.p,
        "p_holm": tested.get("p_holm"),
        "p_reverse_holm": tested.get("p_reverse_holm"),
        "verdict": tested["verdict"],
        "note": note,
    }
