"""Many runs on one GPU at once: each has its own queue, its own graphs, its own randomness and its own record.

One small network leaves most of a GPU idle. Here every run is a course that launches a step and hands over; the
device works on all of them. Runs that differ in their seed alone may take their steps together, as one network in one
queue. No run can see another: a record is the same whatever stood beside it, up to rounding.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch

from rcad.errors import InputError
from rcad.runs.config import RunConfig
from rcad.runs.locks import BusyError
from rcad.runs.record import RunRecord
from rcad.train.cuda_graph import WARM_UP
from rcad.train.machine import deterministic, side_stream, stop_signals
from rcad.train.reporting import Reporter, Row, Tracker
from rcad.train.run import TOO_LARGE, Place, begin
from rcad.train.team import Seat, Team

AT_ONCE, TEAMS = 10, 4
"""Runs, or teams of joined runs, at once where the user does not say: whichever is more runs."""
SPARE = 1.2
"""A run is started where this many times what one takes is free."""


def can_share(config: RunConfig) -> bool:
    """Whether a run may go beside others: it must not draw from the generator that all of them have in common."""
    model = config.model
    dropout = model.name.startswith("wrn") if model.dropout is None else bool(model.dropout)
    return not dropout and not model.name.startswith("timm:") and not config.train.deterministic


def in_groups(configs: Sequence[RunConfig], size: int) -> list[list[int]]:
    """The indices of runs that differ in their seed alone, at most so many at a time, in the order of the configs."""
    groups: dict[RunConfig, list[list[int]]] = {}
    for index, config in enumerate(configs):
        alike = groups.setdefault(replace(config, seed=0, data=replace(config.data, seed=None)), [[]])
        if len(alike[-1]) == size:
            alike.append([])
        alike[-1].append(index)
    return sorted(group for alike in groups.values() for group in alike)


class _Counting:
    """Passes on what a run says, and counts the epochs it has finished here."""

    def __init__(self, shown: Reporter) -> None:
        self._shown, self.epochs = shown, 0

    def epoch(self, epoch: int, row: Row) -> None:
        self.epochs += 1
        self._shown.epoch(epoch, row)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shown, name)


@dataclass(frozen=True, eq=False)
class Lane:
    """A run that is under way.

    Attributes:
        index: its place among the configs.
        own_queue: where its work is launched unless it takes its steps with others.
        seat: its place among those.
    """

    index: int
    course: Generator[None, None, RunRecord]
    own_queue: AbstractContextManager[Any]
    counter: _Counting
    seat: Seat

    @property
    def queue(self) -> AbstractContextManager[Any]:
        """The context in which its work is launched."""
        return self.seat.queue or self.own_queue

    @property
    def settled(self) -> bool:
        """Whether it has allocated all that it needs: every kind of step has been captured."""
        return self.counter.epochs > WARM_UP


def run_together(
    configs: Sequence[RunConfig],
    place: Place,
    *,
    at_once: int | None = None,
    reporter_of: Callable[[int], Reporter],
    trackers_of: Callable[[RunConfig], Sequence[Tracker]] = lambda config: (),
    ended: Callable[[int, RunRecord], None] = lambda index, record: None,
    busy: Callable[[int, BusyError], None] | None = None,
) -> list[RunRecord | None]:
    """The records in the order of the configs; None for those that were not begun before a signal came.

    Args:
        at_once: how many runs share the device; fewer where its memory does not hold so many.
        reporter_of: the reporter of the config with this index.
        ended: told of each record as it comes.
        busy: told of a run that another process works on, which is left out; by default that is an error.
    """
    device, _ = place.resolve()
    devices = [] if device.type == "cpu" else [device]
    fastest = deterministic(False, device)
    with torch.random.fork_rng(devices=devices), fastest, stop_signals() as stop:
        limit = min(at_once or max(AT_ONCE, TEAMS * place.joined), len(configs))
        crowd = _Crowd(configs, place, limit, reporter_of, trackers_of, stop, busy)
        crowd.go(ended)
        return crowd.records


class _Crowd:
    """The lanes, and who may join them."""

    def __init__(
        self,
        configs: Sequence[RunConfig],
        place: Place,
        limit: int,
        reporter_of: Callable[[int], Reporter],
        trackers_of: Callable[[RunConfig], Sequence[Tracker]],
        stop: threading.Event,
        busy: Callable[[int, BusyError], None] | None = None,
    ) -> None:
        self.configs, self.place, self.limit, self.stop, self.busy = configs, place, limit, stop, busy
        self.device, self.engine = place.resolve()
        self.said: set[str] = set()
        self.reporter_of, self.trackers_of = reporter_of, trackers_of
        self.waiting = deque(in_groups(configs, min(place.joined, limit)))
        self.lanes: list[Lane] = []
        self.records: list[RunRecord | None] = [None] * len(configs)
        self.taken_before = self._reserved()
        self.need: float | None = None  # bytes that one run takes

    def go(self, ended: Callable[[int, RunRecord], None]) -> None:
        try:
            while self.lanes or (self.waiting and not self.stop.is_set()):
                self._admit()
                for lane in tuple(self.lanes):
                    record = self._advance(lane)
                    if record is not None:
                        self.records[lane.index] = record
                        ended(lane.index, record)
        except BaseException:
            self._save_the_others()
            raise

    def _admit(self) -> None:
        while self.waiting and not self.stop.is_set() and self._room(len(self.waiting[0])):
            group = self.waiting.popleft()
            seats = Team(len(group), self.engine, said=self.said).seats
            # All or none: a seat without a lane would be waited for without end.
            self.lanes += [self._lane(index, seat) for index, seat in zip(group, seats, strict=True)]

    def _lane(self, index: int, seat: Seat) -> Lane:
        config, counter = self.configs[index], _Counting(self.reporter_of(index))
        trackers = self.trackers_of(config)
        course = begin(config, self.place, counter, trackers, stop=self.stop, beside=self.limit, seat=seat)
        return Lane(index, course, side_stream(self.device), counter, seat)

    def _room(self, wanted: int) -> bool:
        """The first runs go alone until all they need is allocated; that tells how many more there is room for."""
        if not self.lanes:
            return True
        if len(self.lanes) + wanted > self.limit or any(lane.seat.team.failed for lane in self.lanes):
            return False  # those of a failed team are about to go, and hold their memory until all have
        if self.device.type != "cuda":
            return True
        if self.need is None:
            if not all(lane.settled for lane in self.lanes):
                return False
            self.need = (self._reserved() - self.taken_before) / len(self.lanes)
        # Runs that were admitted a moment ago have not taken their share yet.
        promised = self.need * sum(not lane.settled for lane in self.lanes)
        free, _ = torch.cuda.mem_get_info(self.device)
        return free - promised > SPARE * self.need * wanted

    def _advance(self, lane: Lane) -> RunRecord | None:
        """The next instalment of a run; its record if that was the last."""
        short = False
        try:
            with lane.queue:
                next(lane.course)
        except StopIteration as end:
            self.lanes.remove(lane)
            record: RunRecord = end.value
            return record
        except BusyError as error:
            if self.busy is None:
                raise
            self.lanes.remove(lane)
            self.busy(lane.index, error)
        except torch.OutOfMemoryError:
            self._put_off(lane)
            short = True
        if short:  # not earlier: the error holds what the step had made
            torch.cuda.empty_cache()
        return None

    def _put_off(self, lane: Lane) -> None:
        """Later, and not joined with others any more."""
        self.lanes.remove(lane)
        mates = lane.seat.team.seats
        others = [other for other in self.lanes if other.seat not in mates]
        if not others and len(mates) == 1:
            raise InputError(TOO_LARGE) from None
        self.limit = len(others) or self.limit
        self.waiting.appendleft([lane.index])

    def _save_the_others(self) -> None:
        """One run has failed, or the user insists: the others keep what they have."""
        self.stop.set()
        while self.lanes:
            for lane in tuple(self.lanes):  # in turns: some take their steps together
                try:
                    with lane.queue:
                        next(lane.course)
                except StopIteration as end:
                    self.records[lane.index] = end.value
                    self.lanes.remove(lane)
                except BaseException:  # a broken device, or the one that failed
                    self.lanes.remove(lane)
                    lane.seat.leave()  # which a course that was never begun does not do

    def _reserved(self) -> int:
        return torch.cuda.memory_reserved(self.device) if self.device.type == "cuda" else 0
