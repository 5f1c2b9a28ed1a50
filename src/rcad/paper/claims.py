"""Claims of the paper and checks of our own: planned, then judged by a paired difference; Holm over all of a page.

A summary, a sentence about a whole figure, has a rule of its own and is no part of Holm's family; higher is better.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import linear_regression
from typing import Any, NamedTuple

from rcad.errors import need
from rcad.paper.targets import RULES, TARGETS, Printed, PValues, Table
from rcad.study.judge import ALIKE, CLAIM_RULE, VERDICTS, judge_claim, judge_claims
from rcad.study.statistics import FEWEST, LEVEL, Paired, cohen_dz, paired

RANDOM, ENTROPY = "random direction", "entropy at x"
CONTROLS = (RANDOM, ENTROPY)
TOGETHER = TARGETS["F5"].claims["together"]["says"]
"""The one claim of the linear theory that no sentence of the paper makes."""
TRIAL, NOT_RUN = "a trial", "not run"
"""What stands in place of a verdict: at the smoke scale, whose data are too few; and where a side has no runs."""
TOO_FEW, DIVERGED, NOT_MEASURED = "too few seeds", "a run diverged", "not measured"
IMAGE_RULE = f"{CLAIM_RULE}. {RULES['images']}"
Side = tuple[str, str]
"""A row and a column."""
Seeds = Mapping[int, float | None]
"""A cell's number by seed; None where its run diverged."""
Cells = Mapping[Side, Seeds]


class PlannedClaim(NamedTuple):
    """A claim and its two sides, about a column; `published`, > 0, and `p`, one-sided, are as printed, if at all."""

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
        p_holm, p_reverse_holm: one-sided and adjusted: for the claim, and for its reverse.
        note: why there is no test.
        ours: what was found, in words, where it is no difference.
        rule: what judged it, where that is not the page's rule.
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


def orient(printed: Mapping[str, Printed], first: str, second: str, *, lower: bool) -> tuple[str, str, float | None]:
    """(winner, loser, published difference): as printed, or the first as the winner where nothing is printed."""
    if first not in printed or second not in printed:
        return first, second, None
    gain = round((printed[second].mean - printed[first].mean) * (1 if lower else -1), 10)
    return (first, second, gain or None) if gain >= 0 else (second, first, -gain)


def plan_claims(
    columns: Iterable[str],
    printed: Table,
    pairs: Sequence[tuple[str, str]],
    *,
    control: tuple[str, str, str] | None = ("RCAD", "ERM", RANDOM),
    better: str = "is more accurate than",
    lower: bool = False,
    p_values: PValues | None = None,
) -> tuple[PlannedClaim, ...]:
    """Who is better in each column, as printed or, where nothing is, the first of each pair.

    Args:
        control: (method, reference, control): that the method beats the control, which is how the paper explains its
            gain over the reference; the paper shows no control, so that gain is what is set beside ours.
        better: in words, {} for the column.
        lower: smaller numbers are better.
    """
    claims = []
    for column in columns:
        row, words = printed.get(column, {}), better.format(column)
        for first, second in pairs:
            winner, loser, size = orient(row, first, second, lower=lower)
            p = (p_values or {}).get((winner, loser), {}).get(column, "")
            claims.append(PlannedClaim.of(column, winner, words, loser, size)._replace(p=p))
        if control is not None:
            method, reference, rival = control
            winner, _, size = orient(row, method, reference, lower=lower)
            size = size if winner == method else None
            claims.append(PlannedClaim.of(column, method, f"{words} a", rival, size))
    return tuple(claims)


