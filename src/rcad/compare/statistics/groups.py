"""Two methods' results by seed: which test fits, and everything it says, in one value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from rcad.compare.statistics.effects import cohen_dz, hedges_g, superiority, superiority_paired
from rcad.compare.statistics.paired_splits import LEVEL, Paired, holm, paired
from rcad.compare.statistics.power import power_paired, power_welch, seeds_needed
from rcad.compare.statistics.too_few import FEWEST, TooFew
from rcad.compare.statistics.ttests import Welch, welch

Test = Literal["paired t", "paired t, Nadeau-Bengio", "Welch", "none"]
Outcome = Literal["better", "worse", "undecided"]
Results = Mapping[int, float | None]


@dataclass(frozen=True)
class Difference:
    """How much better ours is than the base; positive is better, whichever way the metric points.

    Args:
        test: which one was used; "none" where there is no p-value, and `note` says why.
        n: pairs, or results in the smaller group.
        mean, low, high: the difference and its 95% interval; None where unknown.
        p_better, p_worse, p_two: one-sided for ours being better, worse, and two-sided.
        p_holm: `p_two` adjusted for all comparisons of a table; None until `adjusted` has seen them.
        effect: in deviations: d_z where paired, Hedges' g else; None without spread.
        superiority: the chance that ours is better: share of pairs, or of all combinations.
        power: the chance that this many seeds show a true effect of the size found, one-sided 5%.
        seeds_needed: for a chance of 80%; None where no number of seeds will do, or nothing is known.
        note: what the reader must know, e.g. which seeds do not pair.
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

    @property
    def outcome(self) -> Outcome:
        """Better or worse only where the two-sided p, adjusted where it was, is below 5%."""
        p = self.p_two if self.p_holm is None else self.p_holm
        if p is None or self.mean is None or p >= LEVEL:
            return "undecided"
        return "better" if self.mean > 0 else "worse"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.outcome}


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


def adjusted(differences: Sequence[Difference]) -> list[Difference]:
    """The comparisons of one table with Holm's p-values; those without a test do not count."""
    tested = [k for k, one in enumerate(differences) if one.p_two is not None]
    values = holm([differences[k].p_two or 0.0 for k in tested])
    found = dict(zip(tested, values, strict=True))
    return [replace(one, p_holm=found.get(k)) for k, one in enumerate(differences)]


def _paired(a: list[float], b: list[float], ratio: float, note: str) -> Difference:
    effect = cohen_dz(a, b)
    power = None if effect is None else power_paired(abs(effect), len(a), test_ratio=ratio)
    needed = None if not effect else seeds_needed(effect, test_ratio=ratio)
    name: Test = "paired t, Nadeau-Bengio" if ratio else "paired t"
    test = paired(a, b, test_ratio=ratio)
    if effect is None and test.mean != 0.0:
        # Equal differences in every pair would give p = 0, which a handful of runs cannot.
        note = "; ".join(part for part in (note, "every pair differs by the same amount: no spread to test by") if part)
        return Difference("none", len(a), mean=test.mean, superiority=superiority_paired(a, b), note=note)
    return _difference(name, len(a), test, effect, superiority_paired(a, b), power, needed, note)


def _unpaired(a: list[float], b: list[float]) -> Difference:
    n, effect = min(len(a), len(b)), hedges_g(a, b)
    if effect is None:
        return Difference("none", n, mean=_mean(a) - _mean(b), note="neither group spreads: nothing to test by")
    test = welch(a, b)
    assert isinstance(test, Welch)
    floor = 1e-12 * max(1.0, abs(test.mean))
    sd = [max(_sd(group), floor) for group in (a, b)]
    power = power_welch(abs(test.mean), sd[0], len(a), sd[1], len(b))
    needed = seeds_needed(effect, paired=False) if effect else None
    note = "the seeds differ, so that nothing pairs"
    return _difference("Welch", n, test, effect, superiority(a, b), power, needed, note)


def _difference(
    name: Test,
    n: int,
    test: Paired | Welch,
    effect: float | None,
    chance: float,
    power: float | None,
    needed: int | None,
    note: str,
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
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _sd(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
