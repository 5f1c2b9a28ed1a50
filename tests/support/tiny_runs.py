"""Runs of seconds on images of 8x8, for tests of the engine; what they tell, and what they leave."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rcad.data.dataset import Dataset, Split
from rcad.loss.method_rows import parse_method
from rcad.runs.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from rcad.runs.locks import BusyError
from rcad.runs.plain import config_id
from rcad.runs.record import RunRecord
from rcad.runs.store import WEIGHTS, Store
from rcad.train.checkpoint import load_tensors
from rcad.train.joined import JoinedStepper, Team
from rcad.train.loop import Course, Trainer
from rcad.train.place import Engine
from rcad.train.progress import SILENT, Silent
from rcad.train.task import method_of, model_of, prepare

CPU = torch.device("cpu")


def dataset(count: int = 100) -> Dataset:
    draw = np.random.default_rng(0)
    y = np.arange(count) % 4
    x = (draw.integers(0, 120, (count, 1, 8, 8)) + 40 * y[:, None, None, None]).astype(np.uint8)
    return Dataset("images", "classification", Split(x, y.astype(np.int64)), classes=("a", "b", "c", "d"))


def arrays_in(folder: Path) -> str:
    """A file of images that a worker process reads without importing scikit-learn."""
    pixels = np.random.default_rng(0).integers(0, 255, (60, 8, 8), np.uint8)
    np.savez(folder / "arrays.npz", x=pixels, y=np.arange(60) % 3)
    return str(folder / "arrays.npz")


METHODS = {
    "every3": "rcad(every=3, alpha=0.5)",
    "auto": "rcad(alpha=auto, lam=0.5, steps=2) + rcad_random(alpha=auto, lam=0.5)",
    "grow": "me_ada(epochs=1, rounds=1, steps=2)",
}


def config(method: str = "rcad", model: str = "small_cnn", optim: str = "sgd", **train: Any) -> RunConfig:
    return RunConfig(
        data=DataConfig(name="images"),
        model=ModelConfig(name=model, width=8),
        method=parse_method(METHODS.get(method, method)),
        optim=OptimConfig(name=optim, lr=0.02, weight_decay=1e-3, clip=1.0, schedule="cosine"),
        train=TrainConfig(**{"epochs": 5, "batch_size": 16, **train}),
    )


KINDS = {  # runs whose steps differ in kind
    "erm": config("erm"),
    "rcad": config("rcad", channels_last=True),
    "every": config("every3"),
    "every, accumulated": config("every3", accumulate=2),
    "mixed": config("data_augmentation + mixup + rcad_random", ema=0.9, accumulate=3),
    "released": config("rcad_released", selection="last"),
    "twice": config("rcad + confidence_penalty"),
    "measured": config("auto", channels_last=True),
    "adamw": config("cutmix + rcad", optim="adamw"),
    "growth": config("grow"),
}


def trainer(settings: RunConfig, device: Any = CPU, engine: Engine = "eager", member: Any = None) -> Trainer:
    problem = prepare(settings, dataset(), device)
    method, model = method_of(settings, problem), model_of(settings, problem)
    return Trainer(settings, problem, method, model, engine=engine, member=member)


def team_of(settings: RunConfig, seeds: Any, device: Any = CPU, engine: Engine = "eager") -> tuple[Team, list[Trainer]]:
    """A team of these seeds, none of which has begun."""
    team, runs = Team(engine, device), []

    def course(member: JoinedStepper) -> Course:
        runs.append(trainer(replace(settings, seed=member.run), device, engine, member))
        return runs[-1].course(lambda: False)

    with team.queue:
        for seed in seeds:
            team.enter(seed, course)
    return team, runs


def finish(team: Team) -> list[str]:
    """Every run goes on to its next step, which every team takes, until all have ended; their ends, by seed."""
    teams, ends = [team], dict[int, str]()
    for one in teams:  # those who go on come again
        with one.queue:
            for member in one.awake():
                if (end := one.resume(member)) is not None:
                    ends[member.run] = end
            teams += one.step()
    return [ends[seed] for seed in sorted(ends)]


ROUNDED, ROUNDED_LOSS = 0.03, 0.5
"""How far apart runs of fifty steps in bf16 may end: relative distances of weights and of the last loss. In fp32 a
start nudged by up to 2**-9, at most one rounding to bf16, ended 1.4e-2 to 1.9e-2 away, with 3 to 27% more loss; another
seed 0.2 away; bf16 on an H200 1.5e-2 to 2.3e-2 between engines (`results/benchmarks/trials/rounding.json`), and once
31% more loss. Small mistakes hide in this: they are what tests bit for bit are for."""


def distance(first: Trainer, second: Trainer) -> float:
    a, b = (torch.cat([value.double().ravel() for value in one.model.state_dict().values()]) for one in (first, second))
    return float((a - b).norm() / b.norm())


def no_memory(*args: Any) -> None:
    raise torch.OutOfMemoryError("no memory")


def weights(store: Store, run: str) -> dict[str, Tensor]:
    return load_tensors(store.folder(run) / WEIGHTS)[0]


def same_weights(store: Store, other: Store, *runs: str) -> bool:
    pairs = [(weights(store, run), weights(other, run)) for run in runs]
    return all(a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a) for a, b in pairs)


def essence(record: RunRecord) -> list[Any]:
    """What two equal runs have in common: not times, memory, and how steps were taken."""
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in record.epochs]
    return [record.id, record.status, record.metrics, record.splits, rows]


class Watcher(Silent):
    """Keeps what it is told. At the first call for which `when(watcher)` holds, it acts: by a signal, or a function."""

    def __init__(self, when: Any = lambda watcher: False, act: Any = signal.SIGINT) -> None:
        self._when, self._act, self.acted = when, act, False
        self.done, self.text, self.shares = -1.0, "", list[tuple[float, float]]()
        self.details, self.notes = list[str](), list[str]()

    def overall(self, done: float, total: float, text: str) -> None:
        self.done, self.text = done, text
        self.shares.append((done, total))
        self._look()

    def detail(self, activity: str, done: int, total: int, unit: str = "") -> None:
        self.details.append(activity)
        self._look()

    def note(self, text: str) -> None:
        self.notes.append(text)
        self._look()

    def _look(self) -> None:
        if not self.acted and self._when(self):
            self.acted = True
            os.kill(os.getpid(), self._act) if isinstance(self._act, int) else self._act()


class Listener:
    """Keeps the records of runs in their places, by which `progress` and `on_end` go too."""

    pace = 0.0

    def __init__(self, configs: Sequence[RunConfig], progress: Any = None, on_end: Any = lambda place: None) -> None:
        self._ids, self._progress, self._on_end = [config_id(config) for config in configs], progress or {}, on_end
        self.records: list[Any] = [None] * len(configs)

    def progress(self, config: RunConfig) -> Any:
        return self._progress.get(self._ids.index(config_id(config)), SILENT)

    def ended(self, record: RunRecord) -> None:
        place = self._ids.index(record.id)
        self.records[place] = record
        self._on_end(place)

    def busy(self, config: RunConfig, error: BusyError) -> None: ...
