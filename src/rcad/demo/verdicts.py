"""Who wins, by a rule that was written before the runs, and the sentences that say so."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rcad.demo.settings import CONTROLS, LABELS
from rcad.study.statistics import LEVEL, Paired, holm, paired

Outcome = Literal["wins", "loses", "undecided"]
Contest = Mapping[str, Any]
"""A table of results: title; primary (the metric that decides first); test_ratio (n_test / n_train of splits that
overlap, else 0); methods: by name and metric, a number per draw or split, None where a run diverged."""

LOWER_IS_BETTER = ("nll", "rmse")
UNITS = {"accuracy": " points", "nll": " nats", "rmse": ""}
WORDS = {"accuracy": "accuracy", "nll": "NLL", "rmse": "RMSE"}
DIGITS = {"accuracy": 1, "nll": 3, "rmse": 2}
SHARE = 0.95
RULE = (
    "RCAD wins against a method where the paired two-sided t-test, Holm over all comparisons of the act, has p < 0.05 "
    "and the mean difference is on RCAD's side; it loses where that is on the other side; all else is undecided. "
    "Splits that overlap get Nadeau and Bengio's correction. In the linear theory, RCAD wins where it is better in at "
    "least 95% of the draws and loses where it is worse in as many"
)


@dataclass(frozen=True)
class Comparison:
    """RCAD against a rival by one metric.

    Args:
        gain: positive where RCAD is better; None where a run diverged.
        p: two-sided, after Holm.
    """

    contest: str
    rival: str
    metric: str
    gain: Paired | None
    p: float
    outcome: Outcome

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def numbers(self) -> str:
        """The difference and its interval: +2.1 [0.9, 3.3] points."""
        if self.gain is None:
            return "a run diverged"
        k = DIGITS[self.metric]
        return f"{self.gain.mean:+.{k}f} [{self.gain.low:.{k}f}, {self.gain.high:.{k}f}]{UNITS[self.metric]}"


def compare(contests: Sequence[Contest]) -> list[Comparison]:
    """RCAD against every other method of an act, by every metric."""
    found = [
        (contest["title"], rival, metric, _gain(contest, rival, metric))
        for contest in contests
        for rival in contest["methods"]
        for metric in contest["methods"][rival]
        if rival != "rcad"
    ]
    adjusted = holm([1.0 if gain is None else gain.p_two for *_, gain in found])
    return [
        Comparison(title, rival, metric, gain, p, _outcome(gain, p))
        for (title, rival, metric, gain), p in zip(found, adjusted, strict=True)
    ]


def _gain(contest: Contest, rival: str, metric: str) -> Paired | None:
    ours, theirs = (contest["methods"][name][metric] for name in ("rcad", rival))
    if any(value is None or not math.isfinite(value) for value in (*ours, *theirs)):
        return None
    first, second = (theirs, ours) if metric in LOWER_IS_BETTER else (ours, theirs)
    return paired(first, second, test_ratio=contest["test_ratio"])


def _outcome(gain: Paired | None, p: float) -> Outcome:
    if gain is None or p >= LEVEL:
        return "undecided"
    return "wins" if gain.mean > 0 else "loses"


VERBS: dict[Outcome, str] = {"wins": "wins against", "loses": "loses to", "undecided": "is undecided against"}


def contest_sentence(contest: Contest, comparisons: Sequence[Comparison]) -> str:
    """What a contest says: against ERM by every metric, against the others by its primary one."""
    own = [one for one in comparisons if one.contest == contest["title"]]
    primary = contest["primary"]
    erm = sorted((one for one in own if one.rival == "erm"), key=lambda one: one.metric != primary)
    against_erm = " and ".join(f"{VERBS[one.outcome]} ERM in {WORDS[one.metric]} ({one.numbers})" for one in erm)
    others = [one for one in own if one.metric == primary and one.rival != "erm"]
    parts = []
    for outcome, verb in VERBS.items():
        names = [LABELS[one.rival] for one in others if one.outcome == outcome]
        parts += [f"{verb} {_listed(names)}"] if names else []
    return f"RCAD {against_erm}; in {WORDS[primary]} it {', '.join(parts)}: {_reason(erm[0], others)}"


def _reason(erm: Comparison, others: Sequence[Comparison]) -> str:
    """What the primary metric says about the direction."""
    if erm.gain is None:
        return "a run diverged, so nothing is shown"
    if erm.outcome == "loses":
        return "it does harm here"
    if erm.outcome == "undecided":
        return "no gain is shown here"
    level = [LABELS[one.rival] for one in others if one.rival in CONTROLS and one.outcome != "wins"]
    return f"it helps, but {_listed(level)} may do as well" if level else "it helps, and more than either control"


def linear_outcome(results: Mapping[str, Any], name: str = "rcad") -> tuple[int, Outcome]:
    """In how many draws a classifier is more accurate than ERM, and what that means."""
    pairs = zip(results["classifiers"][name]["accuracy"], results["classifiers"]["erm"]["accuracy"], strict=True)
    gains = [ours - theirs for ours, theirs in pairs]
    better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    if better >= SHARE * len(gains):
        return better, "wins"
    return better, "loses" if worse >= SHARE * len(gains) else "undecided"


def linear_sentence(results: Mapping[str, Any]) -> str:
    """Act 1 in one sentence."""
    (better, outcome), (small, small_outcome) = (linear_outcome(results, name) for name in ("rcad", "rcad_small"))
    draws, (erm, rcad) = results["draws"], (results["classifiers"][name] for name in ("erm", "rcad"))
    verb = {"wins": "wins against ERM", "loses": "loses to ERM", "undecided": "is undecided"}
    return (
        f"RCAD with alpha {results['alpha']:g} {verb[outcome]}: it is more accurate in {better} of {draws} draws "
        f"({_mean(erm['accuracy']):.1f}% to {_mean(rcad['accuracy']):.1f}% on average), and the weight on the "
        f"noise goes from {_mean(erm['w2']):.2f} to {_mean(rcad['w2']):.2f}; with alpha {results['alpha_small']:g} it "
        f"{verb[small_outcome]}, more accurate in {small} of {draws}"
    )


def verdicts(results: Mapping[str, Any]) -> tuple[dict[str, str], list[Comparison]]:
    """One sentence per act, by name, and the comparisons behind them."""
    moons = compare([results["moons"]])
    real = [*results["few_labels"]["digits"]["contests"], *results["few_labels"]["diabetes"]["contests"]]
    few = compare(real)
    sentences = {
        "linear": f"Linear theory: {linear_sentence(results['linear'])}.",
        "moons": f"Moons: {contest_sentence(results['moons'], moons)}.",
        "few_labels": "Few labels:\n"
        + ";\n".join(f"({k}) {one['title']}: {contest_sentence(one, few)}" for k, one in enumerate(real, 1))
        + ".",
    }
    return sentences, [*moons, *few]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
