"""The fast way to compare on tables: all runs of a method at once, equal by test to one after the other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from rcad.errors import InputError
from rcad.runs.config import RunConfig
from rcad.stacked.method import StackedMethod
from rcad.stacked.model import StackedMLP
from rcad.stacked.task import Examples, measure_stacked
from rcad.stacked.train import train_configs, why_not
from rcad.study.comparison import Metrics, Progress
from rcad.train.machine import suitable_threads
from rcad.train.task import Problem, method_of

MOST_NUMBERS = 2**25
"""Training features held at a time."""


def can_stack(config: RunConfig, problem: Problem) -> bool:
    """Whether a run can be one of a stack: a perceptron on a table, with a method that has a stacked twin."""
    if problem.train[0].ndim != 2 or why_not(config) is not None or not len(problem.val[1]):
        return False
    try:
        StackedMethod.of([method_of(config, problem)], problem.likelihood, problem.train[0][None])
    except InputError:
        return False
    return True


class StackedBackend:
    """Trains perceptrons side by side.

    Args:
        problems: the data of each seed.
    """

    def __init__(self, problems: Mapping[int, Problem]) -> None:
        self._problems = problems
        self._seeds: list[int] = []
        self._models: dict[int, StackedMLP] = {}
        self._seconds = 0.0

    def fit(self, configs: Sequence[RunConfig], progress: Progress) -> list[Metrics | None]:
        self._seeds, self._models = [config.seed for config in configs], {}
        found: dict[int, Metrics | None] = {}
        epochs, begun = configs[0].train.epochs, time.perf_counter()
        for part in self._parts(configs):
            before = len(found) * epochs
            found |= self._fit(part, configs, lambda done, _, b=before: progress(b + done, len(configs) * epochs))  # type: ignore[misc]
        self._seconds = time.perf_counter() - begun
        return [found[k] for k in range(len(configs))]

    def test(self, chosen: Sequence[int]) -> list[Metrics | None]:
        return [self._test(k) for k in chosen]

    def seconds(self) -> float:
        return self._seconds

    def _parts(self, configs: Sequence[RunConfig]) -> list[list[int]]:
        """Runs of one shape, as many as fit into memory."""
        parts: list[list[int]] = []
        shapes: dict[tuple[object, ...], list[int]] = {}
        for k, config in enumerate(configs):
            problem = self._problems[config.seed]
            shapes.setdefault((problem.train[0].shape, problem.val[0].shape), []).append(k)
        for same in shapes.values():
            size = max(1, MOST_NUMBERS // self._problems[configs[same[0]].seed].train[0].numel())
            parts += [same[start : start + size] for start in range(0, len(same), size)]
        return parts

    def _fit(self, part: list[int], configs: Sequence[RunConfig], progress: Progress) -> dict[int, Metrics | None]:
        chosen = [configs[k] for k in part]
        # Without its test rows no problem can give them away.
        problems = [_untested(self._problems[config.seed]) for config in chosen]
        with suitable_threads(problems[0].train[0]):
            result = train_configs(chosen, problems, progress=progress)
        best = chosen[0].train.selection == "best"
        epochs = result.best_epoch if best else torch.full_like(result.best_epoch, chosen[0].train.epochs)
        found: dict[int, Metrics | None] = {}
        for row, k in enumerate(part):
            if bool(result.diverged[row]):
                found[k] = None
                continue
            column = int(epochs[row]) - 1
            found[k] = {
                name.removeprefix("val_"): float(values[row, column])
                for name, values in result.curves.items()
                if name.startswith("val_")
            }
            self._models[k] = result.model.take(torch.tensor([row]))
        return found

    def _test(self, k: int) -> Metrics | None:
        if k not in self._models:
            return None
        problem = self._problems[self._seeds[k]]
        x, y = problem.test
        scale = problem.target_scale
        unit = None if scale is None else torch.tensor([scale], dtype=torch.float64, device=x.device)
        scores = measure_stacked(self._models[k], Examples(x[None], y[None]), unit)
        values = {name: float(value) for name, value in scores.items()}
        return values if all(torch.tensor(list(values.values())).isfinite()) else None


def _untested(problem: Problem) -> Problem:
    x, y = problem.test
    return replace(problem, test=(x[:0], y[:0]))
