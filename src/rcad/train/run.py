"""run(config) -> record: the whole of a run, resumed where it stopped, never done twice."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from inspect import signature

import torch

from rcad.data.dataset import Dataset
from rcad.errors import InputError
from rcad.loss.method_rows import Defaults, without_defaults
from rcad.loss.methods import METHODS
from rcad.runs.config import DataConfig, RunConfig
from rcad.runs.plain import config_id
from rcad.runs.record import RunRecord
from rcad.runs.store import Store
from rcad.train.execution import CHECKPOINT, WEIGHTS, Execution
from rcad.train.loop import Trainer
from rcad.train.machine import deterministic, side_stream, suitable_threads
from rcad.train.place import Place
from rcad.train.progress import SILENT, Progress, Tracker
from rcad.train.stop import Stop, stopping
from rcad.train.task import Problem, method_of, model_of, prepare, read
from rcad.train.team import Seat

__all__ = ["CHECKPOINT", "WEIGHTS", "canonical_config", "method_defaults", "run"]

TOO_LARGE = (
    "expected the run to fit into the GPU's memory, but there was too little; "
    "make train.batch_size smaller (and train.accumulate larger)"
)


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
    place: Place,
    progress: Progress = SILENT,
    *,
    trackers: Sequence[Tracker] = (),
    stop: Stop | None = None,
) -> RunRecord:
    """Trains, evaluates and records. A finished record comes back at once; a started run goes on.

    Ctrl-C, SIGTERM and SIGHUP save a checkpoint between two steps and give a record that is "interrupted", as `stop`
    does where it is given. Everything that can be wrong with the input is found before anything is written.
    """
    where, _ = place.resolve()
    # The global generators are seeded inside; the caller's state is given back.
    with (
        torch.random.fork_rng(devices=[] if where.type == "cpu" else [where]),
        deterministic(config.train.deterministic, where),
        side_stream(where),
        stopping() if stop is None else nullcontext(stop) as asked,
    ):
        course = begin(config, place, progress, trackers, stop=asked)
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
    progress: Progress,
    trackers: Sequence[Tracker] = (),
    *,
    stop: Stop,
    beside: int = 1,
    seat: Seat | None = None,
) -> Generator[None, None, RunRecord]:
    """A run in instalments, from reading its data to its record; yields whenever work was launched.

    Args:
        stop: asks the run to stop.
        beside: how many runs share the device.
        seat: its place among runs that take their steps together; left at the end, however that comes.
    """
    try:
        return (yield from _course(config, place, progress, trackers, stop, beside, seat))
    finally:
        if seat is not None:
            seat.leave()


def _course(
    config: RunConfig,
    place: Place,
    progress: Progress,
    trackers: Sequence[Tracker],
    stop: Stop,
    beside: int,
    seat: Seat | None,
) -> Generator[None, None, RunRecord]:
    config, store = canonical_config(config), place.store
    device, engine = place.resolve()
    if config.train.precision == "bf16" and device.type == "cpu":
        raise InputError("expected a GPU for train.precision=bf16, but got the CPU; use fp32")
    try:
        dataset = read(config.data, place.data_dir, place.cache_dir, progress)
    except InputError:
        if (record := _finished(store, config)) is not None:
            return record  # a result stays good when its data are no longer there
        raise
    problem = prepare(config, dataset, device)
    _check_same_data(store, config, problem)
    if (record := _finished(store, config)) is not None:
        return record
    method, model = method_of(config, problem), model_of(config, problem)
    trainer = Trainer(config, problem, method, model, progress, engine, seat)
    progress.note(_words(dataset, problem))
    with store.lock(config), suitable_threads(problem.train[0]):
        if (record := _finished(store, config)) is not None:
            return record
        execution = Execution(config, store, trainer, trackers, place.checkpoint_seconds, beside)
        return (yield from execution.course(stop))


def check_data_of_finished(configs: Sequence[RunConfig], place: Place, progress: Progress) -> None:
    """Files of one's own may have changed since a run was finished: then its numbers are not those of this command.

    Data that are no longer there say nothing.
    """
    last: tuple[DataConfig, Dataset] | None = None
    for config in configs:
        same = replace(config.data, seed=None, split=None)
        if last is None or last[0] != same:
            try:
                last = same, read(config.data, place.data_dir, place.cache_dir, progress)
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
