"""Does it help on MY data? Every method with the same budget on the same splits, each split's test set read once.

Each seed is a split of its own. On it every method tries the same number of configurations, one of them is chosen by
the held-out rows, and that one alone is tested.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from rcad.data.dataset import Dataset
from rcad.data.splits import Splits
from rcad.errors import InputError
from rcad.loss.method_rows import Defaults, MethodRow, method_rows, rows_to_plain
from rcad.loss.methods import METHODS, Method
from rcad.runs.config import RunConfig
from rcad.runs.files import dumps
from rcad.runs.plain import config_id
from rcad.study.search_data import measured
from rcad.study.search_ranges import applied, beginning, default_space, started
from rcad.study.search_space import Values, drawn, resolved
from rcad.study.trials import default_goal
from rcad.train.task import AUTO, Problem, method_of

BASE = "erm"
Role = Literal["base", "asked", "control"]
Metrics = Mapping[str, float]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Contestant:
    """A method of the comparison.

    Args:
        name: as tables show it.
        rows: the method under the protocol, with what the user set.
        role: the base, one the user asked for, or a control that RCAD brings along.
    """

    name: str
    rows: tuple[MethodRow, ...]
    role: Role


class Backend(Protocol):
    """Trains configs of one method; the test rows are read by `test` alone, for the configs that were chosen."""

    def fit(self, configs: Sequence[RunConfig], progress: Progress) -> list[Metrics | None]:
        """The held-out numbers of each; None where it diverged."""

    def test(self, chosen: Sequence[int]) -> list[Metrics | None]:
        """The test numbers of these of the configs that were fitted last."""

    def seconds(self) -> float:
        """How long the training of all of them took, though some may have been trained earlier."""


def controls_of(rows: tuple[MethodRow, ...]) -> list[tuple[MethodRow, ...]]:
    """RCAD's two controls: a random direction of the same length, and no step at all."""
    found = []
    for control, shared in (("rcad_random", ("alpha", "lam", "norm", "bounds")), ("confidence_penalty", ("lam",))):
        found.append(
            method_rows(
                [
                    (control, {k: v for k, v in values if k in shared}) if name == "rcad" else (name, values)
                    for name, values in rows
                ]
            )
        )
    return found if any(name == "rcad" for name, _ in rows) else []


def lineup(asked: Sequence[tuple[MethodRow, ...]], *, controls: bool) -> list[tuple[tuple[MethodRow, ...], Role]]:
    """Who takes part: ERM, what the user asked for, RCAD's controls; each once."""
    found: dict[tuple[MethodRow, ...], Role] = {method_rows([(BASE, ())]): "base"}
    for rows in asked:
        found.setdefault(rows, "asked")
    for rows in asked if controls else ():
        for control in controls_of(rows):
            found.setdefault(control, "control")
    return list(found.items())


def check_suitable(contestants: Sequence[Contestant], config: RunConfig, problem: Problem) -> None:
    """A method that does not suit the data is refused before anything is trained, with those that do."""
    for one in contestants:
        # Names and numbers first: what is wrong with them has nothing to do with the data.
        plain = [{k: 1.0 if v == AUTO else v for k, v in row.items()} for row in rows_to_plain(one.rows)]
        Method.from_dict({"methods": plain})
        try:
            method_of(replace(config, method=_started(one.rows, problem)), problem)
        except InputError as error:
            names = [name for name in METHODS if _suits(name, config, problem)]
            if problem.classes or all(name in names for name, _ in one.rows):
                raise
            raise InputError(
                f"expected methods for real targets ({', '.join(names)}), but got {one.name!r}; leave it out"
            ) from error


def split_of(config: RunConfig, seed: int, dataset: Dataset) -> RunConfig:
    """The config on the split that belongs to a seed: one of the standard ones where there are some."""
    known = len(dataset.standard_splits)
    data = replace(config.data, split=seed % known) if known and config.data.split is None else config.data
    return replace(config, data=data, seed=seed)


def overlap(dataset: Dataset, splits: Splits) -> float:
    """Nadeau and Bengio's n_test / n_train; 0 where the data bring a test set of their own.

    What counts as training rows is all that is outside the test set, held-out rows and those of no subset included:
    two splits share the more of their test rows the fewer of those there are.
    """
    if splits.test_source == "own":
        return 0.0
    return len(splits.test) / (len(dataset.train) - len(splits.test))


def compete(
    one: Contestant,
    splits: Mapping[int, tuple[RunConfig, Problem]],
    budget: int,
    backend: Backend,
    methods: Defaults,
    progress: Progress,
    known: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A method on every split: tuned on the held-out rows, tested once.

    Args:
        splits: the config and the data of each seed.
        budget: configurations tried on each split; 1 for the start alone.
        known: what this gave earlier; it is given back if it is of the same configs and data.
    """
    space = default_space(one.rows)
    configs: list[RunConfig] = []
    points: list[tuple[int, Values]] = []
    for seed, (config, problem) in splits.items():
        distance = measured(problem)
        base = replace(config, method=_started(one.rows, problem))
        first = beginning(base, space, methods, distance)
        for values in drawn(resolved(space, distance), max(budget, 1), first=first):
            points.append((seed, values))
            configs.append(applied(base, values, methods))
    identity = [*map(config_id, configs), *(problem.fingerprint for _, problem in splits.values())]
    key = hashlib.sha256(dumps(identity).encode()).hexdigest()[:16]
    if known is not None and known.get("key") == key:
        return {**known, "name": one.name, "role": one.role}
    held = backend.fit(configs, progress)
    goal = default_goal(labels=bool(next(iter(splits.values()))[1].classes))
    chosen = [
        max((k for k, point in enumerate(points) if point[0] == seed), key=lambda k: goal.key(held[k]))
        for seed in splits
    ]
    tested = backend.test(chosen)
    return {
        "key": key,
        "name": one.name,
        "role": one.role,
        "space": [str(parameter) for parameter in space] if budget > 1 else [],
        "seconds": backend.seconds(),
        "runs": len(configs),
        "seeds": {
            str(seed): {
                "chosen": dict(points[k][1]),
                "validation": held[k],
                "test": test,
                "trials": [
                    {"values": dict(values), "validation": held[i]}
                    for i, (own, values) in enumerate(points)
                    if own == seed
                ],
            }
            for seed, k, test in zip(splits, chosen, tested, strict=True)
        },
    }


def typical(values: Sequence[Any]) -> str:
    """Chosen numbers over the splits: the median and the ends."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        return ", ".join(dict.fromkeys(map(str, values)))
    low, high = min(numbers), max(numbers)
    return f"{low:.3g}" if low == high else f"{statistics.median(numbers):.3g} ({low:.3g} to {high:.3g})"


def _started(rows: tuple[MethodRow, ...], problem: Problem) -> tuple[MethodRow, ...]:
    return started(rows, labels=bool(problem.classes), table=problem.train[0].ndim == 2)


def _suits(name: str, config: RunConfig, problem: Problem) -> bool:
    try:
        method_of(replace(config, method=_started(method_rows([(name, ())]), problem)), problem)
    except InputError:
        return False
    return name not in ("gaussian", "bernoulli")
