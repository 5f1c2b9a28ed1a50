"""Sentences of the paper about a whole figure: in how many pairs, how steep, no difference. Each has a rule of its own.

They are no part of Holm's family of a page: each is one question about all of its cells. Higher numbers are better.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from statistics import linear_regression
from typing import ClassVar

from rcad.errors import need
from rcad.paper.claims import NOT_RUN, TRIAL, Cells, Claim, Side, gain_of
from rcad.study.judge import judge_claim
from rcad.study.statistics import FEWEST, LEVEL, Paired, paired


@dataclass(frozen=True)
class Summary(ABC):
    """A sentence; its `rule` says how it is judged."""

    where: str
    statement: str
    rule: ClassVar[str]

    @abstractmethod
    def test(self, cells: Cells) -> Claim | None:
        """The sentence judged by these cells; None where too few were run."""

    def claim(self, ours: str, verdict: str, gain: Paired | None = None, published: float | None = None) -> Claim:
        """The sentence with a verdict, what the cells say in words, and the difference where there is one."""
        numbers = None if gain is None else gain.to_dict()
        return Claim(self.where, self.statement, verdict, numbers, published, ours=ours, rule=self.rule)

    def judge(self, cells: Cells, remark: str, *, trial: bool) -> Claim:
        """The sentence as a claim; a trial has no verdict."""
        claim = self.test(cells)
        if claim is None:
            return replace(self.claim(NOT_RUN, NOT_RUN), note=NOT_RUN)
        return replace(claim, verdict=TRIAL if trial else claim.verdict, note=remark)


@dataclass(frozen=True)
class PairSummary(Summary):
    """A sentence about many pairs: who is said to be better, and than whom."""

    pairs: tuple[tuple[Side, Side], ...]

    def gains(self, cells: Cells) -> list[Paired]:
        """The pairs that were run, first minus second."""
        gains = (gain_of(cells.get(first, {}), cells.get(second, {}))[0] for first, second in self.pairs)
        return [gain for gain in gains if gain is not None]

    def signs(self, cells: Cells) -> tuple[list[Paired], int, float, float]:
        """The pairs that differ, in how many the first wins, and p of a fair coin for so many wins, and losses."""
        gains = [gain for gain in self.gains(cells) if gain.mean]
        wins = sum(gain.mean > 0 for gain in gains)
        test = need("scipy.stats", "scipy").binomtest
        p, reverse = (test(n, max(1, len(gains)), alternative="greater").pvalue for n in (wins, len(gains) - wins))
        return gains, wins, float(p), float(reverse)


def _left(done: int, total: int) -> str:
    return f" ({total - done} more were not run)" if done < total else ""


@dataclass(frozen=True)
class MostPairs(PairSummary):
    """The first is better in most pairs: a sign test.

    Args:
        printed: in how many pairs of how many the paper says so.
    """

    printed: tuple[int, int]
    rule: ClassVar[str] = (
        "one-sided sign test over the pairs that were run, p below 0.05; opposite: that of the reverse; not "
        "reproduced: the 95% interval of the share lies below the published one"
    )

    def test(self, cells: Cells) -> Claim | None:
        gains, wins, p, reverse = self.signs(cells)
        if not gains:
            return None
        sure, left = sum(gain.p_greater < 1e-3 for gain in gains), _left(len(gains), len(self.pairs))
        ours = f"better in {wins} of {len(gains)} pairs, p = {p:.2g}; with p < 0.001 each in {sure}{left}"
        if p < LEVEL:
            return self.claim(ours, "reproduced")
        if reverse < LEVEL:
            return self.claim(ours, "opposite")
        share = need("scipy.stats", "scipy").binomtest(wins, len(gains)).proportion_ci(method="exact").high
        return self.claim(ours, "not reproduced" if share < self.printed[0] / self.printed[1] else "undecided")


@dataclass(frozen=True)
class NoneAhead(PairSummary):
    """Neither side is ahead in more pairs than chance would have it."""

    fewest: ClassVar[int] = 6
    rule: ClassVar[str] = (
        "two-sided sign test over the pairs that were run, at least six, p of 0.05 or more; not reproduced: below"
    )

    def test(self, cells: Cells) -> Claim | None:
        gains, wins, *tails = self.signs(cells)
        done, left = len(gains), _left(len(gains), len(self.pairs))
        if done < self.fewest:
            return self.claim(f"{done} pairs{left}", "undecided") if done else None
        p, mean = min(1.0, 2 * min(tails)), sum(gain.mean for gain in gains) / done
        ours = f"the first is ahead in {wins} of {done}, p = {p:.2g}; on average by {mean:+.2f}{left}"
        return self.claim(ours, "reproduced" if p >= LEVEL else "not reproduced")


@dataclass(frozen=True)
class AsGood(PairSummary):
    """On some columns the first is at most a little better than the second.

    What counts as a little (`margin`), and as a few (`fewest`), is ours: the paper names neither.
    """

    margin: ClassVar[float] = 0.5
    fewest: ClassVar[int] = 2
    rule: ClassVar[str] = (
        f"the 95% interval of the difference lies below {margin:g} points on at least {fewest} columns; "
        f"undecided while fewer than {fewest} were run"
    )

    def test(self, cells: Cells) -> Claim | None:
        gains = self.gains(cells)
        close, done = sum(gain.high < self.margin for gain in gains), len(gains)
        if not done:
            return None
        ours = f"on {close} of {done} columns{_left(done, len(self.pairs))}"
        if close >= self.fewest:
            return self.claim(ours, "reproduced")
        return self.claim(ours, "not reproduced" if done == len(self.pairs) else "undecided")


@dataclass(frozen=True)
class SteeperTrend(Summary):
    """The first row gains more on the second the fewer examples there are: slopes over log10 of their number.

    Args:
        columns: by name, with the number of examples.
        published: the same slope of the printed numbers, in points per tenfold fewer examples.
    """

    first: str
    second: str
    columns: tuple[tuple[str, int], ...]
    published: float | None = None
    fewest: ClassVar[int] = 3
    rule: ClassVar[str] = (
        "the difference's slope over log10 of the number of examples, seed by seed: one-sided paired p below 0.05; "
        "opposite: that of the reverse; not reproduced: the 95% interval lies below the published slope"
    )

    def test(self, cells: Cells) -> Claim | None:
        run = [
            (name, count)
            for name, count in self.columns
            if gain_of(cells.get((self.first, name), {}), cells.get((self.second, name), {}))[0] is not None
        ]
        sides = [cells[row, name] for name, _ in run for row in (self.first, self.second)]
        seeds = sorted(set.intersection(*(set(side) for side in sides))) if sides else []
        if len(run) < self.fewest or len(seeds) < FEWEST:
            return None
        slopes = [
            [fewer_is_more([(count, float(cells[row, name][seed] or 0)) for name, count in run]) for seed in seeds]
            for row in (self.first, self.second)
        ]
        gain = paired(*slopes)
        ours = (
            f"{gain.mean:+.2f} [{gain.low:.2f}, {gain.high:.2f}] points per tenfold fewer examples"
            f"{_left(len(run), len(self.columns))}"
        )
        whole = self.published if len(run) == len(self.columns) else None
        return self.claim(ours, judge_claim(gain, gain.p_greater, gain.p_less, whole), gain, whole)


def fewer_is_more(points: list[tuple[int, float]]) -> float:
    """The slope of a line through (number of examples, value), per tenfold fewer examples."""
    return linear_regression([-math.log10(count) for count, _ in points], [value for _, value in points]).slope
