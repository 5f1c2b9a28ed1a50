"""Two rules that turn tests into verdicts: one for a published claim, one for a question. Holm over each family.

A claim was made by somebody before us, so it is tested one-sided, and its reverse too. A question has no side: two
methods are compared two-sided. A family is what is judged together: all claims of a page, or all comparisons of a
table. The question that a study was made for is a family of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

from rcad.study.statistics import (
    FEWEST,
    LEVEL,
    Paired,
    TooFew,
    Welch,
    cohen_dz,
    hedges_g,
    holm,
    paired,
    power_paired,
    power_welch,
    seeds_needed,
    superiority,
    superiority_paired,
    welch,
)

Verdict = Literal["reproduced", "not reproduced", "opposite", "undecided"]
VERDICTS: tuple[Verdict, ...] = ("reproduced", "not reproduced", "opposite", "undecided")
CLAIM_RULE = (
    "reproduced: the one-sided p for the claim, Holm over all claims of the page, is below 0.05; opposite: that for "
    "its reverse is; not reproduced: neither, and the 95% interval lies below the published difference; else undecided"
)
QUESTION_RULE = (
    "A method is called better (or worse) than another where the two-sided t-test, paired by seed, has p < 0.05 and "
    "the mean difference is on that side; all else is undecided. The first question, which was asked before the runs, "
    "stands alone; all other comparisons of the page share Holm's correction. With fewer than "
    f"{FEWEST} seeds, or a run that diverged, nothing is tested"
)
Test = Literal["paired t", "paired t, Nadeau-Bengio", "Welch", "none"]
Outcome = Literal["better", "worse", "undecided"]
Results = Mapping[int, float | None]


class JudgedClaim(NamedTuple):
    """What became of a claim: its adjusted one-sided p, that of its reverse, and the verdict."""

    p: float
    p_reverse: float
    verdict: Verdict


def judge_claims(gains: Sequence[Paired | None], published: Sequence[float | None]) -> list[JudgedClaim]:
    """The verdicts of `CLAIM_RULE` on a family of claims.

    Args:
        gains: our differences, oriented so that positive speaks for the claim; None where a run diverged.
        published: their sizes as printed, > 0; None where the paper gives none.
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
        power: the chance that this many seeds show a true effect of the size found, by the rule of the verdict.
        seeds_needed: for a chance of 80%; None where no number of seeds will do, or nothing is known.
        note: what the reader must know, e.g. which seeds do not pair.
        test_ratio: n_test / n_train where the seeds' splits overlap.
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
    power: float | None = None
    seeds_needed: int | None = None
    note: str = ""
    test_ratio: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """Better or worse only where the two-sided p, adjusted where it was, is below 5%."""
        p = self.p_two if self.p_holm is None else self.p_holm
        if p is None or self.mean is None or p >= LEVEL:
            return "undecided"
        return "better" if self.mean > 0 else "worse"

    def to_dict(self) -> dict[str, Any]:
        plain = {**asdict(self), "outcome": self.outcome}
        del plain["test_ratio"]
        return plain


def compare_groups(ours: Results, base: Results, *, higher_is_better: bool, test_ratio: float = 0.0) -> Difference:
    """Compare two methods by their results per seed.

    Seeds that both have are paired where there are at least three; without any, groups of three or more are compared
    by Welch's test. A run that diverged (None or NaN) leaves nothing to test: leaving it out would favour its method.

    Args:
        ours, base: a result by seed.
        higher_is_better: which way the metric points.
        test_ratio: n_test / n_train where the seeds' splits overlap.
    """
    lost = sum(value is None or not math.isfinite(value) for value in (*ours.values(), *base.values()))
    common = sorted(ours.keys() & base.keys())
    smaller = min(len(ours), len(base))
    if lost:
        return Difference("none", len(common) or smaller, note=f"{lost} of the runs diverged, so nothing is shown")
    sign = 1.0 if higher_is_better else -1.0
    a, b = ({seed: sign * float(value or 0.0) for seed, value in group.items()} for group in (ours, base))
    if len(common) >= FEWEST:
        left = len(ours.keys() | base.keys()) - len(common)
        note = f"{left} seeds without a partner are left out" if left else ""
        return _paired([a[seed] for seed in common], [b[seed] for seed in common], test_ratio, note)
    if not common and smaller >= FEWEST:
        return _unpaired(list(a.values()), list(b.values()))
    mean = _mean(list(a.values())) - _mean(list(b.values())) if smaller else None
    note = str(TooFew(len(common) if common else smaller))
    return Difference("none", len(common) or smaller, mean=mean, note=note)


