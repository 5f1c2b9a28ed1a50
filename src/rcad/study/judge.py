"""Two rules that turn tests into verdicts: one for a published claim, one for a question. Holm over each family.

A claim was made by somebody before us, so it is tested one-sided, and its reverse too. A question has no side: two
methods are compared two-sided. A family is what is judged together: all claims of a page, or all comparisons of a
table. The question that a study was made for is a family of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

from rcad.study.statistics import (
    FEWEST,
    LEVEL,
    Paired,
    TooFew,
    cohen_dz,
    hedges_g,
    holm,
    paired,
    power_paired,
    power_welch,
    seeds_needed,
    superiority,
    welch,
)

Verdict = Literal["reproduced", "not reproduced", "opposite", "undecided"]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "not reproduced", "opposite", "undecided")
CLAIM_RULE = (
    "reproduced: the one-sided p for the claim, Holm over all claims of the page, is below 0.05; opposite: that for "
    "its reverse is; not reproduced: neither, and the 95% interval lies below the published difference; else undecided"
)
QUESTION_RULE = (
    "A method is called better (or worse) than another if the two-sided t-test, paired by seed, has p < 0.05; the sign "
    "of the mean says which. All else is undecided. The first question, which was asked before the runs, stands alone; "
    "all other comparisons of the page share Holm's correction. With fewer than "
    f"{FEWEST} seeds, or a run that diverged, nothing is tested"
)
ALIKE = "every pair differs by the same amount: nothing to test"
Test = Literal["paired t", "paired t, Nadeau-Bengio", "Welch", "Welch, Nadeau-Bengio", "none"]
Outcome = Literal["better", "worse", "undecided"]
Results = Mapping[int, float | None]


class JudgedClaim(NamedTuple):
    """What became of a claim: its adjusted one-sided p, that of its reverse, the verdict."""

    p: float
    p_reverse: float
    verdict: Verdict


def judge_claims(gains: Sequence[Paired | None], published: Sequence[float | None]) -> list[JudgedClaim]:
    """The verdicts of `CLAIM_RULE` on a family of claims.

    `gains` are our differences, positive where they speak for the claim, None where a run diverged; `published` are
    their sizes as printed, > 0, None where the paper gives none.
    """
    forward = holm([1.0 if gain is None else gain.p_greater for gain in gains])
    reverse = holm([1.0 if gain is None else gain.p_less for gain in gains])
    return [
        JudgedClaim(p, q, judge_claim(gain, p, q, size))
        for gain, p, q, size in zip(gains, forward, reverse, published, strict=True)
    ]


def judge_claim(gain: Paired | None, p_for: float, p_against: float, published: float | None) -> Verdict:
    """The verdict of `CLAIM_RULE` from adjusted one-sided p-values; see `judge_claims`."""
    if gain is None:
        return "undecided"
    if p_for < LEVEL:
        return "reproduced"
    if p_against < LEVEL:
        return "opposite"
    return "not reproduced" if published is not None and gain.high < published else "undecided"


@dataclass(frozen=True)
class Difference:
    """How much better ours is than the base; positive is better, whichever way the metric points.

    Args:
        test: which one was used; "none" where there is no p-value, and `note` says why.
        n: pairs, or results in the smaller group.
        mean, low, high: the difference and its 95% interval; None where unknown.
        p_better, p_worse, p_two: one-sided for ours being better, worse, and two-sided.
        p_holm: `p_two` adjusted for its family; None until `judge_questions` has seen it.
        effect: in deviations: d_z where paired, Hedges' g else; None without spread.
        superiority: the chance that ours is better: share of pairs, or of all combinations.
        note: what the reader must know, e.g. which seeds do not pair.
        test_ratio: n_test / n_train where the seeds' splits overlap.
        level: below which the two-sided p must lie for a verdict.
        spreads: of groups that do not pair, the deviation and size of each.
    """

    test: Test
    n: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    p_better: float | None = None
    p_worse: float | None = None
    p_two: float | None = None
    p_holm: float | None = None
    effect: float | None = None
    superiority: float | None = None
    note: str = ""
    test_ratio: float = 0.0
    level: float = LEVEL
    spreads: tuple[tuple[float, int], tuple[float, int]] | None = None

    @property
    def power(self) -> float | None:
        """The chance that this many seeds show a true effect of the size found, by the rule of the verdict."""
        if self.effect is None or self.mean is None:
            return None
        rule: dict[str, Any] = {"test_ratio": self.test_ratio, "sides": "two", "level": self.level}
        if self.spreads is not None:
            return power_welch(abs(self.mean), *self.spreads[0], *self.spreads[1], **rule)
        return power_paired(abs(self.effect), self.n, **rule)

    @property
    def seeds_needed(self) -> int | None:
        """For a chance of 80%; None where no number of seeds will do, or nothing is known."""
        if not self.effect:
            return None
        pairs = self.spreads is None
        return seeds_needed(self.effect, paired=pairs, test_ratio=self.test_ratio, sides="two", level=self.level)

    @property
    def outcome(self) -> Outcome:
        """Better or worse only where the two-sided p, adjusted where it was, is below 5%."""
        p = self.p_two if self.p_holm is None else self.p_holm
        if p is None or self.mean is None or p >= LEVEL:
            return "undecided"
        return "better" if self.mean > 0 else "worse"

    def to_dict(self) -> dict[str, Any]:
        derived = {"power": self.power, "seeds_needed": self.seeds_needed, "note": self.note, "outcome": self.outcome}
        inner = ("note", "test_ratio", "level", "spreads")
        return {name: value for name, value in asdict(self).items() if name not in inner} | derived


def compare_groups(ours: Results, base: Results, *, higher_is_better: bool, test_ratio: float = 0.0) -> Difference:
    """Compare two methods by their results per seed.

    Seeds that both have are paired where there are at least three; without any, groups of three or more are compared
    by Welch's test. A run that diverged (None or NaN) leaves nothing to test: leaving it out would favour its method.

    Args:
        test_ratio: n_test / n_train where the seeds' splits overlap.
    """
    diverged = sum(value is None or not math.isfinite(value) for value in (*ours.values(), *base.values()))
    common = sorted(ours.keys() & base.keys())
    smaller = min(len(ours), len(base))
    if diverged:
        return Difference("none", len(common) or smaller, note=f"{diverged} of the runs diverged, so nothing is shown")
    sign = 1.0 if higher_is_better else -1.0
    a, b = ({seed: sign * float(value or 0.0) for seed, value in group.items()} for group in (ours, base))
    if len(common) >= FEWEST:
        single = len(ours.keys() | base.keys()) - len(common)
        note = f"{single} seeds without a partner are left out" if single else ""
        return _paired([a[seed] for seed in common], [b[seed] for seed in common], test_ratio, note)
    if not common and smaller >= FEWEST:
        return _unpaired(list(a.values()), list(b.values()), test_ratio)
    mean = fmean(a.values()) - fmean(b.values()) if smaller else None
    note = str(TooFew(len(common) if common else smaller))
    return Difference("none", len(common) or smaller, mean=mean, note=note)


def judge_questions(differences: Sequence[Difference]) -> list[Difference]:
    """A family of comparisons with Holm's p-values, and the seeds that the rule would need."""
    # Those without a test do not count. Holm asks the most of the smallest p, LEVEL / family: that is the level at
    # which power and seeds are told, so that they never promise more than the verdict keeps.
    p_values = [gap.p_two for gap in differences if gap.p_two is not None]
    adjusted, level = iter(holm(p_values)), LEVEL / max(len(p_values), 1)
    return [gap if gap.p_two is None else replace(gap, p_holm=next(adjusted), level=level) for gap in differences]


