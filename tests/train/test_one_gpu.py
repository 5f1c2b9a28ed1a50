"""Runs side by side, alone and joined. On the CPU they take turns, which is all that the bookkeeping needs."""

from __future__ import annotations

import gc
import os
import signal
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rcad.errors import InputError
from rcad.runs.config import RunConfig
from rcad.runs.configure import configure
from rcad.runs.locks import BusyError
from rcad.runs.plain import config_id
from rcad.runs.record import RunRecord
from rcad.runs.store import Store
from rcad.train import one_gpu as together
from rcad.train import run as execution
from rcad.train.checkpoint import load_tensors
from rcad.train.joined import JoinedUpdate, Seat, Team
from rcad.train.loop import Trainer
from rcad.train.one_gpu import OneGPU, can_share, in_groups
from rcad.train.place import Place
from rcad.train.progress import Progress, Silent
from rcad.train.run import canonical_config, run
from rcad.train.scheduler import Work, cost
from rcad.train.stop import Stop, stopping

PATIENCE_S = 200


class Listening(Silent):
    """A run's Progress that passes on its start and the ends of its epochs."""

    def __init__(
        self, started: Callable[[], object] = lambda: None, epoch: Callable[[int], object] = lambda epoch: None
    ) -> None:
        self.started, self.epoch, self.begun = started, epoch, False

    def overall(self, done: float, total: float, text: str) -> None:
        if not self.begun:
            self.begun = True
            self.started()
        elif text.startswith(f"epoch {done:g}/") and "loss" in text:
            self.epoch(int(done))


class Stopping(Silent):
    """Ctrl-C once so many epochs, e.g. 1.5, are behind."""

    def __init__(self, after: float) -> None:
        self._after = after

    def overall(self, done: float, total: float, text: str) -> None:
        if done == self._after:
            os.kill(os.getpid(), signal.SIGINT)


class Told:
    """What a listener hears, as lists; `progress_of`, `ended` and `busy` are told the places of runs."""

    pace = 0.0

    def __init__(
        self,
        configs: Sequence[RunConfig],
        progress_of: Callable[[int], Progress] = lambda index: Silent(),
        ended: Callable[[int, RunRecord], None] = lambda index, record: None,
        busy: Callable[[int, BusyError], None] | None = None,
    ) -> None:
        self.ids = [config_id(config) for config in configs]
        self._progress_of, self._ended, self._busy = progress_of, ended, busy
        self.records: list[RunRecord | None] = [None] * len(configs)

    def progress(self, config: RunConfig) -> Progress:
        return self._progress_of(self.ids.index(config_id(config)))

    def ended(self, record: RunRecord) -> None:
        index = self.ids.index(record.id)
        self.records[index] = record
        self._ended(index, record)

    def busy(self, config: RunConfig, error: BusyError) -> None:
        if self._busy is None:
            raise error
        self._busy(self.ids.index(config_id(config)), error)


def work_of(configs: Sequence[RunConfig], place: Place, stop: Stop | None = None, **heard: Any) -> Work:
    every = [canonical_config(config) for config in configs]
    listener: Any = Told(every, **heard)
    return Work(every, place, stop or Stop(), listener)


def run_together(
    configs: Sequence[RunConfig], place: Place, *, at_once: int | None = None, **options: Any
) -> list[RunRecord | None]:
    """The records in the order of the configs; None for those that were not begun before a signal came."""
    with stopping() as stop:
        work = work_of(configs, place, stop, **options)
        OneGPU(at_once)(work)
    records: list[RunRecord | None] = work.listener.records  # type: ignore[assignment]
    return records


def config(seed: int = 0, method: str = "rcad", epochs: int = 2, **train: Any) -> RunConfig:
    step = (("alpha", 0.6), ("lam", 0.03))
    rows = [(name.strip(), step if name.strip() in ("rcad", "rcad_random") else ()) for name in method.split("+")]
    made = configure("digits[:60]", rows, recipe="small", epochs=epochs, seed=seed, settings=["model.width=4"])
    return replace(made, train=replace(made.train, **{"batch_size": 16, **train}))


def seeds(count: int, **options: Any) -> list[RunConfig]:
    return [config(seed, **options) for seed in range(count)]


