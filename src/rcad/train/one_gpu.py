"""Many runs on one GPU at once: each has its own queue, its own graphs, its own randomness and its own record.

One small network leaves most of a GPU idle. Here every run is a course that launches a step and hands over; the
device works on all of them. Runs that differ in their seed alone may take their steps together, as one network in one
queue. No run can see another: a record is the same whatever stood beside it, up to rounding.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch

from rcad.errors import InputError
from rcad.loss.method import Method
from rcad.loss.method_rows import rows_to_plain
from rcad.runs.config import RunConfig
from rcad.runs.locks import BusyError
from rcad.runs.record import RunRecord
from rcad.runs.words import plural
from rcad.train.cuda_graph import WARM_UP
from rcad.train.joined import Member, Team
from rcad.train.machine import deterministic, keep_kernels, side_stream
from rcad.train.progress import Progress
from rcad.train.run import TOO_LARGE, begin
from rcad.train.scheduler import Work, one_by_one
from rcad.train.task import AUTO, Reader

log = logging.getLogger("rcad")

AT_ONCE, TEAMS = 10, 4
"""Runs, or teams of joined runs, at once where the user does not say: whichever is more runs."""
SPARE = 1.2
"""A run is started where this many times what one takes is free."""


def can_share(config: RunConfig) -> bool:
    """Whether a run may go beside others: it must not draw from the generator that all of them have in common."""
    model = config.model
    dropout = model.name.startswith("wrn") if model.dropout is None else bool(model.dropout)
    return not dropout and not model.name.startswith("timm:") and not config.train.deterministic


def can_join(config: RunConfig) -> bool:
    """Whether seeds of this run may be one network: not where the training set grows, or each seed measures alpha."""
    rows = rows_to_plain(config.method)
    return AUTO not in [value for row in rows for value in row.values()] and (
        Method.from_dict({"methods": rows}).growth is None
    )


def in_groups(configs: Sequence[RunConfig], size: int) -> list[list[int]]:
    """The indices of runs that differ in their seed alone, at most so many at a time, in the order of the configs.

    Runs that cannot be joined come last, one by one: in front they would hold up the others.
    """
    groups: dict[RunConfig, list[list[int]]] = {}
    alone: list[list[int]] = []
    for index, config in enumerate(configs):
        if size > 1 and not can_join(config):
            alone.append([index])
            continue
        alike = groups.setdefault(replace(config, seed=0, data=replace(config.data, seed=None)), [[]])
        if len(alike[-1]) == size:
            alike.append([])
        alike[-1].append(index)
    return sorted(group for alike in groups.values() for group in alike) + alone


class _Counting:
    """Passes on what a run says, and counts the epochs it has finished here."""

    def __init__(self, shown: Progress) -> None:
        self._shown, self._first, self.epochs = shown, -1.0, 0.0
        self.detail, self.note = shown.detail, shown.note

    def overall(self, done: float, total: float, text: str) -> None:
        if self._first < 0:
            self._first = float(int(done))
        self.epochs = done - self._first
        self._shown.overall(done, total, text)


@dataclass(frozen=True, eq=False)
class Lane:
    """A run that is under way.

    Attributes:
        index: its place among the configs.
        own_queue: where its work is launched unless it takes its steps with others.
        member: its place among those.
    """

    index: int
    course: Generator[None, None, RunRecord]
    own_queue: AbstractContextManager[Any]
    counter: _Counting
    member: Member

    @property
    def queue(self) -> AbstractContextManager[Any]:
        """The context in which its work is launched."""
        return self.member.queue or self.own_queue

    @property
    def settled(self) -> bool:
        """Whether it has allocated all that it needs: every kind of step has been captured."""
        return int(self.counter.epochs) > WARM_UP


@dataclass(frozen=True)
class OneGPU:
    """The backend of one GPU with many runs at once; those that cannot share it follow one by one.

    Args:
        at_once: how many runs share the device; fewer where its memory does not hold so many. None for what pays.
    """

    at_once: int | None = None

    def __call__(self, work: Work) -> None:
        sharing = [index for index, config in enumerate(work.configs) if can_share(config)]
        rest = [index for index in range(len(work.configs)) if index not in set(sharing)]
        if len(sharing) == 1:
            rest, sharing = list(range(len(work.configs))), []
        device, _ = work.place.resolve()
        if device.type == "cuda":
            keep_kernels(work.place.cache_dir)
        if sharing:
            with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]), deterministic(False, device):
                limit = min(self.at_once or max(AT_ONCE, TEAMS * work.place.joined), len(sharing))
                _Lanes(work.some(sharing), limit).go()
        one_by_one(work.some(rest))


class _Lanes:
    """The lanes, and who may join them."""

    def __init__(self, work: Work, limit: int) -> None:
        self.work, self.place, self.limit, self.stop = work, work.place, limit, work.stop
        self.device, self.engine = work.place.resolve()
        self.said: set[str] = set()
        self.reader = Reader(work.place)
        size = min(work.place.joined, limit)
        self.waiting = deque(in_groups(work.configs, size))
        if size > 1 and (alone := sum(not can_join(config) for config in work.configs)):
            log.warning("%s not joined (sets that grow, alpha=auto): they come last", plural(alone, "run"))
        self.lanes: list[Lane] = []
        self.taken_before = self._reserved()
        self.need: float | None = None  # bytes that one run takes

    def go(self) -> None:
        try:
            while self.lanes or (self.waiting and not self.stop.is_set()):
                self._admit()
                for lane in tuple(self.lanes):
                    record = self._advance(lane)
                    if record is not None:
                        self.work.ended(lane.index, record)
        except BaseException:
            self._save_the_others()
            raise

    def _admit(self) -> None:
        while self.waiting and not self.stop.is_set() and self._room(len(self.waiting[0])):
            group = self.waiting.popleft()
            members = Team(len(group), self.engine, said=self.said).members
            # All or none: a member without a lane would be waited for without end.
            self.lanes += [self._lane(index, member) for index, member in zip(group, members, strict=True)]

    def _lane(self, index: int, member: Member) -> Lane:
        config, counter = self.work.configs[index], _Counting(self.work.progress(index))
        trackers = self.work.trackers(index)
        course = begin(
            config, self.place, counter, trackers, stop=self.stop, reader=self.reader, beside=self.limit, member=member
        )
        return Lane(index, course, side_stream(self.device), counter, member)

    def _room(self, wanted: int) -> bool:
        """The first runs go alone until all they need is allocated; that tells how many more there is room for."""
        if not self.lanes:
            return True
        if len(self.lanes) + wanted > self.limit or any(lane.member.team.failed for lane in self.lanes):
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
            self.lanes.remove(lane)
            self.work.busy(lane.index, error)
        except torch.OutOfMemoryError:
            self._put_off(lane)
            short = True
        if short:  # not earlier: the error holds what the step had made
            torch.cuda.empty_cache()
        return None

    def _put_off(self, lane: Lane) -> None:
        """Later, and not joined with others any more."""
        self.lanes.remove(lane)
        mates = lane.member.team.members
        others = [other for other in self.lanes if other.member not in mates]
        if not others and len(mates) == 1:
            raise InputError(TOO_LARGE) from None
        self.limit = len(others) or self.limit
        self.waiting.appendleft([lane.index])

    def _save_the_others(self) -> None:
        """One run has failed, or the user insists: the others keep what they have."""
        self.stop.ask()
        while self.lanes:
            for lane in tuple(self.lanes):  # in turns: some take their steps together
                try:
                    with lane.queue:
                        next(lane.course)
                except StopIteration as end:
                    self.lanes.remove(lane)
                    self.work.ended(lane.index, end.value)
                except BaseException:  # a broken device, or the one that failed
                    self.lanes.remove(lane)
                    lane.member.leave()  # which a course that was never begun does not do

    def _reserved(self) -> int:
        return torch.cuda.memory_reserved(self.device) if self.device.type == "cuda" else 0
