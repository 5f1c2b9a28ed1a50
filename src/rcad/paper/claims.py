"""Claims of the paper and checks of our own: planned, then judged by a paired difference; Holm over all of a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rcad.runs.words import plural
from rcad.study.judge import CLAIM_RULE, VERDICTS, judge_claims
from rcad.study.statistics import FEWEST, Paired, paired

RANDOM, ENTROPY = "random direction", "entropy at x"
CONTROLS = (RANDOM, ENTROPY)
TOGETHER = "all of these in one draw"
"""The one claim of the linear theory that no sentence of the paper makes."""
FOR_A_CONTROL = (
    "For the random direction, which the paper does not show, 'published' is the gain over ERM that the paper credits "
    "to the direction."
)
TRIAL, NOT_RUN = "a trial", "not run"
"""What stands in place of a verdict: at the smoke scale, whose data are too few; and where a side has no runs."""
TOO_FEW, DIVERGED, NOT_MEASURED = "too few seeds", "a run diverged", "not measured"
IMAGE_RULE = (
    f"{CLAIM_RULE}. Only claims that could be tested count for Holm; differences are paired by seed. Every claim is "
    "judged twice: at the epoch that the held-out images chose, as the paper chooses, and at the last epoch, where "
    "nothing is chosen; each time Holm counts anew. The verdict that counts is the first; where the two differ, the "
    "choice of the epoch decides, and neither is to be relied on. NLL, Brier score and ECE, of which the paper claims "
    "nothing, are questions: two-sided, Holm over all of their table, better or worse below 0.05, else undecided"
)
Side = tuple[str, str]
"""A row and a column."""
Seeds = Mapping[int, float | None]
"""A cell's number by seed; None where its run diverged."""
Cells = Mapping[Side, Seeds]
PValues = Mapping[tuple[str, str], Mapping[str, str]]
"""One-sided p-values by (better, worse) and column, as printed."""


class PlannedClaim(NamedTuple):
    """A claim and its two sides.

    Attributes:
        where: the column it is about.
        published: the difference as printed, > 0; None where the paper has none.
        p: the paper's one-sided p-value, as printed; "" where it gives none.
    """

    where: str
    statement: str
    winner: Side
    loser: Side
    published: float | None
    p: str = ""

    @classmethod
    def of(cls, where: str, winner: str, better: str, loser: str, published: float | None = None) -> PlannedClaim:
        """One row against another of the same column."""
        return cls(where, f"{winner} {better} {loser}", (winner, where), (loser, where), published)


@dataclass(frozen=True)
class Claim:
    """A judged claim.

    Attributes:
        gain: our difference, positive for the claim (fields of `Paired`); None where there is no test.
        ours: what was found, in words, where it is no difference.
        p_holm, p_reverse_holm: one-sided and adjusted: for the claim, and for its reverse.
        note: why there is no test.
        rule: what judged it, where that is not the page's rule.
        published_p: the paper's p-value, as printed.
        last: the same claim at the last epoch, where nothing is chosen.
    """

    where: str
    statement: str
    verdict: str
    gain: Mapping[str, Any] | None = None
    published: float | None = None
    p_holm: float | None = None
    p_reverse_holm: float | None = None
    note: str = ""
    ours: str = ""
    rule: str = ""
    published_p: str = ""
    last: Claim | None = None


def oriented(
    printed: Mapping[str, float] | None, first: str, second: str, *, lower: bool
) -> tuple[str, str, float | None]:
    """(winner, loser, published difference): as printed, or the first as the winner where nothing is printed."""
    if printed is None or first not in printed or second not in printed:
        return first, second, None
    gain = round((printed[second] - printed[first]) * (1 if lower else -1), 10)
    return (first, second, gain or None) if gain >= 0 else (second, first, -gain)


def plan_claims(
    printed: Mapping[str, Mapping[str, float]],
    columns: Iterable[str],
    pairs: Iterable[tuple[str, str]],
    *,
    control: tuple[str, str, str] | None = ("RCAD", "ERM", RANDOM),
    better: Callable[[str], str] = lambda column: "is more accurate than",
    lower: bool = False,
    p_values: PValues | None = None,
) -> tuple[PlannedClaim, ...]:
    """Who is better in each column, as printed or, where nothing is, the first of each pair.

    Args:
        printed: means by column, then row.
        control: (method, reference, control): that the method beats the control, which is how the paper explains its
            gain over the reference; the paper shows no control, so that gain is what is set beside ours.
        better: the words of a column.
        lower: smaller numbers are better.
        p_values: the paper's.
    """
    found = []
    pairs = tuple(pairs)
    for column in columns:
        means = printed.get(column)
        for first, second in pairs:
            winner, loser, size = oriented(means, first, second, lower=lower)
            p = (p_values or {}).get((winner, loser), {}).get(column, "")
            found.append(PlannedClaim.of(column, winner, better(column), loser, size)._replace(p=p))
        if control is not None:
            method, reference, rival = control
            winner, _, size = oriented(means, method, reference, lower=lower)
            text = f"{method} {better(column)} a {rival}"
            sides = (method, column), (rival, column)
            found.append(PlannedClaim(column, text, *sides, size if winner == method else None))
    return tuple(found)


