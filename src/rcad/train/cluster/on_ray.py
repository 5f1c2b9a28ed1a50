"""The backend of a Ray cluster: each task takes a share of the runs, and Ray sees to nodes that come and go.

A run is a pure function of its config and its record is the answer, so there is little to say: a task makes its runs
where it is, in a folder that all nodes see, or in one of its own whose files come back with the task. A task whose
process or node was lost is started again by Ray and goes on from the run's checkpoint, where that can be seen. A
driver that was killed is started again and finds what is done.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rcad.errors import InputError, cores, need
from rcad.runs.config import RunConfig
from rcad.runs.files import make_folder, write_text
from rcad.runs.locks import BusyError
from rcad.runs.plain import config_id
from rcad.runs.record import RunRecord
from rcad.runs.store import RECORD, WEIGHTS, Store
from rcad.runs.words import plural, title
from rcad.train.place import Executor, Place
from rcad.train.processes import Sender, make_share
from rcad.train.scheduler import Work
from rcad.train.stop import kept_handlers

RETRIES = 8  # how often Ray starts a task again whose process or node was lost
BUSY_S = 20.0  # how long a run may seem busy: the process of a lost node needs a moment to die
PATIENCE_S = 60.0
_POLL_S, _LOOK_S = 0.2, 5.0
ERROR = "error.txt"


def connect(executor: Executor) -> Any:
    """Ray, connected to the cluster that was named, to the one in RAY_ADDRESS, or to one of this machine alone."""
    ray = need("ray", "ray", "ray")
    if ray.is_initialized():
        return ray
    address = executor.address or os.environ.get("RAY_ADDRESS")
    options = {"address": address} if address else {"include_dashboard": False, "num_cpus": cores()}
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        with kept_handlers():  # Ray's would end the command before anything is saved
            ray.init(log_to_driver=False, logging_level="ERROR", **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        words = " ".join(str(error).split())[:200]
        raise InputError(
            f"expected a Ray cluster at {address or 'this machine'}, but got: {words}; see: ray status"
        ) from None
    return ray


def slots(executor: Executor, on_gpu: bool) -> int:
    """How many runs the cluster takes at once."""
    resources = connect(executor).cluster_resources()
    fits = resources.get("CPU", 1.0) / executor.cpus_per_run
    if on_gpu and resources.get("GPU"):
        fits = min(fits, resources["GPU"] / (executor.gpus_per_run or 1.0))
    return max(1, int(fits))


@dataclass(frozen=True)
class OnRay:
    """Runs on a Ray cluster; a task holds as many runs as share its GPU, `at_once` as in `schedule`."""

    executor: Executor
    at_once: int | None = None

    def __call__(self, work: Work) -> None:
        ray = connect(self.executor)
        crew = _Crew(ray, self.executor, work, self._on_gpu(ray, work.place))
        crew.go(self._shares(ray, work, crew.on_gpu), self.at_once)

    def _on_gpu(self, ray: Any, place: Place) -> bool:
        if place.device == "cpu" or self.executor.gpus_per_run == 0:
            return False
        has_gpus = bool(ray.cluster_resources().get("GPU"))
        if not has_gpus and (self.executor.gpus_per_run or place.device.startswith("cuda")):
            raise InputError("expected GPUs in the Ray cluster, but it has none; use --device cpu")
        return has_gpus

    def _shares(self, ray: Any, work: Work, on_gpu: bool) -> list[list[RunConfig]]:
        if not on_gpu:
            return [[config] for config in work.configs]
        from rcad.train.one_gpu import in_shares

        # With a part of a GPU for each run they are tasks of their own, unless seeds are joined.
        at_once = self.at_once if self.executor.gpus_per_run is None else work.place.joined
        return in_shares(work.configs, at_once, work.place.joined, int(ray.cluster_resources()["GPU"]) or 1)


@dataclass
class _Crew:
    """The tasks under way, and what is heard of them."""

    ray: Any
    executor: Executor
    work: Work
    on_gpu: bool
    tasks: dict[Any, list[RunConfig]] = field(default_factory=dict)
    problem: Exception | None = None
    attempts: Counter[str] = field(default_factory=Counter)
    busy: set[str] = field(default_factory=set)
    nodes: int = 0
    looked: float = float("-inf")

    def go(self, shares: Sequence[list[RunConfig]], at_once: int | None) -> None:
        place = self.work.place
        self.by_id = {config_id(config): config for config in self.work.configs}
        self.progress = {run: self.work.listener.progress(config) for run, config in self.by_id.items()}
        self.mail = self._queue()
        store = Store(place.store.path.absolute(), tuple(pack.absolute() for pack in place.store.packs))
        data_dir, cache_dir = (None if path is None else path.absolute() for path in (place.data_dir, place.cache_dir))
        device = place.device.partition(":")[0] if self.on_gpu else "cpu"
        place = replace(place, store=store, data_dir=data_dir, cache_dir=cache_dir, device=device, executor=None)
        self.arguments = place, at_once, self.mail, os.getcwd(), self.executor.store_mode == "return"
        self.remote = self.ray.remote(num_cpus=1, max_retries=RETRIES)(take)
        for share in shares:
            self._submit(share)
        try:
            self._listen()
        finally:
            self._end()
        if self.problem is not None:
            raise self.problem

    def _queue(self) -> Any:
        """What the tasks say, kept on the driver's own node: elsewhere it would be lost with the node."""
        here = self.ray.get_runtime_context().get_node_id()
        strategy = need("ray.util.scheduling_strategies", "ray", "ray").NodeAffinitySchedulingStrategy(here, soft=False)
        options = {"num_cpus": 0, "scheduling_strategy": strategy}
        return need("ray.util.queue", "ray", "ray").Queue(actor_options=options)

    def _submit(self, share: list[RunConfig]) -> None:
        options: dict[str, Any] = {"name": title(share[0]), "num_cpus": self.executor.cpus_per_run}
        if self.on_gpu:
            each = self.executor.gpus_per_run
            options["num_gpus"] = 1.0 if each is None else min(1.0, each * len(share))
        self.tasks[self.remote.options(**options).remote(share, *self.arguments)] = share

    def _listen(self) -> None:
        while self.tasks and not self._ending():
            self._look()
            done, _ = self.ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=_POLL_S)
            self._hear()
            for reference in done:
                self._ended(reference)
        self._hear()

    def _end(self) -> None:
        """Asks what is under way to save itself, and waits for it."""
        for reference in self.tasks:
            with suppress(Exception):
                self.ray.cancel(reference, force=False)  # a KeyboardInterrupt, which a run takes as a request
        deadline = time.monotonic() + PATIENCE_S
        while self.tasks and time.monotonic() < deadline:
            done, _ = self.ray.wait(list(self.tasks), num_returns=1, timeout=1.0)
            for reference in done:
                self._ended(reference)
        with suppress(Exception):
            self.mail.shutdown()

    def _hear(self) -> None:
        count = self.mail.qsize()
        for kind, run, *words in self.mail.get_nowait_batch(count) if count else ():
            if kind == "overall":
                done, total, text = words
                self.progress[run].overall(done, total, f"{text}; {plural(self.nodes, 'node')}")
            elif kind == "note":
                self.progress[run].note(*words)
            elif kind == "busy":
                self.busy.add(run)
                self.work.listener.busy(self.by_id[run], BusyError(run, *words))

    def _look(self) -> None:
        """The nodes, now and then; one that was lost is told of."""
        if time.monotonic() - self.looked < _LOOK_S:
            return
        self.looked = time.monotonic()
        alive = sum(node["Alive"] for node in self.ray.nodes())
        if alive < self.nodes:
            lost = f"{plural(self.nodes - alive, 'node')} lost, {alive} left: their runs start again elsewhere"
            next(iter(self.progress.values())).note(lost)
        self.nodes = alive

    def _ended(self, reference: Any) -> None:
        share = self.tasks.pop(reference)
        problem: Exception | None = None
        returned: Sequence[Mapping[str, bytes]] = ()
        try:
            problem, returned = self.ray.get(reference)
        except Exception as error:
            cancelled = type(error).__name__ in ("TaskCancelledError", "WorkerCrashedError") and self._ending()
            if not cancelled and self.problem is None:
                names, text = ", ".join(map(title, share[:2])), " ".join(str(error).split())[:200]
                self.problem = InputError(
                    f"expected Ray to make {names}, but got {type(error).__name__}: {text}; the same command goes on "
                    "from here, and ray list tasks says more"
                )
        for files in returned:
            self._keep(files)
        again: list[RunConfig] = []
        for config in share:
            record = self.work.place.store.record(config)
            if record is not None and (record.is_final or self._ending()):
                self.work.listener.ended(record)
            elif problem is None:
                # A node that is taken away asks its runs to save themselves: they go on elsewhere.
                run = config_id(config)
                self.attempts[run] += 1
                again += [config] if run not in self.busy and self.attempts[run] < RETRIES else []
        if again and not self._ending():
            self._submit(again)
        if self.problem is None and isinstance(problem, RuntimeError):
            log = self.work.place.store.folder(config_id(share[0])) / ERROR
            make_folder(log.parent)
            write_text(log, "\n".join(problem.__notes__))
            problem = RuntimeError(f"{problem}; its log is {log}")
        self.problem = self.problem or problem

    def _ending(self) -> bool:
        return self.work.stop.is_set() or self.problem is not None

    def _keep(self, files: Mapping[str, bytes]) -> None:
        """Files of a run that came back with its task; each holds its own checksum."""
        store, record = self.work.place.store, RunRecord.from_dict(json.loads(files[RECORD]))
        with store.lock(record.config):
            if self.work.place.final_record(record.config) is not None:
                return
            for name, data in files.items():
                if name != RECORD:
                    (store.folder(record.id) / name).write_bytes(data)
            store.write(record)


