"""Where runs are made: folders, device, and how a step is taken there. Handed through whole; needs no torch to say."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from rcad.errors import InputError, expanded, finite, one_of, whole
from rcad.runs.config import RunConfig
from rcad.runs.record import RunRecord
from rcad.runs.store import Store

if TYPE_CHECKING:
    import torch

EngineName = Literal["auto", "eager", "graph", "compile"]
Engine = Literal["eager", "graph", "compile"]
ENGINES = get_args(EngineName)
StoreMode = Literal["shared", "return"]


@dataclass(frozen=True)
class Executor:
    """A Ray cluster that makes the runs of a grid."""

    address: str | None = None  # HOST:PORT of its head; None for RAY_ADDRESS, else for one of this machine alone
    gpus_per_run: float | None = None  # the part of a GPU; None gives a GPU to as many as share one, 0 none
    cpus_per_run: float = 1.0  # cores of a task
    store_mode: StoreMode = "shared"  # all nodes see the folder of runs; "return": files come back with the task

    def __post_init__(self) -> None:
        one_of("store_mode", self.store_mode, get_args(StoreMode))
        finite("cpus_per_run", self.cpus_per_run, above=0.0)
        if self.gpus_per_run is not None:
            finite("gpus_per_run", self.gpus_per_run, minimum=0.0)

    @staticmethod
    def parse(text: str, **options: Any) -> Executor:
        """The one of "ray" or "ray://HOST:PORT"."""
        name, separator, address = text.partition("://")
        if name != "ray" or (separator and not address):
            raise InputError(f"expected the executor ray or ray://HOST:PORT, but got {text!r}")
        return Executor(address or None, **options)


@dataclass(frozen=True)
class Place:
    """Where and how runs are made.

    Of the engines, "eager" is for every device, "graph" makes each step one CUDA graph, as "auto" does on a GPU, and
    "compile" compiles the model besides: half a minute at first, then faster. Results of engines, and of runs that are
    joined, differ in rounding alone; those of images that are streamed are the same.
    """

    store: Store
    data_dir: Path | None = None  # where data are found; None for the usual place
    cache_dir: Path | None = None  # where they are kept once decoded
    device: str = "auto"  # a GPU where there is one; "cuda:1" the second
    engine: EngineName = "auto"
    checkpoint_seconds: float = 15.0  # between two of them, more where saving is slow
    joined: int = 1  # how many runs that differ in their seed alone are trained as one network, where they share a GPU
    stream: bool = False  # decode images as they are needed, as is done by itself where they would not fit into memory
    devices: tuple[str, ...] = ()  # several, of which each takes runs of its own, e.g. ("cuda:0", "cuda:1")
    track: tuple[str, ...] = ()  # see `rcad.train.trackers`
    sync_batch_norm: bool = True  # where several processes make one run, by the statistics of whole batches
    executor: Executor | None = None  # the cluster that makes the runs of a grid; None for this machine

    @staticmethod
    def of(runs: Path, **options: object) -> Place:
        """The place with this folder of runs, which is made when there is something to put there."""
        runs = expanded(runs)
        store = Store.open(runs, create=False) if runs.exists() else Store(runs)
        return Place(store, **options)  # type: ignore[arg-type]

    def final_record(self, config: RunConfig) -> RunRecord | None:
        """The record of a run that is over, done or diverged; None where it is not."""
        record = self.store.record(config)
        return record if record is not None and record.is_final else None

    def resolve(self) -> tuple[torch.device, Engine]:
        """The device and the engine themselves; what cannot be had here is an InputError."""
        from rcad.train.machine import pick_device

        one_of("engine", self.engine, ENGINES)
        whole("joined", self.joined, minimum=1)
        device = pick_device(self.device)
        if self.engine == "auto":
            return device, "graph" if device.type == "cuda" else "eager"
        if self.engine != "eager" and device.type != "cuda":
            raise InputError(f"expected a GPU for engine={self.engine}, but got the {device.type.upper()}; use eager")
        return device, self.engine


def world() -> tuple[int, int, int] | None:
    """Rank, number of processes and number on this machine, as torchrun says them; None where it started none."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if any(name not in os.environ for name in names) or int(os.environ["WORLD_SIZE"]) < 2:
        return None
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"])


def follows() -> bool:
    """Whether this is one of torchrun's processes, but not the first, which speaks for all."""
    process = world()
    return process is not None and process[0] > 0
