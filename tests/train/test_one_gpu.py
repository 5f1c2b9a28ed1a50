"""Runs side by side, alone and joined. On the CPU they take turns, which is all that the bookkeeping needs."""

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from one_line import refusals
from rcad.errors import InputError
from rcad.runs.config import RunConfig
from rcad.runs.configure import configure
from rcad.runs.record import RunRecord
from rcad.runs.store import LAST, Store
from rcad.train import one_gpu as together
from rcad.train.checkpoint import load_tensors
from rcad.train.joined import JoinedStepper, JoinedUpdate, Team
from rcad.train.loop import Trainer
from rcad.train.one_gpu import OneGPU, can_share, in_groups, most_at_once
from rcad.train.place import Place
from rcad.train.progress import SILENT, Progress
from rcad.train.run import run
from rcad.train.scheduler import Work, canonical_config, cost
from rcad.train.stop import Stop, stopping
from tiny_runs import Listener, Watcher, essence, no_memory, same_weights, weights

# A thread notices runs that wait for each other without end even where all exceptions are caught.
pytestmark = pytest.mark.timeout(200, method="thread")


def work_of(configs: Sequence[RunConfig], place: Place, stop: Stop | None = None, **listened: Any) -> Any:
    configs = [canonical_config(config) for config in configs]
    return Work(configs, place, stop or Stop(), Listener(configs, **listened))


def config(seed: int = 0, method: str = "rcad", epochs: int = 2, **train: Any) -> RunConfig:
    step = (("alpha", 0.6), ("lam", 0.03))
    rows = [(name.strip(), step if name.strip() in ("rcad", "rcad_random") else ()) for name in method.split("+")]
    made = configure("digits[:60]", rows, recipe="small", epochs=epochs, seed=seed, settings=["model.width=4"])
    return replace(made, train=replace(made.train, **{"batch_size": 16, **train}))


def seeds(count: int, **options: Any) -> list[RunConfig]:
    return [config(seed, **options) for seed in range(count)]


def go(configs: Any, store: Store, joined: int = 1, at_once: Any = None, seconds: float = 15.0, **listened: Any) -> Any:
    """The records in the order of the configs; None for those that were not begun before a signal came."""
    place = Place(store, device="cpu", checkpoint_seconds=seconds, joined=joined)
    with stopping() as stop:
        work = work_of(configs, place, stop, **listened)
        OneGPU(at_once)(work)
    return work.listener.records


def by_itself(config: RunConfig, store: Store, progress: Progress = SILENT) -> RunRecord:
    return run(config, Place(store, device="cpu"), progress)