def _paired(a: list[float], b: list[float], ratio: float, note: str) -> Difference:
    effect, test, won = cohen_dz(a, b), paired(a, b, test_ratio=ratio), superiority(a, b, paired=True)
    if effect is None and test.mean != 0.0:
        note = "; ".join(part for part in (note, ALIKE) if part)
        return Difference("none", len(a), mean=test.mean, superiority=won, note=note)
    name: Test = "paired t, Nadeau-Bengio" if ratio else "paired t"
    return _tested(name, len(a), test, effect=effect, superiority=won, note=note, test_ratio=ratio)


def _unpaired(a: list[float], b: list[float], ratio: float) -> Difference:
    n, effect = min(len(a), len(b)), hedges_g(a, b)
    test = None if effect is None else welch(a, b, test_ratio=ratio)
    if not isinstance(test, Paired):
        return Difference("none", n, mean=fmean(a) - fmean(b), note="neither group varies: nothing to test")
    floor = 1e-12 * max(1.0, abs(test.mean))
    first, second = ((max(stdev(group), floor), len(group)) for group in (a, b))
    more = {"superiority": superiority(a, b), "spreads": (first, second), "note": "the methods have no seeds in common"}
    name: Test = "Welch, Nadeau-Bengio" if ratio else "Welch"
    return _tested(name, n, test, effect=effect, test_ratio=ratio, **more)


def _tested(name: Test, n: int, test: Paired, **more: Any) -> Difference:
    return Difference(name, n, test.mean, test.low, test.high, test.p_greater, test.p_less, test.p_two, **more)