def go(configs: Sequence[RunConfig], folder: Path, joined: int = 1, **options: Any) -> list[RunRecord | None]:
    place = Place(Store.open(folder), device="cpu", checkpoint_seconds=options.pop("seconds", 15.0), joined=joined)
    with _not_for_ever():
        return run_together(configs, place, **options)


def by_itself(config: RunConfig, folder: Path, *options: Any) -> RunRecord:
    return run(config, Place(Store.open(folder), device="cpu"), *options)


@contextmanager
def _not_for_ever() -> Iterator[None]:
    """An alarm that shows even where all exceptions are caught."""
    rung: list[int] = []

    def ring(number: int, frame: object) -> None:
        rung.append(number)
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    elsewhere = signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *elsewhere)  # the test's own limit
        assert not rung, "the runs waited for each other without end"


def engines(records: Sequence[RunRecord | None]) -> list[str]:
    return [record.resolved["engine"] for record in records if record is not None]


def weights(folder: Path, record: RunRecord | None) -> dict[str, torch.Tensor]:
    assert record.status == "done"
    return load_tensors(folder / record.id / "model.safetensors")[0]


def equal(folder: Path, records: Sequence[RunRecord | None], other: Path, others: Sequence[RunRecord | None]) -> bool:
    """Weights, bit for bit."""
    for one, two in zip(records, others, strict=True):
        mine, its = weights(folder, one), weights(other, two)
        if mine.keys() != its.keys() or not all(torch.equal(mine[name], its[name]) for name in mine):
            return False
    return True


def checkpoints(folder: Path) -> list[tuple[dict[str, torch.Tensor], dict[str, Any]]]:
    store = Store.open(folder)
    paths = [store.checkpoint(run) / "last.safetensors" for run in sorted(store.ids())]
    return [load_tensors(path) for path in paths if path.exists()]


def same(one: RunRecord | None, other: RunRecord | None) -> bool:
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in r.epochs] for r in (one, other)]
    return one.metrics == other.metrics and rows[0] == rows[1] and one.id == other.id


def test_neighbours_change_nothing(tmp_path: Path) -> None:
    methods = ("erm", "rcad", "data_augmentation + rcad_random", "me_ada")
    configs = [config(seed, method) for method in methods for seed in (0, 1)]
    beside = go(configs, tmp_path / "a", at_once=5)
    alone = [by_itself(one, tmp_path / "b") for one in configs]
    assert all(same(one, other) for one, other in zip(beside, alone, strict=True))
    assert equal(tmp_path / "a", beside, tmp_path / "b", alone)
    assert set(engines(beside)) == {"eager, 5 runs at once"}
    assert set(engines(alone)) == {"eager"}


def test_never_more_at_once_than_asked(tmp_path: Path) -> None:
    live, most = set(), []

    def started(index: int) -> None:
        live.add(index)
        most.append(len(live))

    told: dict[str, Any] = {"progress_of": lambda index: Listening(started=lambda: started(index))}
    go(seeds(5), tmp_path, at_once=2, ended=lambda index, record: live.discard(index), **told)
    assert max(most) == 2
    assert len(most) == 5


@pytest.mark.parametrize(("joined", "begun"), [(1, 3), (2, 2), (3, 3)])
def test_a_stop_saves_every_run_and_the_same_call_goes_on(joined: int, begun: int, tmp_path: Path) -> None:
    configs = seeds(4, epochs=3)
    told: dict[str, Any] = {"progress_of": lambda index: Stopping(2.0) if index == 1 else Silent()}
    stopped = go(configs, tmp_path / "a", joined, at_once=3, **told)
    assert [record and record.status for record in stopped] == ["interrupted"] * begun + [None] * (4 - begun)
    resumed = go(configs, tmp_path / "a", joined, at_once=3, seconds=0.0)  # and a checkpoint after every step
    straight = go(configs, tmp_path / "b", joined, at_once=3)
    assert all(same(one, other) for one, other in zip(resumed, straight, strict=True))
    assert engines(resumed) == engines(straight)


def places(configs: Sequence[RunConfig], size: int) -> list[list[int]]:
    return [[configs.index(config) for config in group] for group in in_groups(configs, size)]


