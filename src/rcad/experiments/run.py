"""run(config) -> record: the whole of a run, resumed where it stopped, never done twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import torch

from rcad.data.dataset import Dataset
from rcad.errors import InputError
from rcad.experiments.config import RunConfig
from rcad.experiments.environment import commit, versions
from rcad.experiments.log import LogWriter, read_log
from rcad.experiments.machine import device_words, peak_memory, pick_device, stop_signals, suitable_threads
from rcad.experiments.plain import config_id
from rcad.experiments.record import RunRecord, Split, Status, utc_now
from rcad.experiments.rows import Defaults, without_defaults
from rcad.experiments.store import Store
from rcad.methods import METHODS
from rcad.train.checkpoint import restore_trainer, save_tensors, save_trainer
from rcad.train.loop import Trainer
from rcad.train.metrics import measure
from rcad.train.problem import Problem, method_of, model_of, prepare, read
from rcad.train.reporting import Reporter, Row, Silent, Tracker

CHECKPOINT, WEIGHTS = "last.safetensors", "model.safetensors"


def method_defaults() -> Defaults:
    """Every method's parameters and their defaults, for `override` and for canonical ids."""
    return {
        name: {key: parameter.default for key, parameter in signature(make).parameters.items()}
        for name, make in METHODS.items()
    }


def canonical_config(config: RunConfig) -> RunConfig:
    """The same run with its method's defaults left out, so that writing one out does not make another run."""
    return replace(config, method=without_defaults(config.method, method_defaults()))


def run(
    config: RunConfig,
    store: Store,
    *,
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    device: str = "auto",
    reporter: Reporter | None = None,
    trackers: Sequence[Tracker] = (),
    checkpoint_seconds: float = 15.0,
) -> RunRecord:
    """Trains, evaluates and records. A finished record comes back at once; a started run goes on.

    Ctrl-C and SIGTERM save a checkpoint between two steps and give a record that is "interrupted". Everything that
    can be wrong with the input is found before anything is written.
    """
    config = canonical_config(config)
    reporter = reporter or Silent()
    place = pick_device(device)
    if config.train.precision == "bf16" and place.type == "cpu":
        raise InputError("expected a GPU for train.precision=bf16, but got the CPU; use fp32")
    try:
        dataset = read(config.data, data_dir, cache_dir, reporter)
    except InputError:
        if (record := _finished(store, config)) is not None:
            return record  # a result stays good when its data are no longer there
        raise
    # The global generators are seeded inside; the caller's state is given back.
    with torch.random.fork_rng(devices=[] if place.type == "cpu" else [place]):
        problem = prepare(config, dataset, place)
        _check_same_data(store, config, problem)
        if (record := _finished(store, config)) is not None:
            return record
        trainer = Trainer(config, problem, method_of(config, problem), model_of(config, problem), reporter)
        reporter.note(_words(dataset, problem))
        with store.lock(config), suitable_threads(problem.train[0]):
            if (record := _finished(store, config)) is not None:
                return record
            return _Run(config, store, trainer, trackers, checkpoint_seconds).go()


def _check_same_data(store: Store, config: RunConfig, problem: Problem) -> None:
    """A record, finished or not, belongs to the data it was made from, whatever stands under their name now."""
    if store.status(config) == "new":
        return
    record = store.get(config_id(config))
    if record.data_sha256 not in ("", problem.fingerprint):
        raise InputError(
            f"expected the data that run {record.id} was made from, but {config.data.name} has changed since; "
            f"remove that run (rcad runs prune) or use another folder of runs"
        )


def _words(dataset: Dataset, problem: Problem) -> str:
    """What was read, in one line."""
    kind = f"{len(dataset.classes)} classes" if problem.classes else "a real target"
    sizes = ", ".join(
        f"{len(part[1]):,} {name}"
        for name, part in (("training", problem.train), ("validation", problem.val), ("test", problem.test))
        if len(part[1])
    )
    return f"{dataset.name}: {tuple(problem.train[0].shape[1:])} inputs, {kind}; {sizes} examples"


def _finished(store: Store, config: RunConfig) -> RunRecord | None:
    if store.status(config) not in ("done", "diverged"):
        return None
    return store.get(config_id(config))


