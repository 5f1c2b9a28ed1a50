"""Joined runs when something goes wrong: nobody waits for ever, nothing half done is kept, memory comes back."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rcad.errors import InputError
from rcad.runs.config import RunConfig
from rcad.runs.configure import configure
from rcad.runs.record import RunRecord
from rcad.runs.store import Store
from rcad.train import one_gpu as together
from rcad.train import run as execution
from rcad.train.checkpoint import load_tensors
from rcad.train.joined import JoinedUpdate, Team
from rcad.train.loop import Trainer
from rcad.train.one_gpu import in_groups
from rcad.train.place import Place
from rcad.train.progress import Progress, Silent, Tracker
from rcad.train.run import canonical_config, run
from side_by_side import Listening, Stopping, run_together

PATIENCE_S = 20


def config(seed: int, epochs: int = 2, **train: Any) -> RunConfig:
    made = configure({"name": "digits[:60]"}, [("rcad", ())], recipe="small", epochs=epochs, seed=seed)
    return replace(made, train=replace(made.train, batch_size=16, **train))


def go(configs: Sequence[RunConfig], folder: Path, joined: int = 3, **options: Any) -> list[RunRecord | None]:
    place = Place(Store.open(folder), device="cpu", checkpoint_seconds=options.pop("seconds", 15.0), joined=joined)
    with _not_for_ever():
        return run_together(configs, place, **options)


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
    assert record is not None
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


def test_nobody_waits_for_a_seat_whose_run_was_never_made(tmp_path: Path) -> None:
    def trackers(config: RunConfig) -> Sequence[Tracker]:
        if config.seed == 1:
            raise InputError("expected a folder, but got none")
        return ()

    with pytest.raises(InputError, match="a folder"):
        go([config(seed) for seed in range(3)], tmp_path, trackers_of=trackers)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("when", ["started", "epoch"])
def test_nobody_waits_for_a_run_that_cannot_be_reached(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as after a third Ctrl-C, which may come between two runs, or before one has begun."""
    queue, failed = together.Lane.queue, []

    def broken(lane: together.Lane) -> Any:
        if failed and lane.index == 2:
            raise RuntimeError("no device")
        return queue.fget(lane)  # type: ignore[attr-defined]

    def fails(*args: Any) -> None:
        failed.append(when)
        raise InputError("expected a disk, but got none")

    failing = Listening()
    monkeypatch.setattr(failing, when, fails)
    monkeypatch.setattr(together.Lane, "queue", property(broken))
    with pytest.raises(InputError, match="a disk"):
        go([config(seed) for seed in range(3)], tmp_path, progress_of=lambda i: failing if i == 1 else Silent())
    assert len(checkpoints(tmp_path)) == 1


