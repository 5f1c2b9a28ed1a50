"""Every command that trains goes through here: which runs are done, who makes the others, what became of them.

A run is a pure function of its config and its record in the store is the answer. So a backend need not be of this
machine: whatever makes runs and tells of their records will do.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from rcad.data.dataset import parse_spec
from rcad.data.files import digest
from rcad.errors import InputError, cores, without_advice
from rcad.loss.method_rows import check_named, without_defaults
from rcad.runs.config import RunConfig
from rcad.runs.locks import BusyError
from rcad.runs.plain import config_id
from rcad.runs.record import RunRecord
from rcad.runs.store import Store
from rcad.runs.words import held_out_words, plural, said, title
from rcad.train.place import Place
from rcad.train.progress import SILENT, Calls, Progress, each_note_once
from rcad.train.stop import NotBegun, Stop, exit_code, stopping
from rcad.train.trackers import Observer

log = logging.getLogger("rcad")

LEFT = 2  # the exit code where runs are left: to other processes, or for want of time
SHOW_S = 0.05  # seconds between two changes of what is shown


@dataclass(frozen=True)
class Work:
    """Runs to be made, none of which has a final record: all that a backend is given."""

    configs: Sequence[RunConfig]
    place: Place
    stop: Stop
    listener: Listener

    def in_time(self, config: RunConfig) -> bool:
        """Whether a run can end before the time is up, at the pace of the last one that ended; else do not begin it."""
        return self.stop.lets_begin(self.listener.pace * cost(config))


Backend = Callable[[Work], None]
"""Makes runs until all are over or `work.stop` is set, and then saves those that are under way. Of each run that was
taken up, the listener is told by `ended` its record, final or saved, or by `busy` that another process works on it.
What is wrong with the input is raised, with the other runs saved."""


class Listener(Protocol):
    """Is told of runs by the backend that makes them."""

    pace: float  # seconds for a unit of `cost`, of the last run that ended; 0.0 before one has

    def progress(self, config: RunConfig) -> Progress:
        """Where a run says how far it is."""

    def ended(self, record: RunRecord) -> None:
        """A run has ended with this record, final or saved."""

    def busy(self, config: RunConfig, error: BusyError) -> None:
        """Another process works on a run."""


@dataclass(frozen=True)
class Outcome:
    """What became of the runs that were asked for."""

    records: tuple[RunRecord, ...]  # of those that were begun, now or earlier, in order
    already: frozenset[str]  # the ids of those that had been finished before
    left: tuple[tuple[RunConfig, str], ...] = ()  # those that other processes were working on, and who
    unfinished: int = 0  # how many have no final record
    signal: int | None = None  # the number of the signal that stopped the work, if one did
    out_of_time: bool = False  # whether the time limit stopped it

    @property
    def complete(self) -> bool:
        """Whether every run has a final record and nobody asked to stop."""
        return not self.unfinished and self.signal is None

    @property
    def exit_code(self) -> int:
        """130 or 143 where a signal stopped it, 2 where runs are left, 1 where a run diverged."""
        if self.signal is not None:
            return exit_code(self.signal)
        if self.unfinished:
            return LEFT
        return int(any(record.status == "diverged" for record in self.records))

    def words(self) -> str:
        """Why it is not complete and what is left, in one line; empty where it is."""
        if self.signal is not None or self.out_of_time:
            reason = "stopped" if self.signal is not None else "the time is up"
            if not self.unfinished:
                return f"{reason}: every run is done"
            return f"{reason}: {plural(self.unfinished, 'run')} left; run the same command to continue"
        if not self.left:
            return ""
        seeds: dict[str, list[str]] = {}
        for config, owner in self.left:
            seeds.setdefault(owner, []).append(str(config.seed))
        taken = [f"{'seed' if len(own) == 1 else 'seeds'} {', '.join(own)} to {owner}" for owner, own in seeds.items()]
        return f"left {'; '.join(taken)}; the same command shows them when they are done"


def schedule(
    configs: Sequence[RunConfig],
    place: Place,
    progress: Progress = SILENT,
    *,
    backend: Backend | None = None,
    at_once: int | None = None,
    processes: int | None = 1,
    minutes: float | None = None,
    held_out: bool = False,
    notes: bool = True,
) -> Outcome:
    """Makes every run that has no final record yet; stopped by a signal or by the clock, it goes on next time.

    A run that another process works on is left to it and looked at again at the end; it is an error only where no
    run is free.

    Args:
        backend: who makes the runs; None for what suits them and the device.
        at_once: how many share a GPU; None chooses by the size of the work.
        processes: worker processes on the CPU; None chooses by the size of the work. Each has one thread.
        minutes: the time limit. A run that cannot end in time, by the pace of those before it, is not begun.
        held_out: show and track the numbers of the held-out split alone, for a search must not see those of the test.
        notes: a line for the end of each run.
    """
    for config in configs:
        check_named(config.method)
    by_id = {config_id(config): config for config in map(canonical_config, configs)}
    with stopping(minutes) as stop:
        books = _Bookkeeper(by_id, place, progress, held_out=held_out, notes=notes)
        with suppress(NotBegun):
            stop.at_once = True  # until a run has something to save
            books.look()
            fresh = [config for run, config in by_id.items() if run not in books.already]
            if fresh:
                work = Work(fresh, place, stop, books)
                backend = backend or choose_backend(fresh, place, at_once, processes)
                stop.at_once = backend is one_by_one
                backend(work)
                # By now the other process may have finished a run that was left to it, or have been stopped.
                if books.left and not stop.is_set():
                    books.look_again()
                    one_by_one(replace(work, configs=[by_id[run] for run in by_id if run in books.left]))
        stop.at_once = False
        return books.outcome(stop)


def canonical_config(config: RunConfig) -> RunConfig:
    """The config under which a run is kept: without what the method takes by default, written out or not."""
    if not any(values for _, values in config.method):
        return config  # nothing to leave out, and no need to wait for torch
    from rcad.loss.methods import method_defaults

    return replace(config, method=without_defaults(config.method, method_defaults()))


def check_data(finished: Sequence[RunConfig], place: Place, progress: Progress) -> None:
    """Refuses runs whose data have changed since they were finished. Data that are no longer there say nothing."""
    from rcad.data.registry import READERS, find

    for config in finished:
        check_weights(config, place.store)
    # The sets that rcad knows by name do not change, and to say so needs no torch.
    own = [config for config in finished if parse_spec(config.data.name)[0] not in READERS]
    if not own:
        return
    import torch

    from rcad.train.run import changed_data, is_of_other_data
    from rcad.train.task import Reader, prepare

    reader = Reader(place)
    changed: dict[RunConfig, str] = {}
    for config in own:
        try:
            problem = prepare(config, reader(config.data, progress), torch.device("cpu"))
        except InputError as error:
            if find(parse_spec(config.data.name)[0], place.data_dir):
                changed[config] = f"has changed since or cannot be read: {without_advice(str(error))}"
        else:
            if is_of_other_data(place.store, config, problem):
                changed[config] = "has changed since"
    if changed:
        raise changed_data(place.store, list(changed), next(iter(changed.values())))


def weights_hash(config: RunConfig) -> str:
    """Of the file of weights that a run begins with; "" without one."""
    path = None if config.model.weights is None else Path(config.model.weights)
    return "" if path is None or not path.is_file() else _digest(path, path.stat().st_mtime_ns, path.stat().st_size)


@lru_cache(maxsize=8)
def _digest(path: Path, modified: int, size: int) -> str:
    return digest(path)  # many seeds and candidates begin with one file


def check_weights(config: RunConfig, store: Store) -> None:
    """Refuses a run that was begun with another file of weights than the one that has this name now."""
    before, now = (record := store.record(config)) and record.resolved.get("weights_sha256"), weights_hash(config)
    if before and now and before != now:
        run = config_id(config)
        raise InputError(
            f"expected the weights that run {run} was begun with, but {config.model.weights} has changed since; use "
            f"another folder of runs, or remove the run: rcad runs prune {run} --yes{store.option}"
        )


class _Bookkeeper:
    """What has become of the runs so far, by their ids; shows all of them as one Progress."""

    def __init__(
        self, configs: Mapping[str, RunConfig], place: Place, progress: Progress, *, held_out: bool, notes: bool
    ) -> None:
        self.configs, self.place, self.whole = configs, place, progress
        self._held_out, self._notes = held_out, notes
        self.note = each_note_once(progress, but_numbers=True).note if notes else SILENT.note
        self.already: set[str] = set()
        self.records: dict[str, RunRecord] = {}
        self.left: dict[str, BusyError] = {}
        self._observer = Observer(place.track, place.store, held_out=held_out) if place.track else None
        self._costs = {run: cost(config) for run, config in configs.items()}
        self._shares: dict[str, float] = {}
        self._done, self._total = 0.0, sum(self._costs.values())
        self._shown_at = float("-inf")
        self.pace = 0.0

    def look(self) -> None:
        """Which runs are done, on the data that are there now."""
        for run, config in self.configs.items():
            if (record := self.place.final_record(config)) is not None:
                self.records[run] = record
        self.already = set(self.records)
        check_data([self.configs[run] for run in self.records], self.place, self.whole)
        for run, record in self.records.items():
            self._total -= self._costs[run]
            self._report_end(record)

    def look_again(self) -> None:
        """Which of the runs that were left to other processes are done by now."""
        for run in tuple(self.left):
            if (record := self.place.final_record(self.configs[run])) is not None:
                self.already.add(run)
                self.ended(record)

    def progress(self, config: RunConfig) -> Progress:
        run = config_id(config)

        def overall(done: float, total: float, text: str) -> None:
            self.moved(run, done / total if total else 0.0, text)

        return Calls(overall, self.whole.detail, self.note)

    def moved(self, run: str, share: float, text: str) -> None:
        """So much of a run is done. Called at every step."""
        if run not in self._shares:
            # What a run that goes on has behind it says nothing of how fast this machine is.
            self._total -= self._costs[run] * share
        else:
            self._done += self._costs[run] * (share - self._shares[run])
        self._shares[run] = share
        if self._observer is not None:
            self._observer.moved(run, self.configs[run])
        now = time.monotonic()
        if now - self._shown_at >= SHOW_S or share == 1:
            self._shown_at = now
            done, total = round(self._done, 3), round(self._total, 3)
            self.whole.overall(done, total, self._words(self.configs[run], text))

    def ended(self, record: RunRecord) -> None:
        self.left.pop(record.id, None)
        self.records[record.id] = record
        if record.status == "done" and self._costs[record.id]:
            self.pace = sum(value or 0.0 for value in record.timings.values()) / self._costs[record.id]
        if record.is_final and (len(self.configs) > 1 or self._shares.get(record.id) != 1):
            self._shares.setdefault(record.id, 0.0)
            self.moved(record.id, 1.0, "done")
        self._report_end(record)

    def busy(self, config: RunConfig, error: BusyError) -> None:
        if len(self.configs) == 1:
            raise error
        self.left[config_id(config)] = error
        if self._notes:
            self.whole.note(f"{title(config)}  left to {error.owner}")

    def outcome(self, stop: Stop) -> Outcome:
        if self.left and not self.records:
            raise InputError(
                f"expected one of {len(self.configs)} runs to be free, but {next(iter(self.left.values())).owner} is "
                "working on them; wait for it or stop it"
            )
        records = tuple(self.records[run] for run in self.configs if run in self.records)
        unfinished = len(self.configs) - sum(record.is_final for record in records)
        # A record that says "interrupted" was stopped by a signal, though it may have come to another process.
        number = stop.signal
        if number is None and not stop.out_of_time and any(not record.is_final for record in records):
            number = 2
        return Outcome(
            records=records,
            already=frozenset(self.already),
            left=tuple((self.configs[run], error.owner) for run, error in self.left.items()),
            unfinished=unfinished,
            signal=number,
            out_of_time=number is None and (stop.out_of_time or stop.short) and unfinished > 0,
        )

    def _words(self, config: RunConfig, text: str) -> str:
        total = len(self.configs)
        if total == 1:
            return f"{title(config)}: {text}"
        done = sum(record.is_final for record in self.records.values())
        at_work = sum(share < 1 for share in self._shares.values())
        several = f", {at_work} at work" if at_work > 1 else ""
        return f"{done} of {total} runs done{several}; {title(config)}: {text}"

    def _report_end(self, record: RunRecord) -> None:
        already = record.id in self.already
        if self._notes:
            self.whole.note(held_out_words(record, already) if self._held_out else said(record, already, most=2))
        if self._observer is not None:
            self._observer.ended(record)


def one_by_one(work: Work) -> None:
    """The backend of this process: one run after the other."""
    from rcad.train import run as engine
    from rcad.train.task import Reader

    reader = Reader(work.place)
    for config in work.configs:
        if work.stop.is_set():
            return
        if not work.in_time(config):
            continue
        try:
            record = engine.run(config, work.place, work.listener.progress(config), stop=work.stop, reader=reader)
        except BusyError as error:
            work.listener.busy(config, error)
        except NotBegun:
            return
        else:
            work.listener.ended(record)
            if not record.is_final:
                return


MOST_PROCESSES = 2  # where the user does not say: a laptop must stay usable
LEAST_WORK = 50_000
"""Starting processes takes seconds; for less work (see `cost`), half a minute of tiny runs, it does not pay."""


def choose_backend(configs: Sequence[RunConfig], place: Place, at_once: int | None, processes: int | None) -> Backend:
    """The backend that suits these runs and the device; `at_once` and `processes` as in `schedule`."""
    sharing = [name for name, value in (("--at-once", at_once), ("--join", place.joined)) if value not in (None, 1)]
    if place.executor is not None:
        from rcad.train.cluster.on_ray import OnRay

        return OnRay(place.executor, at_once)
    if place.devices and len(configs) > 1:
        from rcad.train.processes import Processes

        return Processes(len(place.devices), place.devices, at_once)
    if place.device != "cpu" and len(configs) > 1:
        from rcad.train.machine import pick_device

        # A GPU takes work from up to 32 queues at once instead of 8; heard only before CUDA starts.
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
        if pick_device(place.device).type == "cuda":
            from rcad.train.one_gpu import OneGPU, can_share

            if at_once == 1:
                return one_by_one
            if sharing and sum(map(can_share, configs)) < 2:
                log.warning("%s: not for dropout, timm or train.deterministic", " and ".join(sharing))
            return OneGPU(at_once)
    if sharing and len(configs) > 1 and processes == 1:
        log.warning("%s: only for runs that share a GPU; on the CPU they go one after the other", " and ".join(sharing))
    if processes is None:
        processes = min(MOST_PROCESSES, cores()) if sum(map(cost, configs)) >= LEAST_WORK else 1
    if min(processes, len(configs)) == 1:
        return one_by_one
    from rcad.train.processes import Processes

    return Processes(processes)


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
WHOLE_SET = 50_000  # images of a whole set, where a config does not name a number


def cost(config: RunConfig) -> float:
    """How long a run takes, in passes over an image by ERM: the time that is left is reckoned with it."""
    _, count = parse_spec(config.data.name)
    times = 1.0 + sum(COST.get(name, 1.0) - 1.0 for name, _ in config.method)
    return times * config.train.epochs * (count or WHOLE_SET)