def judge_questions(differences: Sequence[Difference]) -> list[Difference]:
    """A family of comparisons with Holm's p-values, and the seeds that the rule would need.

    Those without a test do not count. Holm asks the most of the smallest p, LEVEL / family: that is the level at which
    power and seeds are told, so that they never promise more than the verdict keeps.
    """
    tested = [k for k, one in enumerate(differences) if one.p_two is not None]
    values = holm([differences[k].p_two or 0.0 for k in tested])
    found = dict(zip(tested, values, strict=True))
    level = LEVEL / max(len(tested), 1)
    return [
        replace(one, p_holm=found[k], **_reach(one, level)) if k in found else one for k, one in enumerate(differences)
    ]


def _reach(one: Difference, level: float) -> dict[str, Any]:
    """Power and seeds needed of a paired comparison at a level; of groups that do not pair, as they stand."""
    if not one.effect or one.test == "Welch" or level == LEVEL:
        return {}
    size, ratio = abs(one.effect), one.test_ratio
    return {
        "power": power_paired(size, one.n, test_ratio=ratio, sides="two", level=level),
        "seeds_needed": seeds_needed(size, test_ratio=ratio, sides="two", level=level),
    }


def _paired(a: list[float], b: list[float], ratio: float, note: str) -> Difference:
    effect = cohen_dz(a, b)
    power = None if effect is None else power_paired(abs(effect), len(a), test_ratio=ratio, sides="two")
    needed = None if not effect else seeds_needed(effect, test_ratio=ratio, sides="two")
    name: Test = "paired t, Nadeau-Bengio" if ratio else "paired t"
    test = paired(a, b, test_ratio=ratio)
    if effect is None and test.mean != 0.0:
        # Equal differences in every pair would give p = 0, which a handful of runs cannot.
        note = "; ".join(part for part in (note, "every pair differs by the same amount: no spread to test by") if part)
        return Difference("none", len(a), mean=test.mean, superiority=superiority_paired(a, b), note=note)
    return _difference(name, len(a), test, effect, superiority_paired(a, b), power, needed, note, ratio)


def _unpaired(a: list[float], b: list[float]) -> Difference:
    n, effect = min(len(a), len(b)), hedges_g(a, b)
    if effect is None:
        return Difference("none", n, mean=_mean(a) - _mean(b), note="neither group spreads: nothing to test by")
    test = welch(a, b)
    assert isinstance(test, Welch)
    floor = 1e-12 * max(1.0, abs(test.mean))
    sd = [max(_sd(group), floor) for group in (a, b)]
    power = power_welch(abs(test.mean), sd[0], len(a), sd[1], len(b), sides="two")
    needed = seeds_needed(effect, paired=False, sides="two") if effect else None
    note = "the seeds differ, so that nothing pairs"
    return _difference("Welch", n, test, effect, superiority(a, b), power, needed, note)


def _difference(
    name: Test,
    n: int,
    test: Paired,
    effect: float | None,
    chance: float,
    power: float | None,
    needed: int | None,
    note: str,
    ratio: float = 0.0,
) -> Difference:
    return Difference(
        name,
        n,
        mean=test.mean,
        low=test.low,
        high=test.high,
        p_better=test.p_greater,
        p_worse=test.p_less,
        p_two=test.p_two,
        effect=effect,
        superiority=chance,
        power=power,
        seeds_needed=needed,
        note=note,
        test_ratio=ratio,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _sd(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
