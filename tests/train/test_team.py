"""Runs that take their steps together are the runs they would be alone, up to the rounding of grouped layers."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rcad.runs.config import RunConfig
from rcad.train import cuda_graph as captured
from rcad.train.checkpoint import restore_trainer, save_trainer
from rcad.train.joined import Team
from rcad.train.loop import Trainer
from rcad.train.machine import deterministic, side_stream
from rcad.train.place import Engine
from rcad.train.step import Plan, Stepper
from tiny_runs import CPU, ROUNDED, ROUNDED_LOSS, config, distance, trainer

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
Pause = Callable[[], bool]


def seated(
    settings: RunConfig, seeds: Sequence[int], device: torch.device = CPU, engine: Engine = "eager"
) -> tuple[Team, list[Trainer], list[AbstractContextManager[Any]]]:
    team, queues = Team(len(seeds), engine), [side_stream(device) for _ in seeds]
    runs = []
    for seed, member, queue in zip(seeds, team.members, queues, strict=True):
        with queue:
            runs.append(trainer(replace(settings, seed=seed), device, engine, member))
    return team, runs, queues


def go(
    team: Team,
    runs: Sequence[Trainer],
    queues: Sequence[AbstractContextManager[Any]],
    pauses: Sequence[Pause] | None = None,
) -> list[str]:
    """All of them in turns to their ends; what each said."""
    courses = [run.course(*([] if pauses is None else [pauses[i]])) for i, run in enumerate(runs)]
    ends = [""] * len(runs)
    while not all(ends):
        for i, (course, member, queue) in enumerate(zip(courses, team.members, queues, strict=True)):
            if ends[i]:
                continue
            try:
                with member.queue or queue:
                    next(course)
            except StopIteration as end:
                ends[i] = end.value
                member.leave()
    return ends


KINDS = {
    "erm": config("erm"),
    "rcad": config("rcad", channels_last=True),
    "every": config("every3", accumulate=2),
    "mixed": config("data_augmentation + mixup + rcad_random", ema=0.9, accumulate=3),
    "released": config("rcad_released", selection="last"),
    "twice": config("rcad + confidence_penalty"),
    "adamw": config("cutmix + rcad", optim="adamw"),
}


def wide(settings: RunConfig) -> RunConfig:
    """With as many channels as joining takes on a GPU."""
    return replace(settings, model=replace(settings.model, width=16))


RESNET = config("rcad", model="resnet18", channels_last=True)  # where a map has one pixel, rounding grows too fast


@pytest.mark.parametrize("engine", ["eager", "graph"])
@pytest.mark.parametrize("name", KINDS)
def test_each_run_is_as_if_alone(name: str, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "WARM_UP", 10**9)  # never captures, so it needs no GPU
    team, runs, queues = seated(KINDS[name], (0, 1, 2), engine=engine)
    assert go(team, runs, queues) == ["done"] * 3
    assert runs[0].stepper.name == f"{engine}, 3 joined"
    for seed, run in enumerate(runs):
        alone = trainer(replace(KINDS[name], seed=seed))
        alone.fit()
        assert distance(run, alone) < 2e-5
        assert run.best_epoch == alone.best_epoch
        for one, other in zip(run.rows, alone.rows, strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
            assert one["accuracy"] == other["accuracy"]
            assert one["lr"] == other["lr"]
        if alone.average is not None:
            assert run.average is not None
            for mine, its in zip(run.average.parameters(), alone.average.parameters(), strict=True):
                torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-5)
    assert distance(runs[0], runs[1]) > 0.01


def test_a_run_that_diverges_takes_nobody_with_it() -> None:
    settings = config("rcad")
    team, runs, queues = seated(settings, (0, 1, 2))
    with torch.no_grad():
        next(runs[1].model.parameters()).fill_(torch.nan)
    assert go(team, runs, queues) == ["done", "diverged", "done"]
    assert len(runs[1].rows) == 1
    for seed in (0, 2):
        alone = trainer(replace(settings, seed=seed))
        alone.fit()
        assert distance(runs[seed], alone) < 2e-5


def test_one_that_has_had_enough_keeps_its_weights() -> None:
    settings = config("erm", selection="last")
    team, runs, queues = seated(settings, (0, 1))
    runs[0]._out_of_patience = lambda: runs[0].epoch == 3  # type: ignore[method-assign]
    kept = []
    leave = team.members[0].leave

    def leaving() -> None:
        kept.append({name: value.clone() for name, value in runs[0].model.state_dict().items()})
        leave()

    team.members[0].leave = leaving  # type: ignore[method-assign]
    assert go(team, runs, queues) == ["done", "done"]
    assert [len(run.rows) for run in runs] == [3, 5]
    alone = trainer(replace(settings, seed=0))
    alone._out_of_patience = lambda: alone.epoch == 3  # type: ignore[method-assign]
    alone.fit()
    for name, value in alone.model.state_dict().items():
        torch.testing.assert_close(kept[0][name], value, rtol=1e-4, atol=1e-5)
    other = trainer(replace(settings, seed=1))
    other.fit()
    assert distance(runs[1], other) < 2e-5


def test_they_pause_after_the_same_step_and_go_on_as_if_they_had_not(tmp_path: Path) -> None:
    settings = config("data_augmentation + rcad")
    asked = []

    def pause(run: int) -> Pause:
        def wanted() -> bool:
            asked.append(run)
            return (asked.count(0) == 4, True, False)[run]  # the first to ask decides

        return wanted

    team, runs, queues = seated(settings, (0, 1, 2))
    assert go(team, runs, queues, [pause(run) for run in range(3)]) == ["interrupted"] * 3
    assert {(run.epoch, run.step) for run in runs} == {(0, 4)}
    for i, run in enumerate(runs):
        save_trainer(run, tmp_path / f"{i}.safetensors")
    team, resumed, queues = seated(settings, (0, 1, 2))
    for i, run in enumerate(resumed):
        restore_trainer(run, tmp_path / f"{i}.safetensors")
    assert go(team, resumed, queues) == ["done"] * 3
    assert resumed[0].stepper.name == "eager, 3 joined"
    team, straight, queues = seated(settings, (0, 1, 2))
    assert go(team, straight, queues) == ["done"] * 3
    for one, other in zip(resumed, straight, strict=True):
        assert distance(one, other) == 0.0


@pytest.mark.parametrize("why", ["places", "growth", "sizes", "methods", "model"])
def test_those_that_do_not_fit_go_each_by_itself(why: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = config("grow" if why == "growth" else "rcad")
    team, runs, queues = seated(settings, (0, 1))
    words = {
        "places": "stand at the same step",
        "growth": "these grow",
        "sizes": "of one size",
        "methods": "of one method",
        "model": "without dropout",
    }
    if why == "places":
        runs[0].epoch = 1
    elif why == "sizes":
        runs[0].x, runs[0].y = runs[0].x[:-2], runs[0].y[:-2]
        runs[0].stepper.update.x, runs[0].stepper.update.y = runs[0].x, runs[0].y
        runs[0].problem = replace(runs[0].problem, train=(runs[0].x, runs[0].y))
    elif why == "methods":
        team.members[0].update.method = trainer(config("erm")).method
    elif why == "model":
        for run in runs:
            run.model.dropout.p = 0.5  # type: ignore[union-attr]
    with caplog.at_level(logging.WARNING, "rcad"):
        assert go(team, runs, queues) == ["done"] * 2
    assert [words[why] in record.message for record in caplog.records if "not joined" in record.message] == [True]
    assert runs[0].stepper.name == "eager"
    if why in ("places", "growth"):
        alone = trainer(replace(settings, seed=1))
        alone.fit()
        assert distance(runs[1], alone) == 0.0


PLACES = {
    "one behind": ((1, 1, 0), ("eager, 2 joined", "eager, 2 joined", "eager")),
    "two teams": ((0, 2, 0, 2), ("eager, 2 joined",) * 4),
    "each elsewhere": ((0, 1, 2), ("eager",) * 3),
}


@pytest.mark.parametrize("name", PLACES)
def test_those_at_the_same_step_join(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for one that stands elsewhere, and nobody is trained from where another stands."""
    settings, (places, engines) = config("rcad", epochs=3), PLACES[name]
    team, runs, queues = seated(settings, range(len(places)))
    for run, epoch in zip(runs, places, strict=True):
        run.epoch = epoch
    assert go(team, runs, queues) == ["done"] * len(runs)
    assert tuple(run.stepper.name for run in runs) == engines
    assert [record.message.partition(":")[0] for record in caplog.records] == ["some runs are not joined"]
    for seed, (run, epoch, engine) in enumerate(zip(runs, places, engines, strict=True)):
        alone = trainer(replace(settings, seed=seed))
        alone.epoch = epoch
        alone.fit()
        assert len(run.rows) == 3 - epoch
        assert distance(run, alone) < (2e-5 if "joined" in engine else 1e-300)


