"""Runs side by side. On the CPU they take turns, which is all that the bookkeeping needs to be tested."""

from __future__ import annotations

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
from rcad.train.checkpoint import load_tensors
from rcad.train.joined import Team
from rcad.train.one_gpu import can_share, in_groups
from rcad.train.place import Place
from rcad.train.progress import Silent
from rcad.train.run import canonical_config, run
from rcad.train.stop import Stop
from side_by_side import Listening, Stopping, Told, run_together

METHODS = ("erm", "rcad", "data_augmentation + rcad_random", "me_ada")


def config(method: str = "rcad", seed: int = 0, epochs: int = 3, **train: Any) -> RunConfig:
    rows = [(name.strip(), ()) for name in method.split("+")]
    made = configure({"name": "digits[:60]"}, rows, recipe="small", epochs=epochs, seed=seed)
    return replace(made, train=replace(made.train, **train))


def go(configs: list[RunConfig], folder: Path, **options: Any) -> list[RunRecord | None]:
    seconds, joined = options.pop("seconds", 15.0), options.pop("joined", 1)
    place = Place(Store.open(folder), device="cpu", checkpoint_seconds=seconds, joined=joined)
    return run_together(configs, place, **options)


def weights(folder: Path, record: RunRecord) -> dict[str, torch.Tensor]:
    return load_tensors(folder / record.id / "model.safetensors")[0]


def same(one: RunRecord | None, other: RunRecord | None) -> bool:
    assert one is not None
    assert other is not None
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in r.epochs] for r in (one, other)]
    return one.metrics == other.metrics and rows[0] == rows[1] and one.id == other.id


def test_neighbours_change_nothing(tmp_path: Path) -> None:
    configs = [config(method, seed) for method in METHODS for seed in (0, 1)]
    beside = go(configs, tmp_path / "a", at_once=5)
    alone = [run(one, Place(Store.open(tmp_path / "b"), device="cpu")) for one in configs]
    for one, other in zip(beside, alone, strict=True):
        assert same(one, other)
        assert one is not None
        for name, value in weights(tmp_path / "a", one).items():
            assert torch.equal(value, weights(tmp_path / "b", other)[name])


def test_the_record_says_how_many_shared_the_device(tmp_path: Path) -> None:
    records = go([config(seed=seed, epochs=1) for seed in range(3)], tmp_path, at_once=2)
    assert [record.resolved["engine"] for record in records if record] == ["eager, 2 runs at once"] * 3
    assert run(config(seed=9, epochs=1), Place(Store.open(tmp_path), device="cpu")).resolved["engine"] == "eager"


def test_never_more_at_once_than_asked(tmp_path: Path) -> None:
    live, most = set(), []

    class Watching(Listening):
        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

        def started(self) -> None:
            live.add(self.index)
            most.append(len(live))

    go(
        [config(seed=seed, epochs=2) for seed in range(5)],
        tmp_path,
        at_once=2,
        progress_of=Watching,
        ended=lambda index, record: live.discard(index),
    )
    assert max(most) == 2
    assert len(most) == 5


def test_a_stop_saves_every_run_and_the_same_call_goes_on(tmp_path: Path) -> None:
    configs = [config(seed=seed, epochs=4) for seed in range(4)]
    stopped = go(configs, tmp_path / "a", at_once=3, progress_of=lambda index: Silent() if index else Stopping(2.0))
    assert [record and record.status for record in stopped] == ["interrupted"] * 3 + [None]
    resumed = go(configs, tmp_path / "a", at_once=3)
    straight = go(configs, tmp_path / "b", at_once=4)
    assert all(same(one, other) for one, other in zip(resumed, straight, strict=True))


def close(one: RunRecord | None, other: RunRecord | None) -> bool:
    assert one is not None
    assert other is not None
    return one.id == other.id and one.metrics == pytest.approx(other.metrics, rel=1e-3)


def test_runs_that_differ_in_their_seed_alone_can_be_joined(tmp_path: Path) -> None:
    configs = [config(method, seed) for seed in (0, 1, 2) for method in ("rcad", "me_ada", "data_augmentation + mixup")]
    assert in_groups(configs, 2) == [[0, 3], [2, 5], [6], [8], [1], [4], [7]]
    assert in_groups(configs, 1) == [[i] for i in range(9)]
    joined = go(configs, tmp_path / "a", joined=2)
    alone = [run(one, Place(Store.open(tmp_path / "b"), device="cpu")) for one in configs]
    assert all(close(one, other) for one, other in zip(joined, alone, strict=True))
    words = [record.resolved["engine"].removesuffix(", 9 runs at once") for record in joined if record]
    # Sets that grow cannot be joined, and the third seed has nobody to join.
    assert words == ["eager, 2 joined", "eager", "eager, 2 joined"] * 2 + ["eager"] * 3


