"""The backend of local processes. Each takes one run after the other; one that dies is replaced and its run goes on."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from rcad.errors import InputError, MissingExtraError, whole
from rcad.runs.config import RunConfig
from rcad.runs.locks import BusyError
from rcad.runs.plain import config_id
from rcad.runs.words import title
from rcad.train.place import Place
from rcad.train.scheduler import Work

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
ATTEMPTS = 3
"""A run during which so many workers died is at fault itself."""
PATIENCE_S = 60.0
"""How long a worker may take to save its run."""
_POLL_S, _TELL_S = 0.2, 0.5


@dataclass(frozen=True)
class Processes:
    """So many worker processes with one thread each, started afresh (not forked: torch's threads do not survive it)."""

    count: int

    def __post_init__(self) -> None:
        whole("the number of processes", self.count, minimum=1)

    def __call__(self, work: Work) -> None:
        crew = _Crew(work)
        try:
            crew.go(min(self.count, len(work.configs)))
        finally:
            crew.end()


@dataclass(eq=False)
class _Worker:
    process: BaseProcess
    pipe: Connection
    run: RunConfig | None = None


class _Crew:
    """The workers, and what is left to do."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._waiting = deque(work.configs)
        self._workers: list[_Worker] = []
        self._deaths: Counter[RunConfig] = Counter()
        self._progress = {config: work.listener.progress(config) for config in work.configs}
        self._problem: Exception | None = None
        self._asked = False

    def go(self, count: int) -> None:
        self._workers = [_started(self._work.place) for _ in range(count)]
        for worker in self._workers:
            self._hand_out(worker)
        while busy := [worker for worker in self._workers if worker.run is not None]:
            if self._ending() and not self._asked:
                self._asked = True
                for worker in busy:
                    worker.process.terminate()  # the run takes it as a request to save and stop
            for pipe in wait([worker.pipe for worker in busy], _POLL_S):
                self._hear(next(worker for worker in busy if worker.pipe is pipe))
        if self._problem is not None:
            raise self._problem

    def end(self) -> None:
        for worker in self._workers:
            worker.pipe.close()
            worker.process.terminate()  # one that is at work saves its run first
        for worker in self._workers:
            worker.process.join(PATIENCE_S)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()

    def _ending(self) -> bool:
        return self._work.stop.is_set() or self._problem is not None

    def _hand_out(self, worker: _Worker) -> None:
        worker.run = None
        if self._waiting and not self._ending():
            worker.run = self._waiting.popleft()
            with contextlib.suppress(BrokenPipeError):  # it has died; what it says, nothing, tells so
                worker.pipe.send(worker.run)

    def _hear(self, worker: _Worker) -> None:
        config = worker.run
        assert config is not None
        try:
            kind, *words = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._replace(worker, config)
            return
        if kind in ("overall", "detail", "note"):
            getattr(self._progress[config], kind)(*words)
            return
        if kind == "ended":
            self._work.listener.ended(self._work.place.store.get(config_id(config)))
        elif kind == "busy":
            self._work.listener.busy(config, BusyError(*words))
        elif self._problem is None and kind in ("refused", "failed"):
            self._problem = InputError(*words) if kind == "refused" else RuntimeError(*words)
        self._hand_out(worker)

    def _replace(self, worker: _Worker, config: RunConfig) -> None:
        """A worker has died: another takes its place, and its run goes on from its checkpoint."""
        worker.process.join(1.0)
        worker.pipe.close()
        worker.run = None
        self._workers.remove(worker)
        if self._ending():
            return
        self._deaths[config] += 1
        if self._deaths[config] >= ATTEMPTS:
            self._problem = InputError(
                f"expected a worker process to go on, but {ATTEMPTS} ended with {worker.process.exitcode} (killed, or "
                f"out of memory) on {title(config)}; the same command goes on from here, --workers 1 takes less memory"
            )
            return
        self._waiting.appendleft(config)
        self._workers.append(fresh := _started(self._work.place))
        self._hand_out(fresh)


def _started(place: Place) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work_for, args=(theirs, place), daemon=True)
    with _one_thread():
        process.start()
    theirs.close()
    return _Worker(process, ours)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Variables that a process hears only when it starts."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def work_for(pipe: Connection, place: Place) -> None:
    """A worker: takes configs until nobody sends any."""
    os.setpgid(0, 0)  # a Ctrl-C at the terminal is the parent's to hear, which then asks once
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            config = pipe.recv()
        except (EOFError, OSError):
            return
        with contextlib.suppress(BrokenPipeError):
            pipe.send(_answer(config, place, pipe))


def _answer(config: RunConfig, place: Place, pipe: Connection) -> tuple[Any, ...]:
    """What became of a run, and words on it."""
    from rcad.train.run import run

    try:
        run(config, place, _Piped(pipe))
    except BusyError as error:
        return "busy", error.run, error.owner
    except (InputError, MissingExtraError) as error:
        return "refused", str(error)
    except KeyboardInterrupt:
        return ("stopped",)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    return ("ended",)


class _Piped:
    """A run's Progress that tells the parent, now and then."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._last = pipe, float("-inf")

    def overall(self, *words: Any) -> None:
        if time.monotonic() - self._last >= _TELL_S:
            self._last = time.monotonic()
            self._send("overall", *words)

    def detail(self, *words: Any) -> None:
        """Several at once would take each other's place on the screen."""

    def note(self, text: str) -> None:
        self._send("note", text)

    def _send(self, *message: Any) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._pipe.send(message)


def _end_with_parent() -> None:
    """Nobody should keep a run locked for a parent that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
