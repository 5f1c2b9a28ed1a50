"""An executor of local processes. Each takes one run after the other; a stop lets all of them save what they have."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from rcad.errors import InputError, MissingExtraError, whole
from rcad.runs.config import RunConfig
from rcad.runs.plain import config_id
from rcad.train.executors import Watcher
from rcad.train.machine import stop_signals
from rcad.train.run import Place, run

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
PATIENCE_S = 60.0
"""How long a worker may take to save its run."""
_POLL_S = 0.2

Answer = tuple[str, str]
"""What became of a run: "final", "stopped", "refused" or "failed", and words on it."""


@dataclass(frozen=True)
class Processes:
    """So many worker processes with one thread each, started afresh (not forked: torch's threads do not survive it)."""

    count: int

    def __post_init__(self) -> None:
        whole("the number of processes", self.count, minimum=1)

    def __call__(self, configs: Sequence[RunConfig], place: Place, watcher: Watcher) -> bool:
        with stop_signals() as stop, _workers(min(self.count, len(configs)), place) as workers:
            return _Crew(workers, configs, place, watcher, stop).go()


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    pipe: Connection
    at_work: int | None = None


@dataclass(eq=False)
class _Crew:
    """The workers and what is left to do."""

    workers: list[_Worker]
    configs: Sequence[RunConfig]
    place: Place
    watcher: Watcher
    stop: threading.Event
    next: int = 0
    stopped: bool = False
    problem: Exception | None = field(default=None)

    def go(self) -> bool:
        for worker in self.workers:
            self._hand_out(worker)
        while busy := [worker for worker in self.workers if worker.at_work is not None]:
            if (self.stop.is_set() or self.problem) and not self.stopped:
                self.stopped = True
                for worker in busy:
                    worker.process.terminate()  # the run takes it as a request to save and stop
            for pipe in wait([worker.pipe for worker in busy], _POLL_S):
                self._hear(next(worker for worker in busy if worker.pipe is pipe))
        if self.problem is not None:
            raise self.problem
        return not self.stop.is_set()

    def _hand_out(self, worker: _Worker) -> None:
        worker.at_work = None
        if self.next < len(self.configs) and not self.stop.is_set() and self.problem is None:
            with contextlib.suppress(BrokenPipeError):  # it has died; what it says, nothing, tells so
                worker.pipe.send(self.configs[self.next])
            worker.at_work, self.next = self.next, self.next + 1

    def _hear(self, worker: _Worker) -> None:
        index = worker.at_work
        assert index is not None
        try:
            kind, words = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._lost(worker)
            return
        if kind == "final":
            self.watcher.ended(index, self.place.store.get(config_id(self.configs[index])))
        elif kind != "stopped" and self.problem is None:
            self.problem = InputError(words) if kind == "refused" else RuntimeError(words)
        elif kind == "stopped":
            self.stop.set()
        self._hand_out(worker)

    def _lost(self, worker: _Worker) -> None:
        worker.at_work = None
        worker.process.join(1.0)
        if not self.stopped and self.problem is None:
            self.problem = InputError(
                f"expected a worker process to go on, but it ended with {worker.process.exitcode} (killed, or out of "
                "memory); the same command goes on from here, --workers 1 takes less memory"
            )


@contextlib.contextmanager
def _workers(count: int, place: Place) -> Iterator[list[_Worker]]:
    """Started with one thread each, and ended whatever happens."""
    context = multiprocessing.get_context("spawn")
    workers: list[_Worker] = []
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)  # heard only when a process starts
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, place), daemon=True)
            process.start()
            theirs.close()
            workers.append(_Worker(process, ours))
        for name, value in before.items():
            _restore(name, value)
        yield workers
    finally:
        for name, value in before.items():
            _restore(name, value)
        for worker in workers:
            worker.pipe.close()
        for worker in workers:
            worker.process.terminate()  # one that is at work saves its run first
        for worker in workers:
            worker.process.join(PATIENCE_S)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


def _restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def work(pipe: Connection, place: Place) -> None:
    """A worker: takes configs until nobody sends any."""
    os.setpgid(0, 0)  # a Ctrl-C at the terminal is the parent's to hear, which then asks once
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            config = pipe.recv()
        except (EOFError, OSError):
            return
        with contextlib.suppress(BrokenPipeError):
            pipe.send(_answer(config, place))


def _answer(config: RunConfig, place: Place) -> Answer:
    try:
        record = run(
            config, place.store, data_dir=place.data_dir, cache_dir=place.cache_dir, device="cpu", engine=place.engine
        )
    except (InputError, MissingExtraError) as error:
        return "refused", str(error)
    except KeyboardInterrupt:
        return "stopped", ""
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    return ("final", record.status) if record.is_final else ("stopped", record.status)


def _end_with_parent() -> None:
    """Nobody should keep a run locked for a parent that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
