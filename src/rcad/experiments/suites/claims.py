"""Claims of the paper with our paired difference and a verdict; Holm over all claims of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from rcad.experiments.suites.statistics import VERDICTS, Paired, Verdict, holm, judge

FOR_A_CONTROL = (
    "For the random direction, which the paper does not show, 'published' is the gain over ERM that the paper credits "
    "to the direction."
)


class Draft(NamedTuple):
    """A claim before it is judged.

    Attributes:
        where: the row of the table.
        statement: who is better.
        gain: positive for the claim; None where a run diverged.
        published: the same difference as printed, > 0; None where the paper has none.
    """

    where: str
    statement: str
    gain: Paired | None
    published: float | None


@dataclass(frozen=True)
class Claim:
    """A judged claim; see `Draft`. The p-values are one-sided and adjusted: for the claim, and for its reverse."""

    where: str
    statement: str
    gain: Paired | None
    published: float | None
    p_holm: float
    p_reverse_holm: float
    verdict: Verdict

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def judged(drafts: Sequence[Draft]) -> list[Claim]:
    """Every draft with its verdict (`statistics.RULE`)."""
    forward = holm([1.0 if draft.gain is None else draft.gain.p_greater for draft in drafts])
    reverse = holm([1.0 if draft.gain is None else draft.gain.p_less for draft in drafts])
    return [
        Claim(*draft, p, q, judge(draft.gain, p, q, draft.published))
        for draft, p, q in zip(drafts, forward, reverse, strict=True)
    ]


def oriented(
    printed: Mapping[str, float] | None, first: str, second: str, *, lower: bool
) -> tuple[str, str, float | None]:
    """(winner, loser, published difference): as printed, or the first as the winner where nothing is printed."""
    if printed is None or first not in printed or second not in printed:
        return first, second, None
    gain = round((printed[second] - printed[first]) * (1 if lower else -1), 10)
    return (first, second, gain or None) if gain >= 0 else (second, first, -gain)


def tally(claims: Sequence[Claim]) -> str:
    """How many claims got each verdict, in words."""
    counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in VERDICTS}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
