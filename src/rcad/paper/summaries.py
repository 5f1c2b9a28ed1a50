"""Sentences of the paper about a whole figure: in how many pairs, how steep, no difference. Each has a rule of its own.

They are no part of Holm's family of a page: each is one question about all of its cells. Higher numbers are better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import linear_regression
from typing import NamedTuple

from rcad.errors import need
from rcad.paper.claims import NOT_RUN, TRIAL, Cells, Claim, Side, gain_of
from rcad.study.judge import Verdict, judge_claim
from rcad.study.statistics import FEWEST, LEVEL, Paired, paired

Pairs = Sequence[tuple[Side, Side]]
"""Who is said to be better, and than whom."""
FEWEST_PAIRS, FEWEST_SIZES = 6, 3
LITTLE, A_FEW = 0.5, 2
"""Points that count as hardly better, and columns that count as a few, are ours: the paper names neither."""


class Finding(NamedTuple):
    """What the cells say in words, the verdict, and of a trend its difference beside the printed one."""

    ours: str
    verdict: Verdict
    gain: Paired | None = None
    published: float | None = None


class Summary(NamedTuple):
    """A sentence, the rule that judges it, and what judges it; that gives None where too few cells were run."""

    where: str
    statement: str
    rule: str
    test: Callable[[Cells], Finding | None]

    def judge(self, cells: Cells, remark: str, *, trial: bool) -> Claim:
        """The sentence as a claim; a trial has no verdict."""
        found = self.test(cells)
        if found is None:
            return Claim(self.where, self.statement, NOT_RUN, note=NOT_RUN, ours=NOT_RUN, rule=self.rule)
        gain = None if found.gain is None else found.gain.to_dict()
        verdict = TRIAL if trial else found.verdict
        claim = Claim(self.where, self.statement, verdict, gain, found.published, note=remark)
        return replace(claim, ours=found.ours, rule=self.rule)


def most_pairs(where: str, statement: str, pairs: Pairs, printed: tuple[int, int]) -> Summary:
    """The first is better in most pairs: a sign test. printed: in how many of how many the paper says so."""

    def test(cells: Cells) -> Finding | None:
        gains, wins, p, reverse = _signs(cells, pairs)
        if not gains:
            return None
        sure = sum(gain.p_greater < 1e-3 for gain in gains)
        ours = f"better in {wins} of {len(gains)} pairs, p = {p:.2g}; with p < 0.001 each in {sure}"
        share = need("scipy.stats", "scipy").binomtest(wins, len(gains)).proportion_ci(method="exact").high
        less: Verdict = "not reproduced" if share < printed[0] / printed[1] else "undecided"
        verdict: Verdict = "reproduced" if p < LEVEL else "opposite" if reverse < LEVEL else less
        return Finding(ours + _left(gains, pairs), verdict)

    rule = (
        "one-sided sign test over the pairs that were run, p below 0.05; opposite: that of the reverse; not "
        "reproduced: the 95% interval of the share lies below the published one"
    )
    return Summary(where, statement, rule, test)


def none_ahead(where: str, statement: str, pairs: Pairs) -> Summary:
    """Neither side is ahead in more pairs than chance would have it."""

    def test(cells: Cells) -> Finding | None:
        gains, wins, *tails = _signs(cells, pairs)
        done, left = len(gains), _left(gains, pairs)
        if done < FEWEST_PAIRS:
            return Finding(f"{done} pairs{left}", "undecided") if done else None
        p, mean = min(1.0, 2 * min(tails)), sum(gain.mean for gain in gains) / done
        ours = f"the first is ahead in {wins} of {done}, p = {p:.2g}; on average by {mean:+.2f}{left}"
        return Finding(ours, "reproduced" if p >= LEVEL else "not reproduced")

    rule = "two-sided sign test over the pairs that were run, at least six, p of 0.05 or more; not reproduced: below"
    return Summary(where, statement, rule, test)


def as_good(where: str, statement: str, pairs: Pairs) -> Summary:
    """On a few columns the first is at most a little better than the second."""

    def test(cells: Cells) -> Finding | None:
        gains = _gains(cells, pairs)
        close, done = sum(gain.high < LITTLE for gain in gains), len(gains)
        if not done:
            return None
        less: Verdict = "not reproduced" if done == len(pairs) else "undecided"
        ours = f"on {close} of {done} columns{_left(gains, pairs)}"
        return Finding(ours, "reproduced" if close >= A_FEW else less)

    rule = (
        f"the 95% interval of the difference lies below {LITTLE:g} points on at least {A_FEW} columns; "
        f"undecided while fewer than {A_FEW} were run"
    )
    return Summary(where, statement, rule, test)


def steeper_trend(
    where: str, statement: str, rows: tuple[str, str], columns: Sequence[tuple[str, int]], published: float
) -> Summary:
    """The first row gains more on the second the fewer examples there are: slopes over log10 of their number.

    Args:
        columns: by name, with the number of examples.
        published: the same slope of the printed numbers, in points per tenfold fewer examples.
    """

    def test(cells: Cells) -> Finding | None:
        run = [(name, n) for name, n in columns if _gains(cells, [((rows[0], name), (rows[1], name))])]
        seeds = sorted(set.intersection(*(set(cells[row, name]) for name, _ in run for row in rows))) if run else []
        if len(run) < FEWEST_SIZES or len(seeds) < FEWEST:
            return None
        slopes = [
            [fewer_is_more([(n, float(cells[row, name][seed] or 0)) for name, n in run]) for seed in seeds]
            for row in rows
        ]
        gain, whole = paired(*slopes), published if len(run) == len(columns) else None
        ours = f"{gain.mean:+.2f} [{gain.low:.2f}, {gain.high:.2f}] points per tenfold fewer examples"
        verdict = judge_claim(gain, gain.p_greater, gain.p_less, whole)
        return Finding(ours + _left(run, columns), verdict, gain, whole)

    rule = (
        "the difference's slope over log10 of the number of examples, seed by seed: one-sided paired p below 0.05; "
        "opposite: that of the reverse; not reproduced: the 95% interval lies below the published slope"
    )
    return Summary(where, statement, rule, test)


def fewer_is_more(points: Sequence[tuple[int, float]]) -> float:
    """The slope of a line through (number of examples, value), per tenfold fewer examples."""
    return linear_regression([-math.log10(count) for count, _ in points], [value for _, value in points]).slope


def _gains(cells: Cells, pairs: Pairs) -> list[Paired]:
    """The pairs that were run, first minus second."""
    gains = (gain_of(cells.get(first, {}), cells.get(second, {}))[0] for first, second in pairs)
    return [gain for gain in gains if gain is not None]


def _signs(cells: Cells, pairs: Pairs) -> tuple[list[Paired], int, float, float]:
    """The pairs that differ, in how many the first wins, and p of a fair coin for so many wins, and losses."""
    gains = [gain for gain in _gains(cells, pairs) if gain.mean]
    wins = sum(gain.mean > 0 for gain in gains)
    test = need("scipy.stats", "scipy").binomtest
    p, reverse = (test(n, max(1, len(gains)), alternative="greater").pvalue for n in (wins, len(gains) - wins))
    return gains, wins, float(p), float(reverse)


def _left(done: Sequence[object], planned: Sequence[object]) -> str:
    return f" ({len(planned) - len(done)} more were not run)" if len(done) < len(planned) else ""
