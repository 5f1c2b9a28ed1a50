"""Runs on one device as the scheduler's backend makes them, with a listener for each."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

from rcad.runs.config import RunConfig
from rcad.runs.locks import BusyError
from rcad.runs.record import RunRecord
from rcad.train.one_gpu import OneGPU
from rcad.train.place import Place
from rcad.train.progress import Progress, Silent
from rcad.train.stop import Stop, stopping


class Listening(Silent):
    """A run's Progress, told of its start, its steps and the ends of its epochs."""

    def __init__(self) -> None:
        self.begun = False

    def overall(self, done: float, total: float, text: str) -> None:
        if not self.begun:
            self.begun = True
            self.started()
        elif text.startswith(f"epoch {done:g}/") and "loss" in text:
            self.epoch(int(done))
        else:
            self.stepped(done)

    def started(self) -> None:
        pass

    def stepped(self, done: float) -> None:
        pass

    def epoch(self, epoch: int) -> None:
        pass


class Stopping(Listening):
    """Ctrl-C once so many epochs, e.g. 1.5, are behind."""

    def __init__(self, after: float) -> None:
        super().__init__()
        self._after = after

    def overall(self, done: float, total: float, text: str) -> None:
        if done == self._after:
            os.kill(os.getpid(), signal.SIGINT)


class Told:
    """What a backend is given, as lists."""

    def __init__(
        self,
        configs: Sequence[RunConfig],
        place: Place,
        stop: Stop | None = None,
        *,
        progress_of: Callable[[int], Progress] = lambda index: Silent(),
        trackers_of: Callable[[RunConfig], Sequence[Any]] = lambda config: (),
        ended: Callable[[int, RunRecord], None] = lambda index, record: None,
        busy: Callable[[int, BusyError], None] | None = None,
    ) -> None:
        self.configs, self.place, self.stop = configs, place, stop or Stop()
        self.progress, self._trackers_of, self._ended, self._busy = progress_of, trackers_of, ended, busy
        self.records: list[RunRecord | None] = [None] * len(configs)

    def trackers(self, index: int) -> Sequence[Any]:
        return self._trackers_of(self.configs[index])

    def ended(self, index: int, record: RunRecord) -> None:
        self.records[index] = record
        self._ended(index, record)

    def busy(self, index: int, error: BusyError) -> None:
        if self._busy is None:
            raise error
        self._busy(index, error)

    def some(self, indices: Sequence[int]) -> Any:
        if list(indices) == list(range(len(self.configs))):
            return self
        assert not indices, "all runs of these tests can share a device"
        return Told([], self.place, self.stop)


def run_together(
    configs: Sequence[RunConfig], place: Place, *, at_once: int | None = None, **options: Any
) -> list[RunRecord | None]:
    """The records in the order of the configs; None for those that were not begun before a signal came."""
    with stopping() as stop:
        told = Told(configs, place, stop, **options)
        OneGPU(at_once)(told)  # type: ignore[arg-type]
    return told.records
