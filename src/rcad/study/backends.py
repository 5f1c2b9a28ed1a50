"""How the runs of a study are trained: by the scheduler with its store, or as a stack of small networks in memory."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import torch

from rcad.errors import InputError
from rcad.loss.method_rows import has_own
from rcad.runs.config import RunConfig
from rcad.runs.plain import config_id
from rcad.runs.record import RunRecord, more_epochs
from rcad.stacked.method import StackedMethod
from rcad.stacked.model import StackedMLP
from rcad.stacked.train import Examples, measure_stacked, train_configs, why_not
from rcad.train.machine import suitable_threads
from rcad.train.place import Place
from rcad.train.progress import Progress
from rcad.train.scheduler import canonical_config, schedule
from rcad.train.task import Problem, method_of

Metrics = Mapping[str, float]
HELD_OUT, TEST = "val_", "test_"
MOST_NUMBERS = 2**25
"""Training features that a stack holds at a time."""


class Stopped(KeyboardInterrupt):
    """A signal, or the clock, ended a study; what is done is kept. A command ends with `exit_code`."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Backend(Protocol):
    """Trains configs of one method; the test rows are read by `test` alone, for the configs that were chosen."""

    seconds: float
    """How long the training of all of them took, though some may have been trained earlier."""

    def fit(self, configs: Sequence[RunConfig], progress: Progress) -> list[Metrics | None]:
        """The held-out numbers of each; None where it diverged."""

    def test(self, chosen: Sequence[int]) -> list[Metrics | None]:
        """The test numbers of these of the configs that were fitted last."""

    def more_epochs(self, chosen: Sequence[int]) -> list[int | None]:
        """How many epochs these should have had, where they were too short; see `more_epochs` of records."""


def is_table(problem: Problem) -> bool:
    """A table; else images."""
    return problem.train[0].ndim == 2


def numbers_of(record: RunRecord, prefix: str) -> dict[str, float] | None:
    """A run's numbers whose names begin so, without the prefix; None where it diverged."""
    if record.status == "diverged":
        return None
    values = {name.removeprefix(prefix): value for name, value in record.metrics.items() if name.startswith(prefix)}
    finite = {name: value for name, value in values.items() if value is not None}
    if not finite and prefix == HELD_OUT:
        raise InputError(
            f"expected run {record.id} to have metrics of a validation split, but it has none; set data.validation"
        )
    return finite if len(finite) == len(values) or prefix == HELD_OUT else None


class Scheduled:
    """Runs through the scheduler and its store; what is there already is not run again. Raises `Stopped`."""

    def __init__(self, place: Place) -> None:
        self._place, self.seconds = place, 0.0
        self._records: list[RunRecord] = []

    def fit(self, configs: Sequence[RunConfig], progress: Progress) -> list[Metrics | None]:
        # Runs are shown by their held-out numbers: nobody should choose by the others.
        outcome = schedule(configs, self._place, progress, held_out=True)
        if not outcome.complete:
            raise Stopped(outcome.words(), outcome.exit_code)
        by_id = {record.id: record for record in outcome.records}
        self._records = [by_id[config_id(canonical_config(config))] for config in configs]
        self.seconds = sum(record.timings.get("train_seconds") or 0.0 for record in self._records)
        return [numbers_of(record, HELD_OUT) for record in self._records]

    def test(self, chosen: Sequence[int]) -> list[Metrics | None]:
        return [numbers_of(self._records[k], TEST) for k in chosen]

    def more_epochs(self, chosen: Sequence[int]) -> list[int | None]:
        return [self._records[k].more_epochs for k in chosen]


def can_stack(config: RunConfig, problem: Problem) -> bool:
    """Whether a run can be one of a stack: a perceptron on a table, with a method that has a stacked twin."""
    # A user's own has none: its measure would see the rows of several networks at once.
    if has_own(config.method) or not is_table(problem) or why_not(config) is not None or not len(problem.val[1]):
        return False
    try:
        StackedMethod.of([method_of(config, problem)], problem.likelihood, problem.train[0][None])
    except InputError:
        return False
    return True


class Stacked:
    """The fast way on tables: perceptrons side by side in memory, equal by test to one after the other."""

    def __init__(self, problems: Mapping[int, Problem]) -> None:
        self._problems, self.seconds = problems, 0.0
        self._seeds: list[int] = []
        self._models: dict[int, StackedMLP] = {}
        self._longer: dict[int, int | None] = {}

    def fit(self, configs: Sequence[RunConfig], progress: Progress) -> list[Metrics | None]:
        self._seeds, self._models, self._longer = [config.seed for config in configs], {}, {}
        metrics: dict[int, Metrics | None] = {}
        begun = time.process_time()
        for part in self._parts(configs):
            metrics |= self._fit(part, configs, len(metrics), progress)
        self.seconds = time.process_time() - begun
        return [metrics[k] for k in range(len(configs))]

    def test(self, chosen: Sequence[int]) -> list[Metrics | None]:
        return [self._test(k) if k in self._models else None for k in chosen]

    def more_epochs(self, chosen: Sequence[int]) -> list[int | None]:
        return [self._longer.get(k) for k in chosen]

    def _parts(self, configs: Sequence[RunConfig]) -> list[list[int]]:
        shapes: dict[tuple[torch.Size, torch.Size], list[int]] = {}
        for k, config in enumerate(configs):
            problem = self._problems[config.seed]
            shapes.setdefault((problem.train[0].shape, problem.val[0].shape), []).append(k)
        parts: list[list[int]] = []
        for (shape, _), same in shapes.items():
            size = max(1, MOST_NUMBERS // shape.numel())
            parts += [same[start : start + size] for start in range(0, len(same), size)]
        return parts

    def _fit(
        self, part: list[int], configs: Sequence[RunConfig], before: int, progress: Progress
    ) -> dict[int, Metrics | None]:
        chosen = [configs[k] for k in part]
        epochs, text = chosen[0].train.epochs, f"{len(configs)} runs side by side"

        def on_progress(done: int, total: int) -> None:
            progress.overall(before * epochs + done * len(part) * epochs / max(total, 1), len(configs) * epochs, text)

        # Without its test rows no problem can give them away.
        whole = [self._problems[config.seed] for config in chosen]
        problems = [replace(problem, test=(problem.test[0][:0], problem.test[1][:0])) for problem in whole]
        with suitable_threads(problems[0].train[0]):
            result = train_configs(chosen, problems, progress=on_progress)
        held = {name.removeprefix(HELD_OUT): c for name, c in result.curves.items() if name.startswith(HELD_OUT)}
        best = chosen[0].train.selection == "best"
        metrics: dict[int, Metrics | None] = dict.fromkeys(part)
        for row, k in enumerate(part):
            if not bool(result.diverged[row]):
                epoch = int(result.best_epoch[row]) if best else epochs
                metrics[k] = {name: float(curve[row, epoch - 1]) for name, curve in held.items()}
                examples, batch = len(problems[row].train[1]), chosen[row].train.batch_size
                self._longer[k] = more_epochs(held["nll"][row].tolist(), examples, batch)
                self._models[k] = result.model.take(torch.tensor([row]))
        return metrics

    def _test(self, k: int) -> Metrics | None:
        problem = self._problems[self._seeds[k]]
        x, y = problem.test
        scale = problem.target_scale
        unit = None if scale is None else torch.tensor([scale], dtype=torch.float64, device=x.device)
        scores = measure_stacked(self._models[k], Examples(x[None], y[None]), unit)
        values = {name: float(value) for name, value in scores.items()}
        return values if all(map(math.isfinite, values.values())) else None
