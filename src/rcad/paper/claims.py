"""Claims of the paper and checks of our own, with our paired difference and a verdict; Holm over all of a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from rcad.paper.targets import DRAWS
from rcad.study.judge import VERDICTS, Verdict, judge_claims
from rcad.study.statistics import Paired

FOR_A_CONTROL = (
    "For the random direction, which the paper does not show, 'published' is the gain over ERM that the paper credits "
    "to the direction."
)


TRIAL: Literal["a trial"] = "a trial"
"""What stands in place of a verdict where the data are too few to have one: at the smoke scale."""
RANDOM, ENTROPY = "random direction", "entropy at x"
CONTROLS = (RANDOM, ENTROPY)
TOGETHER = "all of these in one draw"
"""The one claim of the linear theory that no sentence of the paper makes."""


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
    """A judged claim; see `Draft`. The p-values are one-sided and adjusted: for the claim, and for its reverse.

    Attributes:
        ours, rule: what was found, in words, and how it is judged, of a claim that is no difference.
    """

    where: str
    statement: str
    gain: Paired | None
    published: float | None
    p_holm: float | None
    p_reverse_holm: float | None
    verdict: Verdict | Literal["a trial"]
    ours: str = ""
    rule: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value or name not in ("ours", "rule")}


def judged(drafts: Sequence[Draft], *, trial: bool = False) -> list[Claim]:
    """Every draft with its verdict (`statistics.RULE`); those of a trial have none."""
    found = judge_claims([draft.gain for draft in drafts], [draft.published for draft in drafts])
    return [
        Claim(*draft, one.p, one.p_reverse, TRIAL if trial else one.verdict)
        for draft, one in zip(drafts, found, strict=True)
    ]


def oriented(
    printed: Mapping[str, float] | None, first: str, second: str, *, lower: bool
) -> tuple[str, str, float | None]:
    """(winner, loser, published difference): as printed, or the first as the winner where nothing is printed."""
    if printed is None or first not in printed or second not in printed:
        return first, second, None
    gain = round((printed[second] - printed[first]) * (1 if lower else -1), 10)
    return (first, second, gain or None) if gain >= 0 else (second, first, -gain)


def claims_in(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The judged claims of a record; those of a trial have no verdict, whatever an older record says."""
    found: Iterable[Mapping[str, Any]] = record.get("claims", ())
    trial = scale_of(record) == "smoke"
    return [{**one, "verdict": TRIAL} if trial else one for one in found]


def scale_of(record: Mapping[str, Any]) -> str | None:
    """The scale of a record; that of the linear theory goes by its number of draws."""
    draws = record.get("figure", {}).get("settings", {}).get("draws")
    return record.get("scale") if "scale" in record or draws is None else scale_of_draws(draws)


def scale_of_draws(draws: int) -> str:
    """The scale of so many draws of the linear problem."""
    return "smoke" if draws < DRAWS["small"] else "small" if draws < DRAWS["full"] else "full"


def is_check(target: str, statement: str, published: float | None, controls: Sequence[str] = CONTROLS) -> bool:
    """Whether a claim is a check of ours: against a control, where a table prints nothing, or all in one draw."""
    unprinted = target.startswith("T") and published is None
    return statement.endswith(tuple(controls)) or unprinted or statement == TOGETHER


class Tally(NamedTuple):
    """The verdicts on what the paper claims, and on what we added to it."""

    claims: Sequence[str]
    checks: Sequence[str]

    @classmethod
    def of(cls, target: str, judged: Iterable[Mapping[str, Any]], controls: Sequence[str] = CONTROLS) -> Tally:
        """Of the claims of one table or figure, as plain data."""
        sides: tuple[list[str], list[str]] = ([], [])
        for one in judged:
            sides[is_check(target, one["statement"], one.get("published"), controls)].append(one["verdict"])
        return cls(*sides)

    def told(self) -> tuple[str, str]:
        """How many got each verdict, in words: claims, and checks ("" where there are none)."""
        claims, checks = len(self.claims), len(self.checks)
        first = f"{claims} {'claim' if claims == 1 else 'claims'} of the paper: {by_verdict(self.claims)}"
        second = f"{checks} {'check' if checks == 1 else 'checks'} of ours: {by_verdict(self.checks)}"
        return first.removesuffix(": "), second if checks else ""

    def __str__(self) -> str:
        return "; ".join(part for part in self.told() if part)


def by_verdict(verdicts: Sequence[str]) -> str:
    """How often each was given, in words."""
    counts = Counter(verdicts)
    if counts[TRIAL]:
        return TRIAL
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