def test_nobody_learns_at_the_rate_of_another() -> None:
    settings = config("erm", epochs=2)
    team, runs, queues = seated(settings, range(3))
    slower = replace(settings, seed=1, optim=replace(settings.optim, lr=0.01))
    runs[1].config = slower
    assert go(team, runs, queues) == ["done"] * 3
    assert [run.stepper.name for run in runs] == ["eager, 2 joined", "eager", "eager, 2 joined"]
    alone = trainer(slower)
    alone.fit()
    assert distance(runs[1], alone) == 0.0


def test_teams_that_have_parted_say_once_why_they_are_not_joined(caplog: pytest.LogCaptureFixture) -> None:
    team, runs, queues = seated(config("grow", epochs=2), range(4))
    runs[0].epoch = runs[2].epoch = 1
    assert go(team, runs, queues) == ["done"] * 4
    said = [record.message.partition(":")[0] for record in caplog.records]
    assert said == ["some runs are not joined", "the runs are not joined"]


def test_teams_that_have_parted_pause_apart() -> None:
    team, runs, queues = seated(config("rcad", epochs=3), range(4))
    runs[0].epoch = runs[2].epoch = 1
    pauses = [lambda i=i: i == 0 for i in range(4)]  # type: ignore[misc]
    assert go(team, runs, queues, pauses) == ["interrupted", "done", "interrupted", "done"]
    assert [(run.epoch, run.step) for run in runs] == [(1, 1), (3, 0)] * 2


