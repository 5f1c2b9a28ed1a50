"""run(config) -> record: the whole of a run, resumed where it stopped, never done twice."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Literal, get_args

import torch

from rcad.data.dataset import Dataset
from rcad.errors import InputError, one_of, whole
from rcad.loss.method_rows import Defaults, without_defaults
from rcad.loss.methods import METHODS
from rcad.runs.config import DataConfig, RunConfig
from rcad.runs.plain import config_id
from rcad.runs.record import RunRecord
from rcad.runs.store import Store
from rcad.train.execution import CHECKPOINT, WEIGHTS, Execution
from rcad.train.loop import Trainer
from rcad.train.machine import deterministic, pick_device, side_stream, stop_signals, suitable_threads
from rcad.train.reporting import Reporter, Silent, Tracker
from rcad.train.step import Engine
from rcad.train.task import Problem, method_of, model_of, prepare, read
from rcad.train.team import Seat

__all__ = ["CHECKPOINT", "ENGINES", "WEIGHTS", "Place", "canonical_config", "method_defaults", "run"]

EngineName = Literal["auto", "eager", "graph", "compile"]
ENGINES = get_args(EngineName)
TOO_LARGE = (
    "expected the run to fit into the GPU's memory, but there was too little; "
    "make train.batch_size smaller (and train.accumulate larger)"
)


@dataclass(frozen=True)
class Place:
    """Where runs are made: folders, device, and how a step is taken there.

    Args:
        store: the folder of runs.
        data_dir, cache_dir: where data are found, and kept once decoded; None for the usual places.
        device: "auto" takes a GPU where there is one.
        engine: "eager"; on a GPU "graph" (each step one CUDA graph, which "auto" takes there) and "compile" (the
            model compiled besides: half a minute at first, then faster). Results differ by rounding alone.
        checkpoint_seconds: time between checkpoints, more where saving is slow.
        joined: how many runs that differ in their seed alone are trained as one network, where they share a GPU.
            Results differ by rounding alone.
    """

    store: Store
    data_dir: Path | None = None
    cache_dir: Path | None = None
    device: str = "auto"
    engine: EngineName = "auto"
    checkpoint_seconds: float = 15.0
    joined: int = 1

    def resolve(self) -> tuple[torch.device, Engine]:
        """The device and the engine themselves."""
        one_of("engine", self.engine, ENGINES)
        whole("joined", self.joined, minimum=1)
        device = pick_device(self.device)
        if self.engine == "auto":
            return device, "graph" if device.type == "cuda" else "eager"
        if self.engine != "eager" and device.type != "cuda":
            raise InputError(f"expected a GPU for engine={self.engine}, but got the {device.type.upper()}; use eager")
        return device, self.engine


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
    engine: EngineName = "auto",
    reporter: Reporter | None = None,
    trackers: Sequence[Tracker] = (),
    checkpoint_seconds: float = 15.0,
) -> RunRecord:
    """Trains, evaluates and records. A finished record comes back at once; a started run goes on.

    Ctrl-C and SIGTERM save a checkpoint between two steps and give a record that is "interrupted". Everything that
    can be wrong with the input is found before anything is written.
    """
    place = Place(store, data_dir, cache_dir, device, engine, checkpoint_seconds)
    where, _ = place.resolve()
    # The global generators are seeded inside; the caller's state is given back.
    with (
        torch.random.fork_rng(devices=[] if where.type == "cpu" else [where]),
        deterministic(config.train.deterministic, where),
        side_stream(where),
    ):
        course = begin(config, place, reporter or Silent(), trackers)
        try:
            while True:
                next(course)
        except StopIteration as end:
            record: RunRecord = end.value
            return record
        except torch.OutOfMemoryError:
            raise InputError(TOO_LARGE) from None


def begin(
    config: RunConfig,
    place: Place,
    reporter: Reporter,
    trackers: Sequence[Tracker] = (),
    *,
    stop: threading.Event | None = None,
    beside: int = 1,
    seat: Seat | None = None,
) -> Generator[None, None, RunRecord]:
    """A run in instalments, from reading its data to its record; yields whenever work was launched.

    Args:
        stop: asks the run to stop; by default signals do.
        beside: how many runs share the device.
        seat: its place among runs that take their steps together; left at the end, however that comes.
    """
    try:
        return (yield from _course(config, place, reporter, trackers, stop, beside, seat))
    finally:
        if seat is not None:
            seat.leave()


def _course(
    config: RunConfig,
    place: Place,
    reporter: Reporter,
    trackers: Sequence[Tracker],
    stop: threading.Event | None,
    beside: int,
    seat: Seat | None,
) -> Generator[None, None, RunRecord]:
    config, store = canonical_config(config), place.store
    device, engine = place.resolve()
    if config.train.precision == "bf16" and device.type == "cpu":
        raise InputError("expected a GPU for train.precision=bf16, but got the CPU; use fp32")
    try:
        dataset = read(config.data, place.data_dir, place.cache_dir, reporter)
    except InputError:
        if (record := _finished(store, config)) is not None:
            return record  # a result stays good when its data are no longer there
        raise
    problem = prepare(config, dataset, device)
    _check_same_data(store, config, problem)
    if (record := _finished(store, config)) is not None:
        return record
    method, model = method_of(config, problem), model_of(config, problem)
    trainer = Trainer(config, problem, method, model, reporter, engine, seat)
    reporter.note(_words(dataset, problem))
    with store.lock(config), suitable_threads(problem.train[0]):
        if (record := _finished(store, config)) is not None:
            return record
        with stop_signals() if stop is None else nullcontext(stop) as event:
            execution = Execution(config, store, trainer, trackers, place.checkpoint_seconds, beside)
            return (yield from execution.course(event))


def check_data_of_finished(configs: Sequence[RunConfig], place: Place, reporter: Reporter) -> None:
    """Files of one's own may have changed since a run was finished: then its numbers are not those of this command.

    Data that are no longer there say nothing.
    """
    last: tuple[DataConfig, Dataset] | None = None
    for config in configs:
        same = replace(config.data, seed=None, split=None)
        if last is None or last[0] != same:
            try:
                last = same, read(config.data, place.data_dir, place.cache_dir, reporter)
            except InputError:
                continue
        _check_same_data(place.store, config, prepare(config, last[1], torch.device("cpu")))


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