def test_joined_runs_stop_and_go_on_together(tmp_path: Path) -> None:
    configs = [config(seed=seed, epochs=3) for seed in range(3)]
    stopped = go(configs, tmp_path / "a", joined=3, progress_of=lambda i: Stopping(2.0) if i == 1 else Silent())
    assert [record and record.status for record in stopped] == ["interrupted"] * 3
    resumed = go(configs, tmp_path / "a", joined=3, seconds=0.0)  # and a checkpoint after every step
    straight = go(configs, tmp_path / "b", joined=3)
    assert all(same(one, other) for one, other in zip(resumed, straight, strict=True))
    assert {record.resolved["engine"] for record in resumed if record} == {"eager, 3 joined, 3 runs at once"}


def test_a_joined_run_that_is_done_already_is_not_waited_for(tmp_path: Path) -> None:
    configs = [config(seed=seed) for seed in range(3)]
    run(configs[1], Place(Store.open(tmp_path), device="cpu"))
    records = go(configs, tmp_path, joined=3)
    assert [record and record.resolved["engine"].partition(",")[2] for record in records] == [
        " 2 joined, 3 runs at once",
        "",
        " 2 joined, 3 runs at once",
    ]


def test_when_a_joined_run_fails_the_others_keep_what_they_have(tmp_path: Path) -> None:
    class Failing(Listening):
        def epoch(self, epoch: int) -> None:
            raise InputError("expected a disk, but got none")

    configs = [config(seed=seed) for seed in range(3)]
    with pytest.raises(InputError, match="a disk"):
        go(configs, tmp_path, joined=3, progress_of=lambda index: Failing() if index == 1 else Silent())
    store = Store.open(tmp_path)
    saved = [(store.checkpoint(run) / "last.safetensors").exists() for run in store.ids()]
    assert sorted(saved) == [False, True, True]
    assert all(record and record.status == "done" for record in go(configs, tmp_path, joined=3))


def test_joined_runs_that_find_no_memory_go_on_unjoined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(self: Any, runs: Any) -> None:
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr("rcad.train.joined.JoinedUpdate.__init__", too_large)
    configs = [config(seed=seed) for seed in range(4)]
    records = go(configs, tmp_path / "a", joined=2, at_once=4)
    assert [record and record.status for record in records] == ["done"] * 4
    assert all("joined" not in record.resolved["engine"] for record in records if record)
    alone = [run(one, Place(Store.open(tmp_path / "b"), device="cpu")) for one in configs]
    assert all(same(one, other) for one, other in zip(records, alone, strict=True))


def test_when_one_run_fails_the_others_keep_what_they_have(tmp_path: Path) -> None:
    class Failing(Listening):
        def epoch(self, epoch: int) -> None:
            raise InputError("expected a disk, but got none")

    configs = [config(seed=seed) for seed in range(3)]
    with pytest.raises(InputError, match="a disk"):
        go(configs, tmp_path, progress_of=lambda index: Failing() if index == 1 else Silent())
    store = Store.open(tmp_path)
    assert [store.status(one) for one in configs] == ["interrupted"] * 3
    saved = [(store.checkpoint(run) / "last.safetensors").exists() for run in store.ids()]
    assert sorted(saved) == [False, True, True]  # the one that failed has nothing to save
    assert all(record and record.status == "done" for record in go(configs, tmp_path))


def test_a_run_that_finds_no_memory_waits_for_room(tmp_path: Path) -> None:
    failed = []

    class Greedy(Listening):
        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

        def epoch(self, epoch: int) -> None:
            if self.index == 2 and not failed:
                failed.append(epoch)
                raise torch.OutOfMemoryError("no memory")

    records = go([config(seed=seed) for seed in range(4)], tmp_path, at_once=4, progress_of=Greedy)
    assert failed == [1]
    assert [record and record.status for record in records] == ["done"] * 4