def test_runs_that_differ_in_their_seed_alone_can_be_joined(tmp_path: Path) -> None:
    configs = [config(seed, method) for seed in range(3) for method in ("rcad", "me_ada", "data_augmentation + mixup")]
    assert places(configs, 2) == [[0, 3], [2, 5], [6], [8], [1], [4], [7]]
    assert places(configs, 1) == [[i] for i in range(9)]
    joined = go(configs, tmp_path / "a", 2)
    for one, other in zip(joined, [by_itself(one, tmp_path / "b") for one in configs], strict=True):
        assert one.id == other.id
        assert one.metrics == pytest.approx(other.metrics, rel=1e-3)
    # Sets that grow cannot be joined, and the third seed has nobody to join.
    words = [engine.removesuffix(", 9 runs at once") for engine in engines(joined)]
    assert words == ["eager, 2 joined", "eager", "eager, 2 joined"] * 2 + ["eager"] * 3


def test_alike_are_those_that_differ_in_seeds_alone() -> None:
    one = config()
    split = [replace(one, seed=seed, data=replace(one.data, seed=seed + 7)) for seed in (0, 1)]
    other = [replace(one, data=replace(one.data, name="digits[:70]")), config(1, epochs=3), config(1, ema=0.9)]
    assert places([one, *other, *split, config(1)], 5) == [[0, 4, 5, 6], [1], [2], [3]]


def no_disk(*args: Any) -> None:
    raise InputError("expected a disk, but got none")


@pytest.mark.parametrize("joined", [1, 3])
def test_when_one_run_fails_the_others_keep_what_they_have(joined: int, tmp_path: Path) -> None:
    configs = seeds(3)
    with pytest.raises(InputError, match="a disk"):
        go(configs, tmp_path, joined, progress_of=lambda index: Listening(epoch=no_disk) if index == 1 else Silent())
    assert [Store.open(tmp_path).status(one) for one in configs] == ["interrupted"] * 3
    assert len(checkpoints(tmp_path)) == 2  # the one that failed has nothing to save
    assert all(record and record.status == "done" for record in go(configs, tmp_path, joined))


def no_memory(*args: Any) -> None:
    raise torch.OutOfMemoryError("no memory")


