"""run(config) -> record: the whole of a run, resumed where it stopped, never done twice; and a run in words."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Generator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from rcad.data.dataset import Dataset
from rcad.errors import InputError, one_line
from rcad.loss.growth import as_unit_float
from rcad.loss.method_rows import label, method_rows, without_defaults
from rcad.loss.methods import Method, method_defaults
from rcad.loss.suggest_alpha import STEPS, far_below
from rcad.runs.config import RunConfig
from rcad.runs.files import DamagedError, append_log, read_log, set_aside, write_log
from rcad.runs.plain import config_id
from rcad.runs.recipes import papers_own
from rcad.runs.record import FAILED, FINISHED, NO_TEST, RunRecord, Split, Status, commit, utc_now, versions
from rcad.runs.store import BEFORE, LAST, WEIGHTS, Store
from rcad.runs.words import BY_CHANCE, FEW, plural
from rcad.train import machine
from rcad.train.checkpoint import restore_trainer, save_tensors, save_trainer, share_trainer
from rcad.train.loop import Course, Trainer, exhaust
from rcad.train.place import Engine, Place
from rcad.train.progress import SILENT, Calls, Progress
from rcad.train.scheduler import canonical_config, check_weights, weights_hash
from rcad.train.step import ALONE, Ranks
from rcad.train.stop import Stop, stopping
from rcad.train.task import Problem, Reader, measure, method_of, model_of, prepare, same_data, with_numbers

if TYPE_CHECKING:
    from rcad.train.joined import JoinedStepper

log = logging.getLogger("rcad")

SAVING_SHARE = 0.02  # checkpoints take at most about this share of the time, however slow the disk is


class Stopped(Exception):
    """Asked to stop in the middle of an evaluation."""


class Execution:
    """A run whose lock is held. Of several processes that make it, the first alone reads and writes."""

    def __init__(self, place: Place, trainer: Trainer, at_once: int) -> None:
        self.place, self.trainer, self.at_once = place, trainer, at_once
        self.config, self.ranks, self.started = trainer.config, trainer.ranks, utc_now()
        self.store, run = place.store, config_id(self.config)
        self.folder, self.log = self.store.folder(run), self.store.log(run)
        self.checkpoint, self.weights = self.store.checkpoint(run) / LAST, weights_hash(self.config)

    def course(self, stop: Stop) -> Generator[None, None, RunRecord]:
        """The whole run in instalments; yields whenever work was launched on the device."""
        if self.ranks.leads:
            self._resume()
        share_trainer(self.trainer)
        self._write("running")
        self.trainer.report()
        try:
            outcome = yield from self._fit(stop)
            if self.ranks.leads:
                write_log(self.log, self.trainer.rows)  # as it is, but now it outlasts a power cut
            if outcome == "diverged":
                lower = f"lower --lr (now {self.config.optim.lr:g})"
                message = f"the training loss was no longer finite in epoch {self.trainer.epoch}; {lower}"
                return self._write("diverged", message=message)
            if outcome == "done" and not self.ranks.any(stop.is_set()):
                with suppress(Stopped):
                    return self._finish(stop)
            save_trainer(self.trainer, self.checkpoint)
            return self._write("interrupted", message="stopped between two steps; run the same command to continue")
        except Exception as error:
            with suppress(Exception):  # a full disk, a broken device: that one error is enough
                self._write("interrupted", message=one_line(f"{FAILED}{type(error).__name__}: {error}"))
            raise

    def _resume(self) -> None:
        if (record := self.store.record(self.config)) is not None:
            self.started = record.started
        try:
            read_log(self.log)
        except InputError as error:
            log.warning("expected a whole log, but got: %s; it is kept as %s", error, set_aside(self.log).name)
        damages: list[str] = []
        for path in filter(Path.exists, (self.checkpoint, self.checkpoint.with_name(BEFORE))):
            try:
                restore_trainer(self.trainer, path)
                break
            except DamagedError as error:
                damages.append(f"{error.words}; it is kept as {set_aside(path).name}")
        trainer = self.trainer
        epoch, step = trainer.epoch, trainer.step
        position = f"after {plural(step, 'step')} of epoch {epoch + 1}" if step else f"after epoch {epoch}"
        for words in damages:
            log.warning("%s, and the run %s", words, f"goes on {position}" if trainer.begun else "starts over")
        if trainer.begun:
            trainer.progress.note(f"going on {position}")
        # A killed run may have logged epochs that its checkpoint does not hold, or half of one; they come again, equal.
        write_log(self.log, trainer.rows)
        trainer.on_epoch = partial(append_log, self.log)

    def _fit(self, stop: Stop) -> Course:
        """Trains; pauses to save where enough time has passed."""
        wait, due = self.place.checkpoint_seconds, math.inf

        def pause() -> bool:
            nonlocal due
            due = min(due, time.monotonic() + wait)  # from the first step on: what a start takes need not be saved
            return stop.is_set() or time.monotonic() >= due

        while True:
            outcome = yield from self.trainer.course(pause)
            if outcome != "interrupted" or self.trainer.stepper.agreed(stop.is_set(), "stop"):
                return outcome
            start = time.monotonic()
            save_trainer(self.trainer, self.checkpoint)
            spent = (time.monotonic() - start) * self.at_once
            wait, due = max(self.place.checkpoint_seconds, spent / SAVING_SHARE), math.inf

    def _finish(self, stop: Stop) -> RunRecord:
        """The selected weights, the test set (read here alone), the record; then the checkpoint may go."""
        trainer, problem = self.trainer, self.trainer.problem
        metrics, last, weights, tests = {}, {}, {}, len(problem.test[1]) > 0
        if self.config.train.selection == "best":
            # An epoch chosen on few examples may be a poor one by chance: the last one's numbers stand beside it.
            last = self._metrics("last", stop) if tests else {}
            weights = {name: value.clone() for name, value in trainer.selected.state_dict().items()}
        trainer.restore_selected()
        start = time.perf_counter()
        try:
            if tests:
                metrics = self._metrics("test", stop)
            seconds = time.perf_counter() - start
            metrics |= last
            if len(problem.val[1]):
                metrics |= self._metrics("val", stop)
        except Stopped:
            if weights:
                trainer.selected.load_state_dict(weights)
            raise
        chosen = trainer.best_epoch if self.config.train.selection == "best" else trainer.epoch
        metrics |= {"epochs": float(trainer.epoch), "selected_epoch": float(chosen)}
        if self.ranks.leads:
            whose = {"run": config_id(self.config), "data": problem.fingerprint}
            save_tensors(self.folder / WEIGHTS, trainer.selected.state_dict(), {**problem.preprocessing, **whose})
        record = self._write("done", message="" if tests else NO_TEST, metrics=metrics, test_seconds=seconds)
        if self.ranks.leads:
            for path in (self.checkpoint, self.checkpoint.with_name(BEFORE)):
                path.unlink(missing_ok=True)
        return record

    def _metrics(self, prefix: Literal["last", "test", "val"], stop: Stop) -> dict[str, float]:
        """Those of the current weights; `Stopped` after a batch where a single process is asked to stop."""
        trainer, problem = self.trainer, self.trainer.problem

        def on_batch(done: int, total: int) -> None:
            trainer.progress.detail("evaluating", done, total)
            if stop.is_set() and self.ranks.size == 1:
                raise Stopped

        x, y = problem.val if prefix == "val" else problem.test
        chosen, is_test = trainer.selected, prefix != "val"
        metrics = measure(chosen, problem, x, y, calibration=is_test, on_batch=on_batch, ranks=self.ranks)
        return {f"{prefix}_{name}": value for name, value in metrics.items()}

    def _write(
        self, status: Status, *, message: str = "", metrics: dict[str, float] | None = None, test_seconds: float = 0.0
    ) -> RunRecord:
        problem, splits = self.trainer.problem, self.trainer.problem.splits
        # Times and memory are those of all the runs that shared the device.
        shared = f", {self.at_once} runs at once" if self.at_once > 1 else ""
        resolved = {
            **({"data": problem.source} if problem.source else {}),
            "model": network_words(self.trainer.model),
            "method": repr(self.trainer.method),
            "engine": f"{self.trainer.stepper.name}{shared}",
            **({"weights_sha256": self.weights} if self.weights else {}),
        }
        record = RunRecord(
            config=self.config,
            status=status,
            started=self.started,
            finished=utc_now() if status in FINISHED else None,
            message=message,
            splits={
                "train": Split(size=len(splits.train), sha256=splits.train_hash),
                "validation": Split(size=len(splits.val), sha256=splits.val_hash),
                "test": Split(size=len(splits.test), sha256=splits.test_hash),
            },
            epochs=tuple(self.trainer.rows),
            metrics=metrics or {},
            timings={"train_seconds": self.trainer.seconds, "test_seconds": test_seconds},
            peak_memory_bytes=machine.peak_memory(problem.device),
            device=machine.device_words(problem.device),
            versions=versions(),
            commit=commit(),
            data_sha256=problem.fingerprint,
            resolved=resolved,
        )
        if self.ranks.leads:
            self.store.write(record)
        return record


TOO_LARGE = (
    "expected the run to fit into the GPU's memory, but there was too little; "
    "make train.batch_size smaller (and train.accumulate larger)"
)


def run(
    config: RunConfig,
    place: Place,
    progress: Progress = SILENT,
    *,
    stop: Stop | None = None,
    reader: Reader | None = None,
    ranks: Ranks = ALONE,
) -> RunRecord:
    """Trains, evaluates and records. A finished record comes back at once; a started run goes on.

    Ctrl-C, SIGTERM and SIGHUP save a checkpoint between two steps and give a record that is "interrupted", as `stop`
    does where it is given. Everything that can be wrong with the input is found before anything is written.
    """
    where, _ = place.resolve()
    with (
        machine.own_randomness(where, progress),
        machine.deterministic(config.train.deterministic, where),
        machine.side_stream(where),
        stopping() if stop is None else nullcontext(stop) as stop,
    ):
        try:
            return exhaust(begin(config, place, progress, stop=stop, reader=reader or Reader(place), ranks=ranks))
        except torch.OutOfMemoryError:
            raise InputError(TOO_LARGE) from None


def begin(
    config: RunConfig,
    place: Place,
    progress: Progress,
    *,
    stop: Stop,
    reader: Reader,
    at_once: int = 1,
    member: JoinedStepper | None = None,
    ranks: Ranks = ALONE,
) -> Generator[None, None, RunRecord]:
    """A run in instalments, from reading its data to its record; yields whenever work was launched.

    It may have a member among runs that take their steps together. Of several processes that make it, all call this.
    """

    def detail(*words: Any) -> None:
        stop.before_work()  # a signal ends the reading at once
        progress.detail(*words)

    config, store = canonical_config(config), place.store
    device, engine = _resolve(place, config)
    whose = f"run {config_id(config)}"
    with_numbers(config.method)  # raises before anything is read, which may take long
    with machine.timed("data", whose, device):
        while_reading = Calls(progress.overall, detail, progress.note) if ranks.size == 1 else progress
        dataset = ranks.together(lambda: reader(config.data, while_reading))
    problem = ranks.together(lambda: prepare(config, dataset, device))
    ranks.together(lambda: check_same_data(store, config, problem) if ranks.leads else None)
    if ranks.any(problem.fingerprint != ranks.of_first(lambda: problem.fingerprint)):
        raise InputError(f"expected {config.data.name} to be the same for all {ranks.size} processes, but it is not")
    if ranks.size == 1:
        stop.before_work()
    stop.at_once = False
    with machine.timed("model", whose, device):
        method, model = ranks.together(lambda: (method_of(config, problem), model_of(config, problem)))
        trainer = Trainer(config, problem, method, ranks.prepare_model(model), progress, engine, member, ranks)
    progress.note(data_words(dataset, problem))
    progress.note(run_words(trainer.model, method, device, config, len(problem.train[1])))
    for warning in [*few_judges(config, problem), *low_alpha(method, problem)]:
        progress.note(warning)
    claim = ranks.together(lambda: store.lock(config) if ranks.leads else nullcontext())
    with claim, machine.suitable_threads(problem.train[0]):
        if (record := ranks.of_first(lambda: place.final_record(config))) is not None:
            return record
        return (yield from Execution(place, trainer, at_once).course(stop))


def _resolve(place: Place, config: RunConfig) -> tuple[torch.device, Engine]:
    device, engine = place.resolve()
    if config.train.precision == "bf16" and device.type == "cpu":
        raise InputError("expected a GPU for train.precision=bf16, but got the CPU; use fp32")
    return device, engine


def check_same_data(store: Store, config: RunConfig, problem: Problem) -> None:
    """Refuses a run that was begun on other data, or with other weights, than those that have this name now."""
    check_weights(config, store)
    if is_of_other_data(store, config, problem):
        raise changed_data(store, [config], "has changed since")


def is_of_other_data(store: Store, config: RunConfig, problem: Problem) -> bool:
    record = store.record(config)
    return record is not None and not same_data(record.data_sha256, problem.fingerprint)


def changed_data(store: Store, configs: Sequence[RunConfig], how: str) -> InputError:
    """The error of runs whose data are not what they were; `how` they differ, in words."""
    runs = [*map(config_id, configs)]
    which, them = (f"run {runs[0]} was", "run") if len(runs) == 1 else (f"{len(runs)} runs were", "runs")
    return InputError(
        f"expected the data that {which} made from, but {configs[0].data.name} {how}; use another folder of runs, or "
        f"remove the {them}: rcad runs prune {' '.join(runs)} --yes{store.option}"
    )


EXAMPLES = 256  # examples that say whether alpha is far too small
TRIED = 2  # steps that are taken to see how long one takes; the first is not counted


def data_words(dataset: Dataset, problem: Problem) -> str:
    kind = f"{len(dataset.classes)} classes" if problem.classes else "a regression target"
    sizes = ", ".join(
        f"{len(part[1]):,} {name}"
        for name, part in (("training", problem.train), ("validation", problem.val), ("test", problem.test))
        if len(part[1])
    )
    shape, columns = tuple(problem.train[0].shape[1:]), len(dataset.columns)
    inputs = "x".join(map(str, shape)) + (" images" if dataset.is_image else " inputs")
    if 0 < columns < shape[0] and not dataset.is_image:
        inputs += f" ({columns} features, {shape[0] - columns} for missing values)"
    untested = "" if len(problem.test[1]) else f", {NO_TEST}"
    return f"{dataset.name}: {inputs}, {kind}; {sizes} examples{untested}"


def network_words(model: nn.Module) -> str:
    return f"{getattr(model, 'title', type(model).__name__)}, {sum(p.numel() for p in model.parameters()):,} parameters"


def run_words(model: nn.Module, method: Method, device: torch.device, config: RunConfig, examples: int) -> str:
    """A run in one line, with the numbers that "auto" stands for."""
    recorded = without_defaults(method_rows(method.recipe), method_defaults())
    rows = (label(recorded) or method.name) + papers_own(recorded)
    steps = math.ceil(examples / config.train.batch_size)
    words = f"{plural(config.train.epochs, 'epoch')} of {plural(steps, 'step')}"
    start = f", weights: {config.model.weights}" if config.model.weights else ""
    return f"{network_words(model)}{start}; {rows}; {machine.device_words(device)}; {words}"


def few_judges(config: RunConfig, problem: Problem) -> list[str]:
    """A sentence where the examples that judge a run, or choose its epoch, are few."""
    parts = {"test": problem.test} | ({"validation": problem.val} if config.train.selection == "best" else {})
    few = [plural(len(y), f"{name} example") for name, (_, y) in parts.items() if 0 < len(y) < FEW]
    return [f"only {' and '.join(few)}, {BY_CHANCE}"] if few else []


def low_alpha(method: Method, problem: Problem) -> list[str]:
    """A sentence where alpha is far below the distance between classes, as a criterion warns in a loop."""
    moves = [term.where for term in method.terms if isinstance(term.where, STEPS)]
    if not moves:
        return []
    x, y = problem.train
    rows = torch.arange(min(EXAMPLES, len(y)))  # images that stay on disk are asked for by number
    return far_below(moves, as_unit_float(x[rows]), y[rows], problem.likelihood)


def plan_of(config: RunConfig, place: Place, progress: Progress = SILENT) -> tuple[str, float]:
    """`run_words` before anything is trained, and about how many seconds it takes; raises if the run cannot begin."""
    device, _ = _resolve(place, config)
    problem = prepare(config, Reader(place)(config.data, progress), device)
    check_same_data(place.store, config, problem)
    method, model = method_of(config, problem), model_of(config, problem).to(device)
    (x, y), size = problem.train, config.train.batch_size
    criterion, took = method.criterion(), 0.0
    with torch.random.fork_rng(), machine.suitable_threads(x):
        for _ in range(TRIED):
            start = time.perf_counter()
            rows = torch.arange(min(size, len(y)))
            criterion.backward(model, as_unit_float(x[rows]), y[rows])
            took = time.perf_counter() - start
    total = took * math.ceil(len(y) / size) * config.train.epochs
    return run_words(model, method, device, config, len(y)), total