def test_a_run_too_large_even_alone_is_refused_in_one_line(tmp_path: Path) -> None:
    class Greedy(Listening):
        def epoch(self, epoch: int) -> None:
            raise torch.OutOfMemoryError("no memory")

    with pytest.raises(InputError, match=r"fit into the GPU's memory.*batch_size smaller"):
        run(config(), Place(Store.open(tmp_path), device="cpu"), Greedy())
    with pytest.raises(InputError, match=r"fit into the GPU's memory.*batch_size smaller"):
        go([config()], tmp_path, progress_of=lambda index: Greedy())


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


def test_an_unknown_engine_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"engine.*'warp'"):
        run(config(), Place(Store.open(tmp_path), device="cpu", engine="warp"))  # type: ignore[arg-type]


def test_admission_follows_the_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first run goes alone until it has all it needs; then as many join as fit, with room to spare."""
    place = Place(Store.open(tmp_path), device="cpu")
    lanes = together._Lanes(Told([config()] * 10, place), 10)  # type: ignore[arg-type]
    lanes.device = torch.device("cuda")  # only words: every question about memory is answered below
    reserved, free = [100.0], [1000.0]
    monkeypatch.setattr(lanes, "_reserved", lambda: reserved[0])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[0], 2000.0))
    lanes.taken_before = 100
    assert lanes._room(1)
    lanes.lanes.append(_lane(epochs=together.WARM_UP))
    assert not lanes._room(1)  # it may not have captured its last kind of step yet
    lanes.lanes[0] = _lane(epochs=together.WARM_UP + 1)
    reserved[0], free[0] = 400.0, 700.0
    assert lanes._room(1)  # each takes 300; 360 are free
    lanes.lanes.append(_lane(epochs=0))
    assert lanes._room(1)  # 300 of the 700 are promised: 400 are left
    lanes.lanes.append(_lane(epochs=0))
    assert not lanes._room(1)


def test_joined_runs_are_admitted_together_or_not_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = Place(Store.open(tmp_path), device="cpu", joined=4)
    configs = [config(seed=seed) for seed in range(12)]
    lanes = together._Lanes(Told(configs, place), 9)  # type: ignore[arg-type]
    assert list(lanes.waiting) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    lanes._admit()
    assert [lane.index for lane in lanes.lanes] == list(range(8))  # the third four would make twelve
    lanes.device = torch.device("cuda")
    monkeypatch.setattr(lanes, "_reserved", lambda: 1300.0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[0], 2000.0))
    lanes.taken_before, lanes.limit, free = 100, 12, [479.0]
    assert not lanes._room(4)
    lanes.lanes = [_lane(epochs=together.WARM_UP + 1) for _ in range(12)]
    lanes.limit = 20
    assert not lanes._room(4)  # each takes 100; 480 would do for four
    free[0] = 481.0
    assert lanes._room(4)


@pytest.mark.parametrize(
    ("joined", "at_once", "runs", "limit"),
    [(1, None, 40, 10), (2, None, 40, 10), (8, None, 40, 32), (8, 9, 40, 9), (5, None, 12, 12)],
)
def test_as_many_at_once_as_pay(
    joined: int, at_once: int | None, runs: int, limit: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(together._Lanes, "go", lambda self: seen.append(self.limit))
    go([config(seed=seed) for seed in range(runs)], tmp_path, joined=joined, at_once=at_once)
    assert seen == [limit]


def test_nobody_joins_after_a_signal(tmp_path: Path) -> None:
    told = Told([config()] * 3, Place(Store.open(tmp_path), device="cpu"), Stop(minutes=0))
    lanes = together._Lanes(told, 2)  # type: ignore[arg-type]
    lanes._admit()
    assert not lanes.lanes


def _lane(epochs: int) -> together.Lane:
    counter = together._Counting(Silent())
    counter.epochs = epochs
    return together.Lane(0, None, None, counter, Team(1, "eager").members[0])  # type: ignore[arg-type]


def test_a_run_of_another_process_is_left_out_where_somebody_is_told(tmp_path: Path) -> None:
    configs, told = [config(seed=seed) for seed in range(3)], []
    with Store.open(tmp_path).lock(canonical_config(configs[1])):
        found = go(configs, tmp_path, at_once=2, busy=lambda index, error: told.append((index, error.run)))
        assert [None if record is None else record.status for record in found] == ["done", None, "done"]
        assert told == [(1, config_id(canonical_config(configs[1])))]
        with pytest.raises(BusyError, match="working on it; wait for it or stop it"):
            go(configs, tmp_path, at_once=2)