@pytest.mark.parametrize(("count", "joined"), [(4, 2), (3, 3)])
def test_joined_runs_that_find_no_memory_go_on_unjoined(
    count: int, joined: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody else is there, they were too many for one network, not for the device."""
    monkeypatch.setattr(JoinedUpdate, "__init__", no_memory)
    records = go(seeds(count), tmp_path / "a", joined)
    assert all("joined" not in engine for engine in engines(records))
    if count == joined:
        assert engines(records) == ["eager, 3 runs at once"] * 3
    alone = [by_itself(one, tmp_path / "b") for one in seeds(count)]
    assert all(same(one, other) for one, other in zip(records, alone, strict=True))


def test_a_team_that_runs_out_of_memory_late_disturbs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples, steps = JoinedUpdate.examples, []

    def too_large(self: JoinedUpdate, index: torch.Tensor) -> Any:
        if self.members[0].config.seed == 0:
            steps.append(0)
            if len(steps) == 5:
                no_memory()
        return examples(self, index)

    configs = seeds(5)
    alone = [by_itself(one, tmp_path / "b") for one in configs]
    undisturbed = go(configs[2:4], tmp_path / "c", 2)
    monkeypatch.setattr(JoinedUpdate, "examples", too_large)
    records = go(configs, tmp_path / "a", 2, at_once=5)
    assert [words.split(", ")[1] for words in engines(records)] == ["3 runs at once"] * 2 + ["2 joined"] * 2 + [
        "5 runs at once"
    ]
    for i in (0, 1, 4):
        assert equal(tmp_path / "a", records[i : i + 1], tmp_path / "b", alone[i : i + 1])
    assert equal(tmp_path / "a", records[2:4], tmp_path / "c", undisturbed)


def test_a_run_that_finds_no_memory_waits_for_room(tmp_path: Path) -> None:
    failed = []

    def greedy(epoch: int) -> None:
        if not failed:
            failed.append(epoch)
            no_memory()

    told: dict[str, Any] = {"progress_of": lambda index: Listening(epoch=greedy) if index == 2 else Silent()}
    records = go(seeds(4), tmp_path, at_once=4, **told)
    assert failed == [1]
    assert [record and record.status for record in records] == ["done"] * 4


def test_a_run_too_large_even_alone_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"fit into the GPU's memory.*batch_size smaller"):
        by_itself(config(), tmp_path, Listening(epoch=no_memory))
    for count in (1, 2):  # the second comes to be alone
        with pytest.raises(InputError, match=r"fit into the GPU's memory.*batch_size smaller"):
            go(seeds(count), tmp_path, progress_of=lambda index: Listening(epoch=no_memory))


def test_who_may_share_a_device() -> None:
    one = config()
    assert can_share(one)
    assert not can_share(config(deterministic=True))  # a switch of the whole process
    assert not can_share(replace(one, model=replace(one.model, dropout=0.1)))
    assert not can_share(replace(one, model=replace(one.model, name="timm:resnet18")))
    wide = replace(one, model=replace(one.model, name="wrn16_8"))
    assert not can_share(wide)  # it drops out unless told not to
    assert can_share(replace(wide, model=replace(wide.model, dropout=0.0)))


@pytest.mark.parametrize("engine", ["graph", "compile"])
def test_graphs_need_a_gpu(engine: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"expected a GPU for engine={engine}, but got the CPU; use eager"):
        run(config(), Place(Store.open(tmp_path), device="cpu", engine=engine))  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("option", "value"), [("engine", "warp"), ("joined", 0)])
def test_what_cannot_be_is_named(option: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"{option}.*{value}"):
        run(config(), Place(Store.open(tmp_path), device="cpu", **{option: value}))


def teams_of(place: Place, configs: Sequence[RunConfig], limit: int) -> together._Teams:
    return together._Teams(work_of(configs, place), limit)


def team(runs: int, *, settled: bool = True, epochs: int = 2) -> Team:
    """One that has come so far."""
    made = Team("eager", torch.device("cpu"))
    for index in range(runs):
        made.runs[Seat(made, index)] = None  # type: ignore[assignment]
    made.epochs = epochs
    if settled:
        made._stepper = Seat(made, 0)
    return made


def test_admission_follows_the_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first run goes alone until its step has all it needs; then as many come as fit, with room to spare."""
    teams = teams_of(Place(Store.open(tmp_path), device="cpu"), seeds(1) * 10, 10)
    teams.device = torch.device("cuda")  # only words: every question about memory is answered below
    reserved, free = [100.0], [1000.0]
    monkeypatch.setattr(teams, "_reserved", lambda: reserved[0])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[0], 2000.0))
    teams.taken_before = 100
    assert teams._room(1)
    teams.teams = [team(1, settled=False)]
    assert not teams._room(1)  # it may not have captured its step yet
    teams.teams = [team(1, epochs=1)]
    reserved[0], free[0] = 400.0, 601.0
    assert teams._room(1)  # each takes 300, and who knows what in an evaluation
    free[0] = 599.0
    assert not teams._room(1)
    teams.teams = [team(1)]
    assert teams._room(1)  # 360 would do
    free[0] = 700.0
    teams.teams.append(team(1, settled=False))
    assert teams._room(1)  # 300 of the 700 are promised: 400 are left
    teams.teams.append(team(1, settled=False))
    assert not teams._room(1)


def test_joined_runs_are_admitted_together_or_not_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    teams = teams_of(Place(Store.open(tmp_path), device="cpu", joined=4), seeds(12), 9)
    assert [[config.seed for config in group] for group in teams.waiting] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]
    teams._admit()
    assert [seat.run.seed for one in teams.teams for seat in one.runs] == list(range(8))  # the third would make twelve
    teams.device = torch.device("cuda")
    monkeypatch.setattr(teams, "_reserved", lambda: 1300.0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[0], 2000.0))
    teams.taken_before, teams.limit, free = 100, 20, [479.0]
    teams.teams = [team(4) for _ in range(3)]
    assert not teams._room(4)  # each takes 100; 480 would do for four
    free[0] = 481.0
    assert teams._room(4)