def test_teams_that_have_parted_fail_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    team, runs, _ = seated(config("rcad", epochs=3), range(4))
    runs[0].epoch = runs[2].epoch = 1
    courses = [run.course() for run in runs]
    for course in courses * 2:
        next(course)
    one, other = team.members[0].team, team.members[1].team
    assert (one.members, other.members) == (team.members[::2], team.members[1::2])

    def fails(*args: Any) -> None:
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(one._stepper, "step", fails)
    next(courses[0])
    for course in courses[::-2]:
        next(course)
    with pytest.raises(torch.OutOfMemoryError):
        next(courses[2])
    assert (one.failed, other.failed) == (True, False)
    taken = other.taken
    for course in courses[1::2] * 2:
        next(course)
    assert other.taken > taken


@pytest.mark.usefixtures("_without_collector")
def test_who_had_left_before_the_others_parted_takes_no_memory() -> None:
    team, runs, _ = seated(config("rcad", epochs=2), range(3))
    runs[2].epoch = 1
    model = weakref.ref(runs[0].model)
    team.members[0].leave()  # another process has finished it
    del runs[0]
    courses = [run.course() for run in runs]
    for course in courses * 2:
        next(course)
    assert model() is None
    assert [member.name for member in team.members[1:]] == ["eager", "eager"]