def judge_all(
    planned: Sequence[PlannedClaim],
    cells: Cells,
    *,
    higher_is_better: bool = True,
    overlap: Mapping[str, float] | None = None,
    not_measured: frozenset[Side] = frozenset(),
    remark: str = "",
    trial: bool = False,
    count_all: bool = False,
) -> list[Claim]:
    """Every claim with its verdict (`CLAIM_RULE`); Holm over those that could be tested.

    Args:
        overlap: by column, n_test / n_train of splits that share their rows.
        not_measured: cells whose runs are done but lack the number.
        remark: a note on every claim that was tested, e.g. at which scale.
        trial: the data are too few for verdicts.
        count_all: Holm over the others too, as if their p were 1.
    """
    claims: list[Claim] = []
    gains: list[Paired | None] = []
    for claim in planned:
        ratio = (overlap or {}).get(claim.where, 0.0)
        gain, note = gain_of(cells.get(claim.winner, {}), cells.get(claim.loser, {}), higher_is_better, ratio)
        if {claim.winner, claim.loser} & not_measured:
            gain, note = None, NOT_MEASURED
        verdict = NOT_RUN if note == NOT_RUN else TRIAL if trial else "undecided"
        ours = "" if gain is None else f"; ours {gain.p_greater:.2g}, before Holm"
        note = note or "; ".join(filter(None, (remark, claim.p and f"p in the paper {claim.p}{ours}")))
        numbers = None if gain is None else gain.to_dict()
        untested = Claim(claim.where, claim.statement, verdict, numbers, claim.published, note=note)
        claims.append(replace(untested, published_p=claim.p))
        gains.append(gain)
    counted = [k for k, gain in enumerate(gains) if count_all or gain is not None]
    verdicts = judge_claims([gains[k] for k in counted], [planned[k].published for k in counted])
    for k, outcome in zip(counted, verdicts, strict=True):
        if gains[k] is not None:
            verdict = TRIAL if trial else outcome.verdict
            claims[k] = replace(claims[k], verdict=verdict, p_holm=outcome.p, p_reverse_holm=outcome.p_reverse)
    return claims


def gain_of(
    winner: Seeds,
    loser: Seeds,
    higher_is_better: bool = True,
    overlap: float = 0.0,
    *,
    fewest: int = FEWEST,
    alike: bool = False,
) -> tuple[Paired | None, str]:
    """The gain, positive for the claim, over the seeds that both have; or why there is none.

    Leaving out a run that diverged would flatter its method. `alike`: also where every pair differs by the same amount,
    for a rule that asks for the sign alone.
    """
    common = sorted(winner.keys() & loser.keys())
    if not common:
        return None, NOT_RUN
    first, second = [winner[seed] for seed in common], [loser[seed] for seed in common]
    if None in first or None in second:
        return None, DIVERGED
    if len(common) < fewest:
        return None, TOO_FEW
    sides: Any = (first, second) if higher_is_better else (second, first)
    gain = paired(*sides, test_ratio=overlap)
    return (None, ALIKE) if gain.mean and not alike and cohen_dz(*sides) is None else (gain, "")


def by_verdict(verdicts: Sequence[str]) -> str:
    """How often each was given, in words; a trial has none."""
    counts = Counter(verdicts)
    if counts[TRIAL]:
        return TRIAL
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in (*VERDICTS, NOT_RUN) if counts[verdict])


Pairs = Sequence[tuple[Side, Side]]
"""Who is said to be better, and than whom."""
FEWEST_PAIRS, FEWEST_SIZES = 6, 3
LITTLE, A_FEW = 0.5, 2
"""Points that count as hardly better, and columns that count as a few, are ours: the paper names neither."""


class Summary(NamedTuple):
    """A sentence, the rule that judges it, and what judges it; that gives None where too few cells were run."""

    where: str
    statement: str
    rule: str
    test: Callable[[Cells], Claim | None]

    def judge(self, cells: Cells, remark: str, *, trial: bool) -> Claim:
        """The sentence as a claim; a trial has no verdict."""
        found = self.test(cells)
        if found is None:
            return Claim(self.where, self.statement, NOT_RUN, note=NOT_RUN, ours=NOT_RUN, rule=self.rule)
        return replace(found, verdict=TRIAL if trial else found.verdict, note=remark, rule=self.rule)


def most_pairs(where: str, statement: str, pairs: Pairs, printed: tuple[int, int]) -> Summary:
    """The first is better in most pairs: a sign test. printed: in how many of how many the paper says so."""

    def test(cells: Cells) -> Claim | None:
        run = _gains(cells, pairs)
        if not run:
            return None
        gains, wins, p, reverse = _signs(run)
        sure = sum(gain.p_greater < 1e-3 for gain in _gains(cells, pairs, alike=False))
        level = _level(gains, run)
        ours = f"better in {wins} of {len(gains)} pairs{level}, p = {p:.2g}; with p < 0.001 each in {sure}"
        share = need("scipy.stats", "scipy").binomtest(wins, len(gains) or 1).proportion_ci(method="exact").high
        less = "not reproduced" if share < printed[0] / printed[1] else "undecided"
        verdict = "reproduced" if p < LEVEL else "opposite" if reverse < LEVEL else less
        return Claim(where, statement, verdict, ours=ours + _left(run, pairs))

    return Summary(where, statement, RULES["most_pairs"], test)


