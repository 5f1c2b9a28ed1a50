"""What a comparison shows: differences, Holm over all of them, and sentences that claim no more than the tests do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rcad.study.judge import Difference, compare_groups
from rcad.study.judge import judge_questions as adjusted
from rcad.study.statistics import FEWEST, describe
from rcad.study.trials import HIGHER_IS_BETTER

Cells = Mapping[str, Mapping[str, Any]]
"""What `comparison.compete` gave, by the method's name."""
METRICS = {True: ("accuracy", "nll", "brier"), False: ("nll", "rmse")}
"""By whether there are class labels; the first one decides."""
WORDS = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier score", "rmse": "RMSE"}
UNITS = {"accuracy": " points", "nll": " nats", "brier": "", "rmse": ""}
DIGITS = {"accuracy": 2, "nll": 3, "brier": 4, "rmse": 2}
RULE = (
    "A method is called better (or worse) than another where the two-sided t-test, paired by seed, has p < 0.05 after "
    "Holm's correction over all comparisons of the page, and is on that side; all else is undecided. With fewer than "
    f"{FEWEST} seeds, or a run that diverged, nothing is tested"
)


class Pair(NamedTuple):
    """One comparison of the page."""

    method: str
    against: str
    metric: str
    difference: Difference

    def to_dict(self) -> dict[str, Any]:
        return {"method": self.method, "against": self.against, "metric": self.metric, **self.difference.to_dict()}


def results(cell: Mapping[str, Any], metric: str) -> dict[int, float | None]:
    """A method's test results by seed."""
    return {int(seed): (one["test"] or {}).get(metric) for seed, one in cell["seeds"].items()}


def compared(cells: Cells, metrics: Sequence[str], test_ratio: float) -> list[Pair]:
    """Every method against ERM, and RCAD against its controls, by every metric."""
    base = next(name for name, cell in cells.items() if cell["role"] == "base")
    controls = [name for name, cell in cells.items() if cell["role"] == "control"]
    pairs = [(name, base) for name in cells if name != base]
    pairs += [(name, control) for name, cell in cells.items() for control in controls if _steps(name, cell)]
    every = [(*pair, metric) for metric in metrics for pair in pairs]
    found = [
        compare_groups(
            results(cells[ours], metric),
            results(cells[theirs], metric),
            higher_is_better=HIGHER_IS_BETTER[metric],
            test_ratio=test_ratio,
        )
        for ours, theirs, metric in every
    ]
    return [Pair(*names, one) for names, one in zip(every, adjusted(found), strict=True)]


def _steps(name: str, cell: Mapping[str, Any]) -> bool:
    parts = [part.strip().partition("(")[0] for part in name.split(" + ")]
    return cell["role"] == "asked" and "rcad" in parts


def sentences(cells: Cells, pairs: Sequence[Pair], metrics: Sequence[str]) -> list[str]:
    """What is shown, a sentence or two per metric; the first metric's come first."""
    base = next(name for name, cell in cells.items() if cell["role"] == "base")
    found = []
    for metric in metrics:
        own = [one for one in pairs if one.metric == metric and one.against == base]
        found.append(_against_base(own, metric))
        found += _direction([one for one in pairs if one.metric == metric], base) if metric == metrics[0] else []
    return found


def _against_base(own: Sequence[Pair], metric: str) -> str:
    if not own:
        return f"{_capital(WORDS[metric])}: there is nothing to compare ERM with."
    better = [one for one in own if one.difference.outcome == "better"]
    worse = [one for one in own if one.difference.outcome == "worse"]
    if better:
        many = len(better) > 1
        text = f"{_listed([_told(one) for one in better])} {'are' if many else 'is'} shown to be better than ERM"
        text += "; which of them is best was not tested" if many else ""
    else:
        text = f"no method is shown to be better than ERM{_why_not(own, metric)}"
    if worse:
        text += f"; {_listed([_told(one) for one in worse])} {'are' if len(worse) > 1 else 'is'} shown to be worse"
    return f"{_capital(WORDS[metric])}: {text}."


def _why_not(own: Sequence[Pair], metric: str) -> str:
    """Why nothing is shown, and what it would take."""
    tested = [one for one in own if one.difference.p_two is not None]
    if not tested:
        return f": {own[0].difference.note}"
    leader = max(tested, key=lambda one: one.difference.mean or 0.0)
    gain = leader.difference.mean or 0.0
    if gain <= 0:
        return ", and none was better on average"
    size = f"{gain:.{DIGITS[metric]}f}{UNITS[metric]}"
    if leader.difference.seeds_needed is None:
        found = f"the largest gain, {leader.method}'s {size}"
        return f"; {found}, if real, is out of reach of any number of these splits"
    count = leader.difference.seeds_needed
    if count <= leader.difference.n:
        return f"; the largest gain, {leader.method}'s {size}, did not outlast the correction for many comparisons"
    return f"; at least {count} seeds would be needed to see the largest gain, {leader.method}'s {size}"


def _direction(own: Sequence[Pair], base: str) -> list[str]:
    """Whether the adversarial direction is the reason, where RCAD is better than ERM."""
    found = []
    for one in own:
        rivals = [other for other in own if other.method == one.method and other.against != base]
        if one.against != base or one.difference.outcome != "better" or not rivals:
            continue
        level = [other.against for other in rivals if other.difference.outcome != "better"]
        if level:
            found.append(
                f"{one.method} is not shown to be better than its control {_listed(level)}: "
                "the adversarial direction need not be the reason."
            )
        else:
            found.append(f"{one.method} is better than its controls too: the adversarial direction is what helps.")
    return found


def _told(one: Pair) -> str:
    """A comparison in brackets: "rcad (+1.20 points [0.40, 2.00], p = 0.012)"."""
    difference, k = one.difference, DIGITS[one.metric]
    p = difference.p_two if difference.p_holm is None else difference.p_holm
    return (
        f"{one.method} ({difference.mean:+.{k}f}{UNITS[one.metric]} [{difference.low:.{k}f}, {difference.high:.{k}f}], "
        f"{'p < 0.001' if (p or 0.0) < 0.001 else f'p = {p:.3f}'})"
    )


def summaries(cells: Cells, metrics: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Mean, deviation and interval of every method and metric; the values by seed; how many runs diverged."""
    found: dict[str, dict[str, Any]] = {}
    for name, cell in cells.items():
        found[name] = {}
        for metric in metrics:
            values = results(cell, metric)
            good = [value for value in values.values() if value is not None]
            summary = describe(good).to_dict() if good else None
            found[name][metric] = {"values": values, "summary": summary, "diverged": len(values) - len(good)}
    return found


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