def take(
    share: Sequence[RunConfig], place: Place, at_once: int | None, mail: Any, folder: str, returns: bool
) -> tuple[Exception | None, list[dict[str, bytes]]]:
    """A task: makes its runs. Returns what went wrong, and with `returns` the files of those that are done."""
    with suppress(OSError):
        os.chdir(folder)  # data may be named as seen from there

    def send(*message: Any) -> None:
        mail.actor.put_nowait.remote(message)  # nobody waits for it

    with tempfile.TemporaryDirectory() as own:
        if returns:
            place = replace(place, store=Store.open(Path(own) / "runs"))
        problem = _make(share, place, at_once, send)
        done = [config for config in share if returns and place.final_record(config)]
        return problem, [_files(place.store, config) for config in done]


def _make(share: Sequence[RunConfig], place: Place, at_once: int | None, send: Any) -> Exception | None:
    """Makes the runs; those that seem busy once more."""
    deadline = time.monotonic() + BUSY_S
    left: dict[str, str] = {}

    def pass_on(kind: str, run: str, *words: Any) -> None:
        if kind == "busy":
            left[run] = words[0]
        elif kind != "ended":
            send(kind, run, *words)

    while True:
        left.clear()
        problem = make_share(share, place, at_once, Sender(pass_on))
        if not left or time.monotonic() > deadline:
            break
        time.sleep(1.0)
        share = [config for config in share if config_id(config) in left]
    for run, owner in left.items():
        send("busy", run, owner)
    if isinstance(problem, RuntimeError):
        problem.__notes__.insert(0, f"on {socket.gethostname()}, process {os.getpid()}")
    return problem


def _files(store: Store, config: RunConfig) -> dict[str, bytes]:
    """The files of a run that is done."""
    folder = store.folder(config_id(config))
    names = [path.name for path in folder.iterdir() if path.is_file() and path.suffix in (".json", ".jsonl", ".toml")]
    names += [WEIGHTS] if (folder / WEIGHTS).exists() else []
    return {name: (folder / name).read_bytes() for name in names}