def judged(
    planned: Sequence[PlannedClaim],
    cells: Cells,
    *,
    higher_is_better: bool = True,
    overlap: Mapping[str, float] | None = None,
    not_measured: frozenset[Side] = frozenset(),
    said: str = "",
    trial: bool = False,
    count_all: bool = False,
) -> list[Claim]:
    """Every claim with its verdict (`CLAIM_RULE`); Holm over those that could be tested.

    Args:
        count_all: Holm over the others too, as if their p were 1.
        overlap: by column, n_test / n_train of splits that share their rows.
        not_measured: cells whose runs are done but lack the number.
        said: a note on every claim that was tested, e.g. at which scale.
        trial: whether the data are too few for verdicts.
    """
    drawn: list[tuple[Paired | None, str]] = []
    for one in planned:
        ratio = (overlap or {}).get(one.where, 0.0)
        gain, note = gain_of(cells.get(one.winner, {}), cells.get(one.loser, {}), higher_is_better, ratio)
        if {one.winner, one.loser} & not_measured:
            gain, note = None, NOT_MEASURED
        drawn.append((gain, note or "; ".join(text for text in (said, _printed_p(one, gain)) if text)))
    counted = [k for k, (gain, _) in enumerate(drawn) if count_all or gain is not None]
    verdicts = judge_claims([drawn[k][0] for k in counted], [planned[k].published for k in counted])
    by = dict(zip(counted, verdicts, strict=True))
    found = []
    for k, (one, (gain, note)) in enumerate(zip(planned, drawn, strict=True)):
        if gain is None:
            verdict = NOT_RUN if note == NOT_RUN else TRIAL if trial else "undecided"
            found.append(Claim(one.where, one.statement, verdict, None, one.published, note=note, published_p=one.p))
        else:
            verdict = TRIAL if trial else by[k].verdict
            p = by[k].p, by[k].p_reverse
            tested = Claim(one.where, one.statement, verdict, gain.to_dict(), one.published, *p, note)
            found.append(replace(tested, published_p=one.p))
    return found


def _printed_p(claim: PlannedClaim, gain: Paired | None) -> str:
    """The p-value that the paper gives for a claim beside ours, both before any correction."""
    if not claim.p:
        return ""
    ours = "" if gain is None else f"; ours {gain.p_greater:.2g}, before Holm"
    return f"p in the paper {claim.p}{ours}"


def gain_of(
    winner: Seeds, loser: Seeds, higher_is_better: bool = True, overlap: float = 0.0, *, fewest: int = FEWEST
) -> tuple[Paired | None, str]:
    """The gain, positive for the claim, over the seeds that both have; or why there is none.

    Leaving out a run that diverged would flatter its method.
    """
    common = sorted(winner.keys() & loser.keys())
    if not common:
        return None, NOT_RUN
    first, second = [winner[seed] for seed in common], [loser[seed] for seed in common]
    if None in first or None in second:
        return None, DIVERGED
    if len(common) < fewest:
        return None, TOO_FEW
    sides = (first, second) if higher_is_better else (second, first)
    return paired(*sides, test_ratio=overlap), ""  # type: ignore[arg-type]


def is_check(target: str, claim: Claim, controls: Sequence[str] = CONTROLS) -> bool:
    """Whether a claim is a check of ours: against a control, where a table prints nothing, or all in one draw."""
    unprinted = target.startswith("T") and claim.published is None
    return claim.statement.endswith(tuple(controls)) or unprinted or claim.statement == TOGETHER


class Tally(NamedTuple):
    """The verdicts on what the paper claims, and on what we added to it."""

    claims: Sequence[str]
    checks: Sequence[str]

    @classmethod
    def of(cls, target: str, claims: Iterable[Claim], controls: Sequence[str] = CONTROLS) -> Tally:
        """Of the claims of one table or figure."""
        sides: tuple[list[str], list[str]] = ([], [])
        for one in claims:
            sides[is_check(target, one, controls)].append(one.verdict)
        return cls(*sides)

    def told(self) -> tuple[str, str]:
        """How many got each verdict, in words: claims, and checks ("" where there are none)."""
        first = f"{plural(len(self.claims), 'claim')} of the paper: {by_verdict(self.claims)}"
        second = f"{plural(len(self.checks), 'check')} of ours: {by_verdict(self.checks)}"
        return first.removesuffix(": "), second if self.checks else ""

    def __str__(self) -> str:
        return "; ".join(part for part in self.told() if part)


def by_verdict(verdicts: Sequence[str]) -> str:
    """How often each was given, in words; a trial has none."""
    counts = Counter(verdicts)
    if counts[TRIAL]:
        return TRIAL
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in (*VERDICTS, NOT_RUN) if counts[verdict])