def test_what_is_to_come_has_a_name() -> None:
    team, runs, _ = seated(config("erm"), range(3))
    assert runs[0].stepper.name == "eager, 3 to be joined"
    team.members[2].leave()
    assert runs[0].stepper.name == "eager, 2 to be joined"
    assert Team(1, "graph").members[0].name == "graph"


def test_an_epoch_begins_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, begun = Stepper.begin, []

    def noted(self: Stepper, order: Tensor, rates: Sequence[float], first: Plan) -> None:
        begun.append((order.shape[0], first.turn, first.number))
        begin(self, order, rates, first)

    monkeypatch.setattr(Stepper, "begin", noted)
    team, runs, queues = seated(config("erm", epochs=2), (0, 1, 2))
    go(team, runs, queues)
    assert begun == [(3, 0, 0), (3, 0, runs[0]._batches())]


def test_why_runs_are_not_joined_is_said_once_for_all(caplog: pytest.LogCaptureFixture) -> None:
    said: set[str] = set()
    for _ in range(2):
        team = Team(2, "eager", said=said)
        runs = [trainer(replace(config("grow", epochs=1), seed=seed), member=team.members[seed]) for seed in (0, 1)]
        go(team, runs, [side_stream(CPU) for _ in runs])
    assert [record.message.partition(":")[0] for record in caplog.records] == ["the runs are not joined"]


def test_those_who_never_come_are_not_waited_for() -> None:
    settings = config("rcad")
    team = Team(3, "eager")
    team.members[1].leave()  # its record was there already
    runs = [trainer(replace(settings, seed=seed), member=team.members[seed]) for seed in (0, 2)]
    courses = [run.course() for run in runs]
    for _ in range(3):
        for course in courses:
            next(course)
    assert team.taken == 3
    assert runs[0].stepper.name == "eager, 2 joined"


def test_after_a_failed_step_nobody_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    team, runs, _ = seated(config("rcad"), (0, 1))
    courses = [run.course() for run in runs]
    for course in courses:
        next(course)

    def fails(*args: Any) -> None:
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(team._stepper, "step", fails)
    next(courses[0])
    with pytest.raises(torch.OutOfMemoryError):
        next(courses[1])
    team.members[1].leave()
    with pytest.raises(torch.OutOfMemoryError):
        next(courses[0])


class Large:
    """Something that takes memory."""


@pytest.fixture
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_without_collector")
def test_what_a_failed_step_held_goes_with_those_who_took_it(monkeypatch: pytest.MonkeyPatch) -> None:
    team, runs, _ = seated(config("rcad"), (0, 1))
    courses, held = [run.course() for run in runs], []
    for course in courses:
        next(course)

    def fails(*args: Any) -> None:
        large = Large()
        held.append(weakref.ref(large))
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(team._stepper, "step", fails)
    next(courses[0])
    for member, course in zip(reversed(team.members), reversed(courses), strict=True):
        try:
            next(course)
        except torch.OutOfMemoryError:
            member.leave()
    assert [large() for large in held] == [None]


