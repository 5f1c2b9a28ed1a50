"""The backend of local processes, on the CPU or one for each GPU; one that dies is replaced and its runs go on.

Each takes one share of the runs after the other: a single run on the CPU, those that share the device on a GPU.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from rcad.errors import InputError, MissingExtraError, whole
from rcad.loss.own import imported
from rcad.runs.config import RunConfig
from rcad.runs.locks import BusyError
from rcad.runs.plain import config_id
from rcad.runs.record import RunRecord
from rcad.runs.words import title
from rcad.train.place import Place
from rcad.train.progress import SILENT, Calls, Progress
from rcad.train.scheduler import Work, choose_backend
from rcad.train.stop import stopping

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
START = "spawn"  # how processes begin: afresh, since torch's threads do not survive a fork
ATTEMPTS = 3  # a run during which so many workers died is at fault itself
PATIENCE_S = 60.0  # how long a worker may take to save its run
_POLL_S, _SEND_S = 0.2, 0.5


@dataclass(frozen=True)
class Processes:
    """So many worker processes with one thread each; `at_once` as in `schedule`."""

    count: int
    devices: tuple[str, ...] = ()  # one for each, e.g. ("cuda:0", "cuda:2"); empty for the place's own
    at_once: int | None = None

    def __post_init__(self) -> None:
        whole("the number of processes", self.count, minimum=1)

    def __call__(self, work: Work) -> None:
        crew = _Crew(work, self._shares(work), self.at_once)
        try:
            crew.go(list(self.devices or [work.place.device] * self.count))
        finally:
            crew.end()

    def _shares(self, work: Work) -> Sequence[Sequence[RunConfig]]:
        if not any(device.startswith("cuda") for device in self.devices):
            return [[config] for config in work.configs]
        from rcad.train.one_gpu import in_shares

        return in_shares(work.configs, self.at_once, work.place.joined, self.count)


@dataclass(eq=False)
class _Worker:
    """A process, and which runs of its share are not over yet, by id."""

    process: BaseProcess
    pipe: Connection
    device: str
    runs: dict[str, RunConfig]
    at_work: bool = False


class _Crew:
    """The workers, and what is left to do."""

    def __init__(self, work: Work, shares: Iterable[Sequence[RunConfig]], at_once: int | None) -> None:
        self._work, self._at_once = work, at_once
        self._waiting = deque(shares)
        self._workers: list[_Worker] = []
        self._deaths: Counter[RunConfig] = Counter()
        self._progress = {config_id(config): work.listener.progress(config) for config in work.configs}
        self._problem: Exception | None = None

    def go(self, devices: Sequence[str]) -> None:
        self._workers = [self._start(device) for device in devices[: len(self._waiting)]]
        for worker in self._workers:
            self._hand_out(worker)
        asked_to_end = False
        while busy := [worker for worker in self._workers if worker.at_work]:
            if self._ending() and not asked_to_end:
                asked_to_end = True
                for worker in busy:
                    worker.process.terminate()  # its runs take it as a request to save and stop
            for pipe in wait([worker.pipe for worker in busy], _POLL_S):
                self._listen(next(worker for worker in busy if worker.pipe is pipe))
        if self._problem is not None:
            raise self._problem

    def end(self) -> None:
        for worker in self._workers:
            worker.pipe.close()
            worker.process.terminate()  # one that is at work saves its runs first
        for worker in self._workers:
            worker.process.join(PATIENCE_S)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()

    def _ending(self) -> bool:
        return self._work.stop.is_set() or self._problem is not None

    def _hand_out(self, worker: _Worker) -> None:
        worker.runs, worker.at_work = {}, False
        while self._waiting and not self._ending() and not worker.at_work:
            share = self._waiting.popleft()
            if not all(map(self._work.in_time, share)):
                continue
            worker.runs, worker.at_work = {config_id(config): config for config in share}, True
            with contextlib.suppress(BrokenPipeError):  # it has died; what it says, nothing, tells so
                worker.pipe.send(share)

    def _listen(self, worker: _Worker) -> None:
        try:
            kind, *words = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._replace(worker)
            return
        if kind == "over":
            self._problem = self._problem or words[0]
            self._hand_out(worker)
        elif kind == "ended":
            worker.runs.pop(words[0], None)
            self._work.listener.ended(self._work.place.store.get(words[0]))
        elif kind == "busy":
            self._work.listener.busy(worker.runs.pop(words[0]), BusyError(*words))
        else:
            getattr(self._progress[words[0]], kind)(*words[1:])

    def _replace(self, worker: _Worker) -> None:
        """A worker has died: another takes its place, and its runs go on from their checkpoints, one by one."""
        worker.process.join(1.0)
        worker.pipe.close()
        worker.at_work = False
        self._workers.remove(worker)
        if self._ending():
            return
        for config in reversed(worker.runs.values()):
            self._deaths[config] += 1
            if self._deaths[config] >= ATTEMPTS:
                self._problem = InputError(
                    f"expected a worker process to go on, but {ATTEMPTS} ended with {worker.process.exitcode} (killed, "
                    f"out of memory, or a script without if __name__ == '__main__') on {title(config)}; run it again, "
                    "with fewer --devices for less memory"
                )
                return
            self._waiting.appendleft([config])
        self._workers.append(fresh := self._start(worker.device))
        self._hand_out(fresh)

    def _start(self, device: str) -> _Worker:
        context: Any = multiprocessing.get_context(START)
        ours, theirs = context.Pipe()
        place = replace(self._work.place, device=device, devices=())
        process = context.Process(target=work_for, args=(theirs, place, self._at_once), daemon=True)
        before = {name: os.environ[name] for name in ONE_THREAD if name in os.environ}
        os.environ.update(ONE_THREAD)  # a process reads them only when it starts
        try:
            process.start()
        finally:
            for name in ONE_THREAD:
                del os.environ[name]
            os.environ.update(before)
        theirs.close()
        return _Worker(process, ours, device, {})


def work_for(pipe: Connection, place: Place, at_once: int | None) -> None:
    """A worker: takes shares of the runs until nobody sends any."""
    os.setpgid(0, 0)  # a Ctrl-C at the terminal is the parent's to hear, which then asks once
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def send(*message: Any) -> None:
        with contextlib.suppress(BrokenPipeError):
            pipe.send(message)

    while True:
        try:
            share = pipe.recv()
        except (EOFError, OSError):
            return
        send("over", make_share(share, place, at_once, Sender(send)))


def make_share(share: Sequence[RunConfig], place: Place, at_once: int | None, listener: Sender) -> Exception | None:
    """Makes these runs; returns what went wrong, if anything did."""
    try:
        for config in share:
            imported(config.method)
        with stopping() as stop:
            choose_backend(share, place, at_once, processes=1)(Work(share, place, stop, listener))
    except KeyboardInterrupt:
        pass
    except Exception as error:
        return portable(error)
    return None


def portable(error: Exception) -> Exception:
    """The error as another process can raise it: an InputError, or a RuntimeError with the traceback as its note."""
    if isinstance(error, InputError | MissingExtraError):
        return InputError(str(error))
    failure = RuntimeError(f"{type(error).__name__}: {error}")
    failure.add_note(traceback.format_exc())
    return failure


class Sender:
    """The listener of a worker's runs: sends to the other process a kind, the run's id, and words."""

    pace = 0.0  # the time limit is kept where the messages go

    def __init__(self, send: Callable[..., None]) -> None:
        self._send = send

    def progress(self, config: RunConfig) -> Progress:
        run, last = config_id(config), float("-inf")

        def overall(*words: Any) -> None:
            nonlocal last
            if time.monotonic() - last >= _SEND_S:
                last = time.monotonic()
                self._send("overall", run, *words)

        # Details of several at once would take each other's place on the screen.
        return Calls(overall, SILENT.detail, partial(self._send, "note", run))

    def ended(self, record: RunRecord) -> None:
        self._send("ended", record.id)

    def busy(self, config: RunConfig, error: BusyError) -> None:
        self._send("busy", config_id(config), error.owner)


def _end_with_parent() -> None:
    """Ends this process with its parent, so that no run stays locked."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
