"""Sentences of the paper about a whole figure: in how many pairs, how steep, no difference. Each has a rule of its own.

They are no part of Holm's family of a page: each is one question about all of its cells. Higher numbers are better.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from statistics import linear_regression
from typing import ClassVar, NamedTuple

from rcad.errors import need
from rcad.paper.claims import NOT_RUN, TRIAL, Cells, Claim, Side, gain_of
from rcad.study.judge import Verdict, judge_claim
from rcad.study.statistics import FEWEST, LEVEL, Paired, paired

Pairs = tuple[tuple[Side, Side], ...]
"""Who is said to be better, and than whom."""


class Finding(NamedTuple):
    """What the cells say: in words, the verdict, and the difference where there is one."""

    ours: str
    verdict: Verdict
    gain: Paired | None = None
    published: float | None = None


@dataclass(frozen=True)
class Summary(ABC):
    """A sentence; its `rule` says how it is judged."""

    where: str
    statement: str
    rule: ClassVar[str]

    @abstractmethod
    def found(self, cells: Cells) -> Finding:
        """What these cells say of it."""


NOTHING = Finding(NOT_RUN, "undecided")


def judge_summary(summary: Summary, cells: Cells, said: str, *, trial: bool) -> Claim:
    """The sentence as a claim; of cells that nobody ran it says so."""
    found = summary.found(cells)
    verdict = NOT_RUN if found is NOTHING else TRIAL if trial else found.verdict
    return Claim(
        where=summary.where,
        statement=summary.statement,
        verdict=verdict,
        gain=None if found.gain is None else found.gain.to_dict(),
        published=found.published,
        note=NOT_RUN if found is NOTHING else said,
        ours=found.ours,
        rule=summary.rule,
    )


def _gains(pairs: Pairs, cells: Cells) -> list[Paired]:
    """The pairs that were run, first minus second."""
    every = (gain_of(cells.get(first, {}), cells.get(second, {}))[0] for first, second in pairs)
    return [gain for gain in every if gain is not None]


def _of(done: int, total: int) -> str:
    return f" ({total - done} more were not run)" if done < total else ""


@dataclass(frozen=True)
class MostPairs(Summary):
    """The first is better in most pairs: a sign test.

    Args:
        printed: in how many pairs of how many the paper says so.
    """

    pairs: Pairs
    printed: tuple[int, int]
    rule: ClassVar[str] = (
        "one-sided sign test over the pairs that were run, p below 0.05; opposite: that of the reverse; not "
        "reproduced: the 95% interval of the share lies below the published one"
    )

    def found(self, cells: Cells) -> Finding:
        gains = [gain for gain in _gains(self.pairs, cells) if gain.mean]
        if not gains:
            return NOTHING
        wins, done = sum(gain.mean > 0 for gain in gains), len(gains)
        p, reverse = (_sign_p(count, done) for count in (wins, done - wins))
        sure = sum(gain.p_greater < 1e-3 for gain in gains)
        ours = (
            f"better in {wins} of {done} pairs, p = {p:.2g}; with p < 0.001 each in {sure}{_of(done, len(self.pairs))}"
        )
        if p < LEVEL:
            return Finding(ours, "reproduced")
        if reverse < LEVEL:
            return Finding(ours, "opposite")
        below = _share_high(wins, done) < self.printed[0] / self.printed[1]
        return Finding(ours, "not reproduced" if below else "undecided")


@dataclass(frozen=True)
class NoneAhead(Summary):
    """Neither side is ahead in more pairs than chance would have it."""

    pairs: Pairs
    fewest: ClassVar[int] = 6
    rule: ClassVar[str] = (
        "two-sided sign test over the pairs that were run, at least six, p of 0.05 or more; not reproduced: below"
    )

    def found(self, cells: Cells) -> Finding:
        gains = [gain for gain in _gains(self.pairs, cells) if gain.mean]
        wins, done = sum(gain.mean > 0 for gain in gains), len(gains)
        if done < self.fewest:
            return NOTHING if not done else Finding(f"{done} pairs{_of(done, len(self.pairs))}", "undecided")
        p = min(1.0, 2 * min(_sign_p(wins, done), _sign_p(done - wins, done)))
        mean = sum(gain.mean for gain in gains) / done
        left = _of(done, len(self.pairs))
        ours = f"the first is ahead in {wins} of {done}, p = {p:.2g}; on average by {mean:+.2f}{left}"
        return Finding(ours, "reproduced" if p >= LEVEL else "not reproduced")


@dataclass(frozen=True)
class AsGood(Summary):
    """On some columns the first is at most a little better than the second.

    What counts as a little (`margin`), and as a few (`fewest`), is ours: the paper names neither.
    """

    pairs: Pairs
    margin: ClassVar[float] = 0.5
    fewest: ClassVar[int] = 2
    rule: ClassVar[str] = (
        f"the 95% interval of the difference lies below {margin:g} points on at least {fewest} columns; "
        f"undecided while fewer than {fewest} were run"
    )

    def found(self, cells: Cells) -> Finding:
        gains = _gains(self.pairs, cells)
        close, done = sum(gain.high < self.margin for gain in gains), len(gains)
        if not done:
            return NOTHING
        ours = f"on {close} of {done} columns{_of(done, len(self.pairs))}"
        if close >= self.fewest:
            return Finding(ours, "reproduced")
        return Finding(ours, "not reproduced" if done == len(self.pairs) else "undecided")


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

    def found(self, cells: Cells) -> Finding:
        run = [
            (name, count)
            for name, count in self.columns
            if gain_of(cells.get((self.first, name), {}), cells.get((self.second, name), {}))[0] is not None
        ]
        sides = [cells[row, name] for name, _ in run for row in (self.first, self.second)]
        seeds = sorted(set.intersection(*(set(side) for side in sides))) if sides else []
        if len(run) < self.fewest or len(seeds) < FEWEST:
            return NOTHING
        slopes = [
            [fewer_is_more([(count, float(cells[row, name][seed] or 0)) for name, count in run]) for seed in seeds]
            for row in (self.first, self.second)
        ]
        gain = paired(*slopes)
        ours = (
            f"{gain.mean:+.2f} [{gain.low:.2f}, {gain.high:.2f}] points per tenfold fewer examples"
            f"{_of(len(run), len(self.columns))}"
        )
        whole = self.published if len(run) == len(self.columns) else None
        return Finding(ours, judge_claim(gain, gain.p_greater, gain.p_less, whole), gain, whole)


def fewer_is_more(points: list[tuple[int, float]]) -> float:
    """The slope of a line through (number of examples, value), per tenfold fewer examples."""
    return linear_regression([-math.log10(count) for count, _ in points], [value for _, value in points]).slope


def _sign_p(wins: int, trials: int) -> float:
    """The probability of so many wins or more of a fair coin."""
    return float(need("scipy.stats", "scipy").binomtest(wins, trials, alternative="greater").pvalue)


def _share_high(wins: int, trials: int) -> float:
    """The upper end of Clopper and Pearson's 95% interval of a share."""
    return float(need("scipy.stats", "scipy").binomtest(wins, trials).proportion_ci(method="exact").high)
