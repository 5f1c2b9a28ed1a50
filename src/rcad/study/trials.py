"""Trials and the best of them. Only numbers of the held-out split are looked at; the test's are not even passed on."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from rcad.errors import InputError
from rcad.runs.record import RunRecord
from rcad.study.search_space import Values

HELD_OUT = "val_"
HIGHER_IS_BETTER = {"accuracy": True, "nll": False, "brier": False, "rmse": False}


class Goal(NamedTuple):
    """What a trial is judged by: a metric of the held-out split, and NLL where two are level."""

    metric: str

    @property
    def higher_is_better(self) -> bool:
        return HIGHER_IS_BETTER[self.metric]

    def key(self, metrics: Mapping[str, float] | None) -> tuple[float, float]:
        """Larger is better; a run that diverged is worse than all."""
        if metrics is None or not all(math.isfinite(metrics.get(name, math.nan)) for name in (self.metric, "nll")):
            return -math.inf, -math.inf
        value = metrics[self.metric]
        return (value if self.higher_is_better else -value), -metrics["nll"]


def default_goal(*, labels: bool) -> Goal:
    """As an epoch is selected: by accuracy, then by likelihood; real targets by likelihood."""
    return Goal("accuracy" if labels else "nll")


@dataclass(frozen=True)
class Trial:
    """One point of the space on every seed.

    Args:
        number: from 1.
        values: what it sets.
        metrics: means over the seeds on the held-out split; None where a run diverged.
        runs: the ids of its runs, one per seed.
        seconds: they took, all together.
    """

    number: int
    values: Values
    metrics: Mapping[str, float] | None
    runs: tuple[str, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def held_out(record: RunRecord) -> dict[str, float] | None:
    """A run's numbers on the held-out split, their names without "val_"; None where it diverged."""
    if record.status == "diverged":
        return None
    found = {
        name.removeprefix(HELD_OUT): value
        for name, value in record.metrics.items()
        if name.startswith(HELD_OUT) and value is not None
    }
    if not found:
        raise InputError(
            f"expected run {record.id} to hold numbers of a held-out split, but it has none; set data.validation"
        )
    return found


def trial(number: int, values: Values, records: Sequence[RunRecord]) -> Trial:
    """The trial that these runs make up."""
    scores = [held_out(record) for record in records]
    good = [score for score in scores if score is not None]
    means = {name: statistics.fmean(score[name] for score in good) for name in good[0]} if good else {}
    seconds = sum(record.timings.get("train_seconds") or 0.0 for record in records)
    whole = means if len(good) == len(records) else None
    return Trial(number, values, whole, tuple(record.id for record in records), seconds)


def best(trials: Sequence[Trial], goal: Goal) -> Trial | None:
    """The best one, the first of equals; None where every one diverged."""
    leader = max(trials, key=lambda one: goal.key(one.metrics), default=None)
    return None if leader is None or leader.metrics is None else leader
