"""Many runs on one GPU at once: each has its own data, its own randomness and its own record.

One small network leaves most of a GPU idle. Here every run is a course that asks for a step and hands over; the device
works on all of them. Runs that differ in their seed alone may be a team that takes its steps together, as one network.
No run can see another: a record is the same whatever stood beside it, up to rounding.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from rcad.errors import InputError
from rcad.loss.method_rows import has_own
from rcad.runs.config import RunConfig
from rcad.runs.locks import BusyError
from rcad.runs.record import RunRecord
from rcad.runs.words import plural
from rcad.train.joined import JoinedStepper, Team
from rcad.train.machine import deterministic, keep_kernels, own_randomness
from rcad.train.run import TOO_LARGE, begin
from rcad.train.scheduler import Work, one_by_one
from rcad.train.stop import NotBegun
from rcad.train.task import Reader

log = logging.getLogger("rcad")

AT_ONCE, TEAMS = 10, 4  # runs, or teams of joined runs, at once where the user does not say: whichever is more runs
SPARE, UNSEEN = 1.2, 2.0
"""A run is started where this many times what one takes is free; the second while none has been evaluated yet."""


def can_share(config: RunConfig) -> bool:
    """Whether a run may go beside others: it must not draw from the generator that all of them have in common."""
    model = config.model
    dropout = model.name.startswith("wrn") if model.dropout is None else bool(model.dropout)
    return not dropout and not model.name.startswith("timm:") and not config.train.deterministic


def can_join(config: RunConfig) -> bool:
    """Whether its seeds may be one network: no user's measure, which would see several runs'."""
    return not has_own(config.method)


def in_groups(configs: Sequence[RunConfig], size: int) -> list[list[RunConfig]]:
    """Runs that differ in their seed alone, at most so many at a time, in the order of the configs.

    Runs that cannot be joined come last, one by one: in front they would hold up the others.
    """
    groups: list[list[RunConfig]] = []
    alone: list[list[RunConfig]] = []
    open_groups: dict[RunConfig, list[RunConfig]] = {}
    for config in configs:
        if size > 1 and not can_join(config):
            alone.append([config])
            continue
        alike = replace(config, seed=0, data=replace(config.data, seed=None))
        if len(open_groups.get(alike, ())) in (0, size):
            open_groups[alike] = []
            groups.append(open_groups[alike])
        open_groups[alike].append(config)
    return groups + alone


def in_shares(configs: Sequence[RunConfig], at_once: int | None, joined: int, devices: int) -> list[list[RunConfig]]:
    """What each of several GPUs takes at a time: as many runs as share one, seeds that are joined together."""
    most = min(at_once or most_at_once(joined), -(-len(configs) // devices))
    shares: list[list[RunConfig]] = []
    for group in in_groups([config for config in configs if can_share(config)], min(joined, most)):
        if not shares or len(shares[-1]) + len(group) > most:
            shares.append([])
        shares[-1] += group
    return shares + [[config] for config in configs if not can_share(config)]


def most_at_once(joined: int) -> int:
    return max(AT_ONCE, TEAMS * joined)


@dataclass(frozen=True)
class OneGPU:
    """The backend of one GPU with many runs at once; those that cannot share it follow one by one."""

    at_once: int | None = None  # at most; None for what pays

    def __call__(self, work: Work) -> None:
        sharing = [config for config in work.configs if can_share(config)]
        sharing = sharing if len(sharing) > 1 else []
        alone = [config for config in work.configs if config not in sharing]
        device, _ = work.place.resolve()
        if device.type == "cuda":
            keep_kernels(work.place.cache_dir)
        if sharing:
            with own_randomness(device, work.listener.progress(sharing[0])), deterministic(False, device):
                limit = min(self.at_once or most_at_once(work.place.joined), len(sharing))
                _Teams(replace(work, configs=sharing), limit).go()
        one_by_one(replace(work, configs=alone))


class _Teams:
    """The teams on a device, and who may come."""

    def __init__(self, work: Work, limit: int) -> None:
        self.work, self.limit, self.stop, self.listener = work, limit, work.stop, work.listener
        self.device, self.engine = work.place.resolve()
        self.warnings: set[str] = set()
        self.reader = Reader(work.place)
        size = min(work.place.joined, limit)
        self.waiting = deque(in_groups(work.configs, size))
        if size > 1 and (alone := sum(not can_join(config) for config in work.configs)):
            log.warning("%s not joined (methods of your own): they come last", plural(alone, "run"))
        self.teams: list[Team] = []
        self.taken_before = self._reserved()
        self.need: float | None = None  # bytes that one run takes

    def go(self) -> None:
        try:
            while self.teams or (self.waiting and not self.stop.is_set()):
                self._admit()
                self._round()
        except BaseException:
            self._save_the_others()
            raise

    def _admit(self) -> None:
        while self.waiting and not self.stop.is_set() and self._room(len(self.waiting[0])):
            group = self.waiting.popleft()
            if not all(map(self.work.in_time, group)):
                continue
            team = Team(self.engine, self.device, warnings=self.warnings)
            for config in group:
                team.enter(config, self._begun)
            self.teams.append(team)

    def _begun(self, member: JoinedStepper) -> Generator[None, None, RunRecord]:
        run, place, progress = member.run, self.work.place, self.listener.progress(member.run)
        return begin(run, place, progress, stop=self.stop, reader=self.reader, at_once=self.limit, member=member)

    def _room(self, count: int) -> bool:
        """Whether so many more may come. The first go alone until their step has all it needs, and tell what it is."""
        present = sum(len(team.runs) for team in self.teams)
        if not present:
            return True
        if present + count > self.limit:
            return False
        if self.device.type != "cuda":
            return True
        need, spare = self.need, SPARE
        if need is None:
            if not all(team.settled for team in self.teams):
                return False
            need = (self._reserved() - self.taken_before) / present
            if all(team.epochs > 1 for team in self.teams):
                self.need = need
            else:
                spare = UNSEEN
        # Runs that were admitted a moment ago have not taken their share yet.
        promised = need * sum(len(team.runs) for team in self.teams if not team.settled)
        free, _ = torch.cuda.mem_get_info(self.device)
        return free - promised > spare * need * count

    def _round(self) -> None:
        """Every run goes on to its next step, and every team takes it."""
        for team in tuple(self.teams):
            with team.queue:
                for member in team.awake():
                    self._resume(team, member)
                self._step(team)

    def _resume(self, team: Team, member: JoinedStepper) -> None:
        short = False
        try:
            record: RunRecord | None = team.resume(member)
        except BusyError as error:
            self.listener.busy(member.run, error)
        except NotBegun:
            pass
        except torch.OutOfMemoryError:
            short = True
        else:
            if record is not None:
                self.listener.ended(record)
        if short:  # not earlier: the error holds what had been made
            self._put_off(team, [member.run])

    def _step(self, team: Team) -> None:
        runs, place, short = [member.run for member in team.runs], self.teams.index(team), False
        try:
            self.teams[place : place + 1] = team.step()
        except torch.OutOfMemoryError:
            short = True
        if short:
            del self.teams[place]
            self._put_off(team, runs)

    def _put_off(self, team: Team, runs: Sequence[RunConfig]) -> None:
        """Puts runs back into the queue, each by itself."""
        torch.cuda.empty_cache()
        elsewhere = sum(len(other.runs) for other in self.teams if other is not team)
        if not elsewhere and team.size == 1:
            raise InputError(TOO_LARGE)
        self.limit = elsewhere or self.limit
        self.waiting.extendleft([run] for run in reversed(runs))

    def _save_the_others(self) -> None:
        """One run has failed, or the user insists: the others keep what they have."""
        self.stop.ask()
        while self.teams:
            going_on: list[Team] = []
            for team in self.teams:  # in turns: some take their steps together
                for member in team.awake():
                    try:
                        with team.queue:
                            record: RunRecord | None = team.resume(member)
                        if record is not None:
                            self.listener.ended(record)
                    except BaseException:  # a broken device, or the one that failed
                        team.drop(member)
                with suppress(BaseException), team.queue:
                    going_on += team.step()
            self.teams = going_on

    def _reserved(self) -> int:
        return torch.cuda.memory_reserved(self.device) if self.device.type == "cuda" else 0