class _Run:
    """One locked run: what is written when."""

    def __init__(
        self, config: RunConfig, store: Store, trainer: Trainer, trackers: Sequence[Tracker], checkpoint_seconds: float
    ) -> None:
        self.config, self.store, self.trainer = config, store, trainer
        self.trackers, self.interval = trackers, checkpoint_seconds
        run = config_id(config)
        self.checkpoint = store.checkpoint(run) / CHECKPOINT
        self.folder = store.folder(run)
        self.logged = 0
        self.started = utc_now()

    def go(self) -> RunRecord:
        self._resume()
        self._write("running")
        self.trainer.announce()
        with LogWriter(self.store.log(config_id(self.config))) as log, stop_signals() as stop:
            reporter, self.trainer.reporter = self.trainer.reporter, _Recording(self, log)
            try:
                outcome = self._fit(stop)
            finally:
                self.trainer.reporter = reporter
                for tracker in self.trackers:
                    tracker.close()
        if outcome == "interrupted":
            save_trainer(self.trainer, self.checkpoint)
            return self._write("interrupted", message="stopped between two steps; the same command goes on from here")
        if outcome == "diverged":
            epoch = self.trainer.epoch
            return self._write("diverged", message=f"the training loss was no longer finite in epoch {epoch}")
        return self._finish()

    def _resume(self) -> None:
        if self.store.status(self.config) != "new":
            self.started = self.store.get(config_id(self.config)).started
        # A killed run may have logged epochs that its checkpoint does not hold; they come again, equal.
        self.logged = max((int(row["epoch"]) for row in read_log(self.store.log(config_id(self.config)))), default=0)
        if self.checkpoint.exists():
            restore_trainer(self.trainer, self.checkpoint)
            self.trainer.reporter.note(f"going on after epoch {self.trainer.epoch}, step {self.trainer.step}")

    def _fit(self, stop: threading.Event) -> str:
        """Trains; pauses to save where enough time has passed."""
        while True:
            due = time.monotonic() + self.interval
            outcome = self.trainer.fit(pause=lambda due=due: stop.is_set() or time.monotonic() > due)  # type: ignore[misc]
            if outcome != "interrupted" or stop.is_set():
                return outcome
            save_trainer(self.trainer, self.checkpoint)

    def _finish(self) -> RunRecord:
        """The selected weights, the test set (read here, once), the record; then the checkpoint may go."""
        trainer, problem = self.trainer, self.trainer.problem
        trainer.restore_selected()
        start = time.perf_counter()
        metrics = {f"test_{name}": value for name, value in measure(trainer.selected, problem, *problem.test).items()}
        seconds = time.perf_counter() - start
        if len(problem.val[1]):
            scores = measure(trainer.selected, problem, *problem.val)
            metrics |= {f"val_{name}": value for name, value in scores.items()}
        metrics["epochs"] = float(trainer.epoch)
        chosen = trainer.best_epoch if self.config.train.selection == "best" else trainer.epoch
        metrics["selected_epoch"] = float(chosen)
        save_tensors(self.folder / WEIGHTS, trainer.selected.state_dict(), dict(problem.preprocessing))
        record = self._write("done", metrics=metrics, test_seconds=seconds)
        self.checkpoint.unlink(missing_ok=True)
        return record

    def _write(
        self, status: Status, *, message: str = "", metrics: dict[str, float] | None = None, test_seconds: float = 0.0
    ) -> RunRecord:
        record = RunRecord(
            config=self.config,
            status=status,
            started=self.started,
            finished=utc_now() if status in ("done", "diverged") else None,
            message=message,
            splits=_splits(self.trainer.problem),
            epochs=tuple(self.trainer.rows),
            metrics=metrics or {},
            timings={"train_seconds": self.trainer.seconds, "test_seconds": test_seconds},
            peak_memory_bytes=peak_memory(self.trainer.problem.device),
            device=device_words(self.trainer.problem.device),
            versions=versions(),
            commit=commit(),
            data_sha256=self.trainer.problem.fingerprint,
            resolved={
                "model": f"{type(self.trainer.model).__name__}, {_parameters(self.trainer):,} parameters",
                "method": repr(self.trainer.method),
            },
        )
        self.store.write(record)
        return record


class _Recording:
    """Passes on what the trainer says, and keeps each epoch in the log and the trackers."""

    def __init__(self, owner: _Run, log: LogWriter) -> None:
        self._shown, self._owner, self._log = owner.trainer.reporter, owner, log

    def epoch(self, epoch: int, row: Row) -> None:
        self._shown.epoch(epoch, row)
        if epoch > self._owner.logged:
            self._owner.logged = epoch
            self._log.append(row)
            for tracker in self._owner.trackers:
                tracker.log(epoch, row)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shown, name)


def _parameters(trainer: Trainer) -> int:
    return sum(p.numel() for p in trainer.model.parameters())


def _splits(problem: Problem) -> dict[str, Split]:
    found = problem.splits
    return {
        "train": Split(size=len(found.train), sha256=found.train_hash),
        "validation": Split(size=len(found.val), sha256=found.val_hash),
        "test": Split(size=len(found.test), sha256=found.test_hash),
    }