def stopping_at(epochs: float) -> Watcher:
    """Ctrl-C once so many epochs, e.g. 1.5, are behind."""
    return Watcher(lambda watcher: watcher.done == epochs)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Where runs are made by themselves, each once for all tests."""
    return Store.open(tmp_path_factory.mktemp("alone"))


def engines(records: Sequence[Any]) -> list[str]:
    return [record.resolved["engine"] for record in records if record is not None]


def ids(records: Sequence[Any]) -> list[str]:
    assert {record.status for record in records} == {"done"}
    return [record.id for record in records]


def checkpoints(store: Store) -> list[tuple[dict[str, torch.Tensor], dict[str, Any]]]:
    paths = [store.checkpoint(run) / LAST for run in sorted(store.ids())]
    return [load_tensors(path) for path in paths if path.exists()]


def test_neighbours_change_nothing(store, alone):
    methods = ("erm", "rcad", "data_augmentation + rcad_random", "me_ada")
    configs = [config(seed, method) for method in methods for seed in (0, 1)]
    records = go(configs, store, at_once=5)
    singles = [by_itself(config, alone) for config in configs]
    assert list(map(essence, records)) == list(map(essence, singles))
    assert same_weights(store, alone, *ids(records))
    assert set(engines(records)) == {"eager, 5 runs at once"}
    assert set(engines(singles)) == {"eager"}


def test_never_more_at_once_than_asked_and_a_record_says_that_its_run_is_to_be_joined(store):
    most, said = [], set()

    def start():
        live = [record.resolved["engine"] for record in store.records() if record.status == "running"]
        most.append(len(live))
        said.update(live)

    go(seeds(5, epochs=1), store, 2, 2, progress={k: Watcher(lambda heard: heard.text, start) for k in range(5)})
    assert (max(most), len(most)) == (2, 5)
    assert said == {"eager, 2 to be joined, 2 runs at once", "eager, 2 runs at once"}


@pytest.mark.parametrize(("joined", "begun"), [(1, 3), (2, 2), (3, 3)])
def test_a_stop_saves_all_and_the_same_call_goes_on(joined, begun, store, tmp_path):
    configs = seeds(4)
    stopped = go(configs, store, joined, 3, progress={1: stopping_at(1.0)})
    assert [record and record.status for record in stopped] == ["interrupted"] * begun + [None] * (4 - begun)
    resumed = go(configs, store, joined, 3, seconds=0.0)  # and a checkpoint after every step
    straight = go(configs, Store.open(tmp_path / "straight"), joined, 3)
    assert list(map(essence, resumed)) == list(map(essence, straight))
    assert engines(resumed) == engines(straight)


def test_groups_differ_in_seeds_alone_and_those_that_cannot_be_joined_come_last():
    def places(configs, size):
        return [[configs.index(config) for config in group] for group in in_groups(configs, size)]

    configs = [config(seed, method) for seed in range(3) for method in ("rcad", "mine:own", "erm")]
    assert places(configs, 2) == [[0, 3], [2, 5], [6], [8], [1], [4], [7]]
    assert places(configs, 1) == [[i] for i in range(9)]
    first = config()
    split = replace(first, seed=2, data=replace(first.data, seed=7))
    other = [replace(first, data=replace(first.data, name="digits[:70]")), config(1, epochs=3), config(1, ema=0.9)]
    assert places([first, *other, split, config(1)], 5) == [[0, 4, 5], [1], [2], [3]]
    assert [most_at_once(joined) for joined in (1, 2, 8)] == [10, 10, 32]


@pytest.mark.parametrize("joined", [1, 3])
def test_when_one_run_fails_the_others_keep_what_they_have(joined, store):
    no_disk = Watcher(lambda watcher: watcher.done == 1, Mock(side_effect=InputError("expected a disk")))
    with pytest.raises(InputError, match="a disk"):
        go(seeds(3), store, joined, progress={1: no_disk})
    assert sorted(record.state for record in store.records()) == ["failed", "interrupted", "interrupted"]
    assert len(checkpoints(store)) == 2  # the one that failed has nothing to save
    assert len(ids(go(seeds(3), store, joined))) == 3


@pytest.mark.parametrize("joined", [2, 3])
def test_joined_runs_that_find_no_memory_go_on_unjoined(joined, store, alone, monkeypatch):
    """Where nobody else is there, they were too many for one network, not for the device."""
    monkeypatch.setattr(JoinedUpdate, "__init__", no_memory)
    records = go(seeds(3), store, joined)
    assert engines(records) == ["eager, 3 runs at once"] * 3 or joined == 2
    assert all("joined" not in engine for engine in engines(records))
    assert list(map(essence, records)) == [essence(by_itself(config, alone)) for config in seeds(3)]


def greedy() -> Watcher:
    return Watcher(lambda watcher: watcher.done == 1, no_memory)


def test_a_run_that_finds_no_memory_waits_for_room_and_even_alone_is_refused(store):
    large = greedy()
    assert len(ids(go(seeds(4), store, at_once=4, progress={2: large}))) == 4
    assert large.acted
    words = r"fit into the GPU's memory.*batch_size smaller"
    with pytest.raises(InputError, match=words):
        by_itself(config(9), store, greedy())
    for count in (1, 2):  # the second comes to be alone
        with pytest.raises(InputError, match=words):
            go(seeds(count, epochs=3), store, progress={place: greedy() for place in range(count)})


def test_who_may_share_a_device():
    models = [{}, {"name": "wrn16_8", "dropout": 0.0}, {"name": "wrn16_8"}, {"dropout": 0.1}, {"name": "timm:resnet18"}]
    sharing = [can_share(replace(config(), model=replace(config().model, **model))) for model in models]
    assert sharing == [True, True, False, False, False]  # a WideResNet drops out unless told not to
    assert not can_share(config(deterministic=True))  # a switch of the whole process


test_what_cannot_be_is_named = refusals(
    ({"engine": "graph"}, "expected a GPU for engine=graph, but got the CPU; use eager"),
    ({"engine": "warp"}, "engine to be one of .. warp"),
    ({"joined": 0}, "joined .. 0"),
    of=lambda option: run(config(), Place(Store(Path("nowhere")), device="cpu", **option)),
)


def test_joined_runs_are_admitted_together_or_not_at_all_and_only_if_they_can_end_in_time(store):
    place, stop = Place(store, device="cpu", joined=4), Stop(minutes=1)
    teams = together._Teams(work_of(seeds(12), place), 9)
    teams._admit()
    assert [member.run.seed for one in teams.teams for member in one.runs] == [*range(8)]  # the third would make twelve
    teams = together._Teams(work_of(seeds(3), place, stop), 3)
    teams.listener.pace = 61.0 / cost(config())
    teams._admit()
    assert not teams.teams
    assert (stop.short, stop.is_set()) == (True, False)


def team(runs: int, *, settled: bool = True, epochs: int = 2) -> Team:
    made = Team("eager", torch.device("cpu"))
    for index in range(runs):
        made.runs[JoinedStepper(made, index)] = None  # type: ignore[assignment]
    made.epochs = epochs
    if settled:
        made._stepper = JoinedStepper(made, 0)
    return made


@pytest.mark.parametrize(
    "case",
    [  # teams, what one run takes where it is known, reserved, free, how many come, whether there is room
        ([], None, 100, 1000, 1, True),
        ([team(1, settled=False)], None, 100, 1000, 1, False),  # it may not have captured its step yet
        ([team(1, epochs=1)], None, 400, 601, 1, True),  # each takes 300, and who knows what in an evaluation
        ([team(1, epochs=1)], None, 400, 599, 1, False),
        ([team(1)], None, 400, 361, 1, True),
        ([team(1)], None, 400, 359, 1, False),
        ([team(1), team(1, settled=False)], 300.0, 400, 700, 1, True),  # 300 of the 700 are promised: 400 are left
        ([team(1), team(1, settled=False)], 300.0, 400, 600, 1, False),
        ([team(4), team(4), team(4)], None, 1300, 481, 4, True),  # each takes 100; four come together or not at all
        ([team(4), team(4), team(4)], None, 1300, 479, 4, False),
        ([team(4), team(4)], None, 900, 1000, 13, False),  # more than were asked for
    ],
)
def test_admission_follows_the_memory(case, monkeypatch, store):
    """The first run goes alone until its step has all it needs; then as many come as fit, with room to spare."""
    teams, need, reserved, free, count, room = case
    present = together._Teams(work_of(seeds(1) * 20, Place(store, device="cpu")), 20)
    present.device = torch.device("cuda")  # only words: every question about memory is answered here
    monkeypatch.setattr(present, "_reserved", lambda: reserved)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 2000))
    present.taken_before, present.teams, present.need = 100, teams, need
    assert present._room(count) == room


@pytest.mark.parametrize(("error", "state"), [(KeyboardInterrupt, "interrupted"), (ZeroDivisionError, "failed")])
def test_a_step_that_is_broken_off_is_not_taken_twice(error, state, store, tmp_path, monkeypatch):
    follow, steps, straight = JoinedUpdate.follow, [], Store.open(tmp_path / "straight")

    def interrupted(self):
        steps.append(0)
        if len(steps) == 3:
            raise error
        follow(self)

    with monkeypatch.context() as patch:
        patch.setattr(JoinedUpdate, "follow", interrupted)
        with pytest.raises(error):
            go(seeds(3), store, 3)
    assert len(steps) == 3
    assert {record.state for record in store.records()} == {state}
    assert not checkpoints(store)
    go(seeds(3), straight, 3)
    assert same_weights(store, straight, *ids(go(seeds(3), store, 3)))


def test_done_interrupted_busy_and_new_ones_together(store):
    configs = seeds(5)
    by_itself(configs[0], store)
    by_itself(configs[1], store, stopping_at(0.5))
    with store.lock(canonical_config(configs[2])):
        records = go(configs, store, 5)
    assert [record and record.status for record in records] == ["done", "done", None, "done", "done"]
    apart, joined = "eager, 5 runs at once", "eager, 2 joined, 5 runs at once"
    assert engines(records) == ["eager", apart, joined, joined]


@pytest.mark.parametrize("joined", [1, 2])
def test_what_has_ended_takes_no_memory(joined, store, monkeypatch, request):
    init, models, alive = Trainer.__init__, weakref.WeakSet[Any](), []
    gc.collect()
    gc.disable()  # it knows nothing of a GPU's memory: what nobody needs must go by itself
    request.addfinalizer(gc.enable)

    def noted(self, *args, **options):
        init(self, *args, **options)
        models.add(self.model)

    monkeypatch.setattr(Trainer, "__init__", noted)
    go(seeds(4, epochs=1), store, joined, 2, on_end=lambda place: alive.append(len(models)))
    assert 1 <= max(alive) <= 2
    assert len(models) == 0


def test_files_of_joined_runs_have_the_form_of_others(store, tmp_path):
    def form(tensors):
        return {name: (value.shape, value.dtype) for name, value in tensors.items()}

    configs, other = seeds(3, ema=0.9, channels_last=True), Store.open(tmp_path / "alone")
    go(configs, store, 3, progress={0: stopping_at(1.5)})
    for single in configs:
        by_itself(single, other, stopping_at(1.5))
    assert len(checkpoints(store)) == 3
    for (tensors, meta), (theirs, its) in zip(checkpoints(store), checkpoints(other), strict=True):
        assert form(tensors) == form(theirs)
        assert meta.keys() == its.keys()
        assert (meta["epoch"], meta["step"]) == (its["epoch"], its["step"]) == (1, 2)
        torch.testing.assert_close(tensors["sums"], theirs["sums"], rtol=1e-4, atol=0.0)
    for config, record in zip(configs, go(configs, store, 3), strict=True):
        single = by_itself(config, other)
        assert form(weights(store, record.id)) == form(weights(other, record.id))
        assert [row.keys() for row in record.epochs] == [row.keys() for row in single.epochs]
        assert record.resolved["model"] == single.resolved["model"]  # no padding counts as a parameter
