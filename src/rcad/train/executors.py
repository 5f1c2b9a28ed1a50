"""Who makes the runs of a grid: this process, several processes, or one GPU with many runs at once.

An executor may be replaced by another, e.g. one that hands runs to a cluster: a run is a pure function of its config,
and its record in the store is all that anybody waits for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rcad.data.splits import parse_spec
from rcad.runs.config import RunConfig
from rcad.runs.record import RunRecord
from rcad.train.machine import allow_many_queues, pick_device
from rcad.train.reporting import Row, Silent
from rcad.train.run import Place, run
from rcad.train.together import can_share, run_together

MOST_PROCESSES = 2
"""Where the user does not say: a laptop must stay usable."""
LEAST_WORK = 50_000
"""Starting processes takes seconds; for less work (see `work`), half a minute of tiny runs, it does not pay."""


class Watcher(Protocol):
    """Told how a grid goes on."""

    def moved(self, index: int, share: float) -> None:
        """So much of this run is done."""

    def ended(self, index: int, record: RunRecord) -> None:
        """Its record is final."""


class Executor(Protocol):
    """Makes runs."""

    def __call__(self, configs: Sequence[RunConfig], place: Place, watcher: Watcher) -> bool:
        """Run them all; False where a signal stopped it, with every run saved that was under way."""


class Share(Silent):
    """A run's Reporter that passes on how far it is."""

    def __init__(self, watcher: Watcher, index: int) -> None:
        self._watcher, self._index, self._epochs, self._steps = watcher, index, 1, 1

    def started(self, epochs: int, steps: int, finished: int) -> None:
        self._epochs, self._steps = epochs, max(steps, 1)

    def stepped(self, epoch: int, step: int) -> None:
        self._watcher.moved(self._index, (epoch - 1 + step / self._steps) / self._epochs)

    def epoch(self, epoch: int, row: Row) -> None:
        self._watcher.moved(self._index, epoch / self._epochs)


@dataclass(frozen=True)
class Sequential:
    """One after the other, in this process."""

    def __call__(self, configs: Sequence[RunConfig], place: Place, watcher: Watcher) -> bool:
        for index, config in enumerate(configs):
            record = run(
                config,
                place.store,
                data_dir=place.data_dir,
                cache_dir=place.cache_dir,
                device=place.device,
                engine=place.engine,
                reporter=Share(watcher, index),
            )
            if not record.is_final:
                return False
            watcher.ended(index, record)
        return True


@dataclass(frozen=True)
class Together:
    """Many at once on one GPU; those that cannot share it follow one by one.

    Args:
        at_once: how many; None for as many as pay.
    """

    at_once: int | None = None

    def __call__(self, configs: Sequence[RunConfig], place: Place, watcher: Watcher) -> bool:
        sharing = [index for index, config in enumerate(configs) if can_share(config)]
        found = run_together(
            [configs[index] for index in sharing],
            place,
            at_once=self.at_once,
            reporter_of=lambda number: Share(watcher, sharing[number]),
            ended=lambda number, record: watcher.ended(sharing[number], record) if record.is_final else None,
        )
        if not all(record is not None and record.is_final for record in found):
            return False
        rest = [index for index in range(len(configs)) if index not in set(sharing)]
        return Sequential()([configs[index] for index in rest], place, _Renumbered(watcher, rest))


@dataclass(frozen=True)
class _Renumbered:
    """Passes on what is said about some of the runs, under their own numbers."""

    watcher: Watcher
    numbers: Sequence[int]

    def moved(self, index: int, share: float) -> None:
        self.watcher.moved(self.numbers[index], share)

    def ended(self, index: int, record: RunRecord) -> None:
        self.watcher.ended(self.numbers[index], record)


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def suitable(device: str, configs: Sequence[RunConfig], workers: int | None) -> Executor:
    """The executor for these runs.

    Args:
        workers: processes on the CPU, or runs at once on a GPU; None for what pays.
    """
    from rcad.train.processes import Processes

    count = len(configs)
    if device != "cpu":
        allow_many_queues()
        if pick_device(device).type == "cuda":
            return Together(workers) if count > 1 and workers != 1 else Sequential()
    wanted = min(MOST_PROCESSES, cores()) if workers is None else workers
    if workers is None and sum(map(work, configs)) < LEAST_WORK:
        wanted = 1
    return Processes(min(wanted, count)) if min(wanted, count) > 1 else Sequential()


COST: Mapping[str, float] = {
    "adversarial_training": 1.7,
    "adversarial_two_views": 3.4,
    "ls_on_adv": 2.0,
    "rcad": 2.0,
    "rcad_random": 1.7,
    "ada": 3.3,
    "me_ada": 3.3,
    "two_views": 2.0,
}
"""Time of a run relative to ERM's, roughly."""


WHOLE_SET = 50_000
"""Images of a whole set, where a config does not name a number."""


def work(config: RunConfig) -> float:
    """How long a run takes, in passes over an image by ERM: the time that is left is reckoned with it."""
    _, count = parse_spec(config.data.name)
    cost = 1.0 + sum(COST.get(name, 1.0) - 1.0 for name, _ in config.method)
    return cost * config.train.epochs * (count or WHOLE_SET)