@pytest.mark.parametrize(
    ("joined", "at_once", "runs", "limit"),
    [(1, None, 40, 10), (2, None, 40, 10), (8, None, 40, 32), (8, 9, 40, 9), (5, None, 12, 12), (5, 50, 30, 30)],
)
def test_as_many_at_once_as_pay(
    joined: int, at_once: int | None, runs: int, limit: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(together._Teams, "go", lambda self: seen.append(self.limit))
    go(seeds(runs), tmp_path, joined, at_once=at_once)
    assert seen == [limit]


def test_a_team_that_cannot_end_in_time_is_not_begun(tmp_path: Path) -> None:
    teams = teams_of(Place(Store.open(tmp_path), device="cpu"), seeds(3), 3)
    teams.stop = stop = Stop(minutes=1)
    teams.work = replace(teams.work, stop=stop)
    teams.listener.pace = 61.0 / cost(seeds(1)[0])
    teams._admit()
    assert not teams.teams
    assert stop.short
    assert not stop.is_set()


def test_nobody_waits_for_a_run_that_was_never_made(tmp_path: Path) -> None:
    def progress(index: int) -> Progress:
        if index == 1:
            raise InputError("expected a folder, but got none")
        return Silent()

    with pytest.raises(InputError, match="a folder"):
        go(seeds(3), tmp_path, 3, progress_of=progress)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("when", ["started", "epoch"])
def test_nobody_waits_for_a_run_that_cannot_be_reached(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as after a third Ctrl-C, which may come between two runs, or before one has begun."""
    resume, failed = Team.resume, []

    def broken(self: Team, seat: Seat) -> Any:
        if failed and seat.run.seed == 2:
            raise RuntimeError("no device")
        return resume(self, seat)

    def fails(*args: Any) -> None:
        failed.append(when)
        no_disk()

    failing = Listening(**{when: fails})
    monkeypatch.setattr(Team, "resume", broken)
    with pytest.raises(InputError, match="a disk"):
        go(seeds(3), tmp_path, 3, progress_of=lambda i: failing if i == 1 else Silent())
    assert len(checkpoints(tmp_path)) == 1


def test_a_step_that_ctrl_c_breaks_off_is_not_taken_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow, steps = JoinedUpdate.follow, []

    def interrupted(self: JoinedUpdate) -> None:
        steps.append(0)
        if len(steps) == 3:
            raise KeyboardInterrupt
        follow(self)

    with monkeypatch.context() as patch:
        patch.setattr(JoinedUpdate, "follow", interrupted)
        with pytest.raises(KeyboardInterrupt):
            go(seeds(3), tmp_path / "a", 3)
    assert len(steps) == 3
    assert not checkpoints(tmp_path / "a")
    assert equal(tmp_path / "a", go(seeds(3), tmp_path / "a", 3), tmp_path / "b", go(seeds(3), tmp_path / "b", 3))


def test_a_signal_while_some_are_being_saved_stops_all_after_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, saved = execution.save_trainer, []

    def saving(trainer: Trainer, path: Path) -> None:
        save(trainer, path)
        saved.append(trainer.config.seed)
        if len(saved) == 4:  # the first of three has been saved for the second time
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(execution, "save_trainer", saving)
        patch.setattr(execution, "SAVING_SHARE", 1e9)
        stopped = go(seeds(3), tmp_path / "a", 3, seconds=0.0)
    assert [record and record.status for record in stopped] == ["interrupted"] * 3
    assert [(meta["epoch"], meta["step"]) for _, meta in checkpoints(tmp_path / "a")] == [(0, 3)] * 3
    resumed = go(seeds(3), tmp_path / "a", 3)
    assert engines(resumed) == ["eager, 3 joined, 3 runs at once"] * 3
    assert equal(tmp_path / "a", resumed, tmp_path / "b", go(seeds(3), tmp_path / "b", 3))


def test_who_is_the_only_one_left_is_as_if_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    alone = [by_itself(one, tmp_path / "b") for one in seeds(3)]
    for one in seeds(2):
        by_itself(one, tmp_path / "a")
    records = go(seeds(3), tmp_path / "a", 3)
    assert engines(records) == ["eager", "eager", "eager, 3 runs at once"]
    assert equal(tmp_path / "a", records, tmp_path / "b", alone)
    assert not caplog.records  # nothing that anybody could mend


def test_done_interrupted_busy_and_new_ones_together(tmp_path: Path) -> None:
    configs, told = seeds(5), []
    by_itself(configs[0], tmp_path)
    by_itself(configs[1], tmp_path, Stopping(0.5))
    with Store.open(tmp_path).lock(canonical_config(configs[2])):
        records = go(configs, tmp_path, 5, busy=lambda index, error: told.append(index))
    assert [record and record.status for record in records] == ["done", "done", None, "done", "done"]
    assert told == [2]
    apart, joined = "eager, 5 runs at once", "eager, 2 joined, 5 runs at once"
    assert engines(records) == ["eager", apart, joined, joined]


def test_a_record_says_that_its_run_is_to_be_joined(tmp_path: Path) -> None:
    found = []

    def look() -> None:
        (record,) = Store.open(tmp_path).records()
        found.append((record.status, record.resolved["engine"]))

    go(seeds(3, epochs=1), tmp_path, 3, progress_of=lambda i: Silent() if i else Listening(started=look))
    assert found == [("running", "eager, 3 to be joined, 3 runs at once")]


@pytest.mark.parametrize("joined", [1, 2])
def test_what_has_ended_takes_no_memory(joined: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor waits for the collector of cycles, which knows nothing of a GPU's memory."""
    init, made, alive = Trainer.__init__, [], []

    def noted(self: Trainer, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        made.append(weakref.ref(self.model))

    monkeypatch.setattr(Trainer, "__init__", noted)
    gc.collect()
    gc.disable()
    try:
        ended = lambda i, r: alive.append(sum(m() is not None for m in made))  # noqa: E731
        go(seeds(4, epochs=1), tmp_path, joined, at_once=2, ended=ended)
        left = sum(model() is not None for model in made)
    finally:
        gc.enable()
    assert (len(made), left) == (4, 0)
    assert max(alive) <= 2


def test_files_of_joined_runs_have_the_form_of_others(tmp_path: Path) -> None:
    configs = seeds(3, ema=0.9, channels_last=True)
    go(configs, tmp_path / "a", 3, progress_of=lambda index: Stopping(1.5) if index == 0 else Silent())
    for one in configs:
        by_itself(one, tmp_path / "b", Stopping(1.5))
    joined, alone = checkpoints(tmp_path / "a"), checkpoints(tmp_path / "b")
    assert len(joined) == 3
    for (tensors, meta), (others, its) in zip(joined, alone, strict=True):
        assert _form(tensors) == _form(others)
        assert meta.keys() == its.keys()
        assert (meta["epoch"], meta["step"]) == (its["epoch"], its["step"]) == (1, 2)
        torch.testing.assert_close(tensors["sums"], others["sums"], rtol=1e-4, atol=0.0)
        assert torch.equal(tensors["rng.noise"], others["rng.noise"])
    records = go(configs, tmp_path / "a", 3)
    for one, record in zip(configs, records, strict=True):
        single = by_itself(one, tmp_path / "b")
        assert _form(weights(tmp_path / "a", record)) == _form(weights(tmp_path / "b", single))
        assert [row.keys() for row in record.epochs] == [row.keys() for row in single.epochs]
        assert record.resolved["model"] == single.resolved["model"]  # no padding counts as a parameter
    files = [{path.relative_to(folder) for path in folder.rglob("*")} for folder in (tmp_path / "a", tmp_path / "b")]
    assert files[0] == files[1]


def _form(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (value.shape, value.dtype) for name, value in tensors.items()}


@pytest.mark.parametrize(
    ("method", "model", "words"), [("me_ada", "auto", "4 runs not joined"), ("rcad", "mlp", "the runs are not joined")]
)
def test_all_teams_say_once_why_they_are_not_joined(
    method: str, model: str, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    every = seeds(4, method=method, epochs=1)
    configs = [replace(one, model=replace(one.model, name=model, width=None)) for one in every]
    assert engines(go(configs, tmp_path, 2)) == ["eager, 4 runs at once"] * 4
    assert [record.message.startswith(words) for record in caplog.records] == [True]