def test_a_step_that_ctrl_c_breaks_off_is_not_taken_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow, steps = JoinedUpdate.follow, []

    def interrupted(self: JoinedUpdate) -> None:
        steps.append(0)
        if len(steps) == 3:
            raise KeyboardInterrupt
        follow(self)

    configs = [config(seed) for seed in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(JoinedUpdate, "follow", interrupted)
        with pytest.raises(KeyboardInterrupt):
            go(configs, tmp_path / "a")
    assert len(steps) == 3
    assert not checkpoints(tmp_path / "a")
    assert equal(tmp_path / "a", go(configs, tmp_path / "a"), tmp_path / "b", go(configs, tmp_path / "b"))


def test_a_signal_while_some_are_being_saved_stops_all_after_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, saved = execution.save_trainer, []

    def saving(trainer: Trainer, path: Path) -> None:
        save(trainer, path)
        saved.append(trainer.config.seed)
        if len(saved) == 4:  # the first of three has been saved for the second time
            os.kill(os.getpid(), signal.SIGINT)

    configs = [config(seed) for seed in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(execution, "save_trainer", saving)
        patch.setattr(execution, "SAVING_SHARE", 1e9)
        stopped = go(configs, tmp_path / "a", seconds=0.0)
    assert [record and record.status for record in stopped] == ["interrupted"] * 3
    assert [(meta["epoch"], meta["step"]) for _, meta in checkpoints(tmp_path / "a")] == [(0, 3)] * 3
    resumed = go(configs, tmp_path / "a")
    assert engines(resumed) == ["eager, 3 joined, 3 runs at once"] * 3
    assert equal(tmp_path / "a", resumed, tmp_path / "b", go(configs, tmp_path / "b"))


def test_who_is_the_only_one_left_is_as_if_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    configs = [config(seed) for seed in range(3)]
    alone = [run(one, Place(Store.open(tmp_path / "b"), device="cpu")) for one in configs]
    for one in configs[:2]:
        run(one, Place(Store.open(tmp_path / "a"), device="cpu"))
    records = go(configs, tmp_path / "a")
    assert engines(records) == ["eager", "eager", "eager, 3 runs at once"]
    assert equal(tmp_path / "a", records, tmp_path / "b", alone)
    assert not caplog.records  # nothing that anybody could mend


def test_done_interrupted_busy_and_new_ones_together(tmp_path: Path) -> None:
    configs, told = [config(seed) for seed in range(5)], []
    run(configs[0], Place(Store.open(tmp_path), device="cpu"))
    run(configs[1], Place(Store.open(tmp_path), device="cpu"), Stopping(0.5))
    with Store.open(tmp_path).lock(canonical_config(configs[2])):
        records = go(configs, tmp_path, joined=5, busy=lambda index, error: told.append(index))
    assert [record and record.status for record in records] == ["done", "done", None, "done", "done"]
    assert told == [2]


@pytest.mark.parametrize("short", [False, True])
def test_who_stands_elsewhere_goes_alone(short: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One record was removed while the runs were stopped; the others may even find no memory."""
    configs = [config(seed) for seed in range(4)]
    straight = go(configs, tmp_path / "b", joined=4)
    stopped = go(configs, tmp_path / "a", joined=4, progress_of=lambda i: Stopping(0.5) if i == 0 else Silent())
    assert stopped[2] is not None
    shutil.rmtree(tmp_path / "a" / stopped[2].id)
    if short:

        def too_large(self: Any, runs: Any) -> None:
            raise torch.OutOfMemoryError("no memory")

        monkeypatch.setattr(JoinedUpdate, "__init__", too_large)
    resumed = go(configs, tmp_path / "a", joined=4)
    alone = run(configs[2], Place(Store.open(tmp_path / "c"), device="cpu"))
    if short:
        assert engines(resumed) == ["eager", "eager", "eager, 4 runs at once", "eager"]
    else:
        joined = "eager, 3 joined, 4 runs at once"
        assert engines(resumed) == [joined, joined, "eager, 4 runs at once", joined]
    assert equal(tmp_path / "a", resumed[2:3], tmp_path / "c", [alone])
    for one, other in zip(resumed, straight, strict=True):
        its = weights(tmp_path / "b", other)
        for name, value in weights(tmp_path / "a", one).items():
            torch.testing.assert_close(value, its[name], rtol=1e-3, atol=1e-5)


def test_a_record_says_that_its_run_is_to_be_joined(tmp_path: Path) -> None:
    found = []

    class Looking(Listening):
        def started(self) -> None:
            (record,) = Store.open(tmp_path).records()
            found.append((record.status, record.resolved["engine"]))

    records = go([config(seed, epochs=1) for seed in range(3)], tmp_path, progress_of=lambda i: _first(i, Looking()))
    assert found == [("running", "eager, 3 to be joined, 3 runs at once")]
    assert engines(records) == ["eager, 3 joined, 3 runs at once"] * 3


def _first(index: int, progress: Progress) -> Progress:
    return Silent() if index else progress


@pytest.mark.parametrize("joined", [1, 2])
def test_what_has_ended_takes_no_memory(joined: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor waits for the collector of cycles, which knows nothing of a GPU's memory."""
    init, made, alive = Trainer.__init__, [], []

    def noted(self: Trainer, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        made.append(weakref.ref(self.model))

    monkeypatch.setattr(Trainer, "__init__", noted)
    configs = [config(seed, epochs=1) for seed in range(4)]
    gc.collect()
    gc.disable()
    try:
        go(configs, tmp_path, joined, at_once=2, ended=lambda i, r: alive.append(sum(m() is not None for m in made)))
        left = sum(model() is not None for model in made)
    finally:
        gc.enable()
    assert (len(made), left) == (4, 0)
    assert max(alive) <= 2


def test_a_team_that_runs_out_of_memory_late_disturbs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples, steps = JoinedUpdate.examples, []

    def too_large(self: JoinedUpdate, index: torch.Tensor) -> Any:
        if self.members[0].config.seed == 0:
            steps.append(0)
            if len(steps) == 5:
                raise torch.OutOfMemoryError("no memory")
        return examples(self, index)

    configs = [config(seed) for seed in range(5)]
    alone = [run(one, Place(Store.open(tmp_path / "b"), device="cpu")) for one in configs]
    undisturbed = go(configs[2:4], tmp_path / "c", joined=2)
    monkeypatch.setattr(JoinedUpdate, "examples", too_large)
    records = go(configs, tmp_path / "a", joined=2, at_once=5)
    assert [words.split(", ")[1] for words in engines(records)] == ["3 runs at once"] * 2 + ["2 joined"] * 2 + [
        "5 runs at once"
    ]
    for i in (0, 1, 4):
        assert equal(tmp_path / "a", records[i : i + 1], tmp_path / "b", alone[i : i + 1])
    assert equal(tmp_path / "a", records[2:4], tmp_path / "c", undisturbed)


def test_those_who_found_no_memory_joined_go_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else was there: they were too many for one network, not for the device."""

    def too_large(self: Any, runs: Any) -> None:
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(JoinedUpdate, "__init__", too_large)
    records = go([config(seed, epochs=1) for seed in range(3)], tmp_path)
    assert engines(records) == ["eager, 3 runs at once"] * 3


def test_files_of_joined_runs_have_the_form_of_others(tmp_path: Path) -> None:
    configs = [config(seed, ema=0.9, channels_last=True) for seed in range(3)]
    go(configs, tmp_path / "a", progress_of=lambda index: Stopping(1.5) if index == 0 else Silent())
    for one in configs:
        run(one, Place(Store.open(tmp_path / "b"), device="cpu"), Stopping(1.5))
    joined, alone = checkpoints(tmp_path / "a"), checkpoints(tmp_path / "b")
    assert len(joined) == 3
    for (tensors, meta), (others, its) in zip(joined, alone, strict=True):
        assert _form(tensors) == _form(others)
        assert meta.keys() == its.keys()
        assert (meta["epoch"], meta["step"]) == (its["epoch"], its["step"]) == (1, 2)
        torch.testing.assert_close(tensors["sums"], others["sums"], rtol=1e-4, atol=0.0)
        assert torch.equal(tensors["rng.noise"], others["rng.noise"])
    records = go(configs, tmp_path / "a")
    for one, record in zip(configs, records, strict=True):
        single = run(one, Place(Store.open(tmp_path / "b"), device="cpu"))
        assert _form(weights(tmp_path / "a", record)) == _form(weights(tmp_path / "b", single))
        assert record is not None
        assert [row.keys() for row in record.epochs] == [row.keys() for row in single.epochs]
        assert record.resolved["model"] == single.resolved["model"]  # no padding counts as a parameter
    files = [{path.relative_to(folder) for path in folder.rglob("*")} for folder in (tmp_path / "a", tmp_path / "b")]
    assert files[0] == files[1]


def _form(tensors: dict[str, torch.Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (value.shape, value.dtype) for name, value in tensors.items()}


def test_all_teams_say_once_why_they_are_not_joined(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    configs = [replace(config(seed, epochs=1), method=(("me_ada", ()),)) for seed in range(4)]
    records = go(configs, tmp_path, joined=2)
    assert engines(records) == ["eager, 4 runs at once"] * 4
    assert len(caplog.records) == 1


def test_alike_are_those_that_differ_in_seeds_alone() -> None:
    one = config(0)
    split = [replace(one, seed=seed, data=replace(one.data, seed=seed + 7)) for seed in (0, 1)]
    other = [replace(one, data=replace(one.data, name="digits[:70]")), config(1, epochs=3), config(1, ema=0.9)]
    assert in_groups([one, *other, *split, config(1)], 5) == [[0, 4, 5, 6], [1], [2], [3]]


@pytest.mark.parametrize(("joined", "at_once", "limit"), [(1, None, 10), (5, None, 20), (5, 7, 7), (5, 50, 30)])
def test_how_many_at_once(
    joined: int, at_once: int | None, limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(together._Lanes, "go", lambda self: seen.append(self.limit))
    go([config(seed) for seed in range(30)], tmp_path, joined, at_once=at_once)
    assert seen == [limit]


def test_no_more_are_joined_than_go_at_once(tmp_path: Path) -> None:
    records = go([config(seed, epochs=1) for seed in range(3)], tmp_path, joined=3, at_once=2)
    assert engines(records) == ["eager, 2 joined, 2 runs at once"] * 2 + ["eager, 2 runs at once"]


def test_joined_runs_are_launched_in_one_queue() -> None:
    own, common = nullcontext(), nullcontext()
    team = Team(2, "eager")
    lane = together.Lane(0, None, own, None, team.members[0])  # type: ignore[arg-type]
    assert lane.queue is own
    team.queue = common
    assert lane.queue is common


def test_as_many_as_none_cannot_be_joined(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="joined"):
        go([config(0), config(1)], tmp_path, joined=0)