@pytest.mark.usefixtures("_without_collector")
def test_runs_by_themselves_let_go_one_by_one() -> None:
    team, runs, _ = seated(config("grow"), (0, 1))
    courses = [run.course() for run in runs]
    for course in courses * 2:
        next(course)
    assert team.apart
    model = weakref.ref(runs[0].model)
    courses[0].close()
    team.members[0].leave()
    del runs[0], courses[0], course
    assert model() is None
    next(courses[0])


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("settings", [*KINDS.values(), RESNET], ids=[*KINDS, "resnet"])
def test_capture_changes_nothing(settings: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joined steps with and without capture, bit for bit."""
    cuda, made = torch.device("cuda"), []
    with deterministic(True, cuda):
        for captures in (True, False):
            with monkeypatch.context() as patch:
                if not captures:
                    patch.setattr(captured.Captured, "_capture", lambda *args: None)
                team, runs, queues = seated(wide(settings), (0, 1, 2), cuda, "graph")
                assert go(team, runs, queues) == ["done"] * 3
            made.append(runs)
        torch.cuda.synchronize()
    assert made[0][0].stepper.name == "graph, 3 joined"
    for one, other in zip(*made, strict=True):
        assert distance(one, other) == 0.0
        assert [row["loss"] for row in one.rows] == [row["loss"] for row in other.rows]


@pytest.mark.gpu
@needs_gpu
def test_those_at_the_same_step_join_on_a_gpu() -> None:
    cuda, places = torch.device("cuda"), (1, 0, 1, 2)
    settings = wide(config("rcad", epochs=4))
    with deterministic(True, cuda):
        team, runs, queues = seated(settings, range(4), cuda, "graph")
        for run, epoch in zip(runs, places, strict=True):
            run.epoch = epoch
        assert go(team, runs, queues) == ["done"] * 4
        alone = []
        for seed, epoch in enumerate(places):
            with side_stream(cuda):
                alone.append(trainer(replace(settings, seed=seed), cuda, "graph"))
                alone[-1].epoch = epoch
                assert alone[-1].fit() == "done"
        torch.cuda.synchronize()
    assert [run.stepper.name for run in runs] == ["graph, 2 joined", "graph", "graph, 2 joined", "graph"]
    assert [len(run.rows) for run in runs] == [3, 4, 3, 2]
    far = [distance(run, other) for run, other in zip(runs, alone, strict=True)]
    assert far[1] == far[3] == 0.0
    assert max(far) < 0.02


@pytest.mark.gpu
@needs_gpu
def test_who_the_others_are_changes_nothing() -> None:
    """The same run in the same place of teams with other mates, one of them lost; places sum in other orders."""
    cuda = torch.device("cuda")
    settings = wide(config("data_augmentation + rcad", model="resnet18", channels_last=True, precision="bf16"))
    with deterministic(True, cuda):
        teams = []
        for seeds, lost in (((1, 0, 2), False), ((3, 0, 4), False), ((1, 0, 2), True)):
            team, runs, queues = seated(settings, seeds, cuda, "graph")
            if lost:
                with torch.no_grad():
                    next(runs[0].model.parameters()).fill_(torch.nan)
            assert go(team, runs, queues) == ["diverged" if lost else "done", "done", "done"]
            teams.append(runs)
        torch.cuda.synchronize()
    assert distance(teams[0][1], teams[1][1]) == 0.0
    assert distance(teams[0][0], teams[1][0]) > 0.01
    assert distance(teams[0][1], teams[2][1]) == 0.0


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("engine", ["graph", "compile"])
def test_bf16_over_fifty_steps(engine: Engine) -> None:
    """Joined against alone; a repeated lone run says how far apart equals may be."""
    torch._dynamo.reset()
    cuda = torch.device("cuda")
    settings = wide(config("rcad", "resnet18", precision="bf16", channels_last=True, epochs=10))
    with deterministic(False, cuda):
        alone = []
        for seed in (0, 0, 1):
            with side_stream(cuda):
                alone.append(trainer(replace(settings, seed=seed), cuda, "graph"))
                assert alone[-1].fit() == "done"
        team, runs, queues = seated(settings, (0, 1), cuda, engine)
        assert go(team, runs, queues) == ["done"] * 2
        torch.cuda.synchronize()
    spread = distance(alone[1], alone[0])
    apart = [distance(runs[0], alone[0]), distance(runs[1], alone[2])]
    print(f"\n{engine}: joined {apart[0]:.2e} and {apart[1]:.2e} from alone; alone from itself {spread:.2e}")
    assert runs[0].stepper.name == ("graph, compiled, 2 joined" if engine == "compile" else "graph, 2 joined")
    assert max(spread, *apart) < ROUNDED
    for run, other in zip(runs, (alone[0], alone[2]), strict=True):
        assert run.rows[-1]["loss"] == pytest.approx(other.rows[-1]["loss"], rel=ROUNDED_LOSS)