def none_ahead(where: str, statement: str, pairs: Pairs) -> Summary:
    """Neither side is ahead in more pairs than chance would have it."""

    def test(cells: Cells) -> Claim | None:
        run = _gains(cells, pairs)
        gains, wins, *tails = _signs(run)
        done, left = len(gains), _level(gains, run) + _left(run, pairs)
        if done < FEWEST_PAIRS:
            return Claim(where, statement, "undecided", ours=f"{done} pairs{left}") if run else None
        p, mean = min(1.0, 2 * min(tails)), sum(gain.mean for gain in gains) / done
        ours = f"the first is ahead in {wins} of {done}, p = {p:.2g}; on average by {mean:+.2f}{left}"
        return Claim(where, statement, "reproduced" if p >= LEVEL else "not reproduced", ours=ours)

    return Summary(where, statement, RULES["none_ahead"], test)


def as_good(where: str, statement: str, pairs: Pairs) -> Summary:
    """On a few columns the first is at most a little better than the second."""

    def test(cells: Cells) -> Claim | None:
        gains = _gains(cells, pairs, alike=False)
        close, done = sum(gain.high < LITTLE for gain in gains), len(gains)
        if not done:
            return None
        less = "not reproduced" if done == len(pairs) else "undecided"
        ours = f"on {close} of {done} columns{_left(gains, pairs)}"
        return Claim(where, statement, "reproduced" if close >= A_FEW else less, ours=ours)

    return Summary(where, statement, RULES["as_good"].format(little=LITTLE, few=A_FEW), test)


def steeper_trend(
    where: str, statement: str, rows: tuple[str, str], columns: Sequence[tuple[str, int]], published: float
) -> Summary:
    """The first row gains more on the second the fewer examples there are: slopes over log10 of their number.

    published: the same slope of the printed numbers, in points per tenfold fewer examples.
    """

    def test(cells: Cells) -> Claim | None:
        run = [(name, n) for name, n in columns if _gains(cells, [((rows[0], name), (rows[1], name))])]
        seeds = sorted(set.intersection(*(set(cells[row, name]) for name, _ in run for row in rows))) if run else []
        if len(run) < FEWEST_SIZES or len(seeds) < FEWEST:
            return None
        slopes = [
            {seed: fewer_is_more([(n, float(cells[row, name][seed] or 0)) for name, n in run]) for seed in seeds}
            for row in rows
        ]
        gain, note = gain_of(slopes[0], slopes[1])
        if gain is None:
            return Claim(where, statement, "undecided", ours=note)
        whole = published if len(run) == len(columns) else None
        ours = f"{gain.mean:+.2f} [{gain.low:.2f}, {gain.high:.2f}] points per tenfold fewer examples"
        verdict = judge_claim(gain, gain.p_greater, gain.p_less, whole)
        return Claim(where, statement, verdict, gain.to_dict(), whole, ours=ours + _left(run, columns))

    return Summary(where, statement, RULES["steeper_trend"], test)


def fewer_is_more(points: Sequence[tuple[int, float]]) -> float:
    """The slope of a line through (number of examples, value), per tenfold fewer examples."""
    return linear_regression([-math.log10(count) for count, _ in points], [value for _, value in points]).slope


def _gains(cells: Cells, pairs: Pairs, *, alike: bool = True) -> list[Paired]:
    """The pairs that were run, first minus second."""
    gains = (gain_of(cells.get(first, {}), cells.get(second, {}), alike=alike)[0] for first, second in pairs)
    return [gain for gain in gains if gain is not None]


def _signs(run: Sequence[Paired]) -> tuple[list[Paired], int, float, float]:
    """The pairs that differ, in how many the first wins, and p of a fair coin for so many wins, and losses."""
    gains = [gain for gain in run if gain.mean]
    wins = sum(gain.mean > 0 for gain in gains)
    test = need("scipy.stats", "scipy").binomtest
    p, reverse = (test(n, max(1, len(gains)), alternative="greater").pvalue for n in (wins, len(gains) - wins))
    return gains, wins, float(p), float(reverse)


def _level(gains: Sequence[object], run: Sequence[object]) -> str:
    return f", {len(run) - len(gains)} level" if len(gains) < len(run) else ""


def _left(done: Sequence[object], planned: Sequence[object]) -> str:
    return f" ({len(planned) - len(done)} more were not run)" if len(done) < len(planned) else ""
