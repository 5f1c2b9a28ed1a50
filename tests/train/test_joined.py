"""Runs that take their steps together are the runs they would be alone, up to the rounding of grouped layers."""

import functools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import tiny_runs
from rcad.data.dataset import Dataset, Split
from rcad.runs.config import RunConfig
from rcad.train import cuda_graph as captured
from rcad.train.joined import JoinedUpdate
from rcad.train.loop import Trainer
from rcad.train.machine import deterministic, side_stream
from tiny_runs import KINDS, ROUNDED, ROUNDED_LOSS, config, distance, finish, team_of, trainer


def wide(settings: RunConfig) -> RunConfig:
    """With as many channels as joining takes on a GPU."""
    return replace(settings, model=replace(settings.model, width=16))


@functools.cache
def alone(settings: RunConfig, seed: int, epoch: int = 0) -> Trainer:
    """The same run by itself, from that epoch to its end. Nobody changes it: tests share it."""
    run = trainer(replace(settings, seed=seed))
    run.epoch = epoch
    run.fit()
    return run


@pytest.mark.parametrize("name", KINDS)
def test_each_run_is_as_if_alone(name, monkeypatch):
    monkeypatch.setattr(captured, "WARM_UP", 10**9)  # never captures, so it needs no GPU
    settings = replace(KINDS[name], train=replace(KINDS[name].train, epochs=2))
    others = [alone(settings, seed) for seed in range(2)]
    assert name != "measured" or others[0].method != others[1].method  # seeds hold out other examples
    for engine in ("eager", "graph"):
        team, runs = team_of(settings, range(2), engine=engine)
        assert finish(team) == ["done"] * 2
        assert runs[0].stepper.name == f"{engine}, 2 joined"
        same_up_to_rounding(runs, others)


def same_up_to_rounding(runs: Sequence[Trainer], others: Sequence[Trainer]) -> None:
    for run, other in zip(runs, others, strict=True):
        assert distance(run, other) < 2e-5
        assert run.best_epoch == other.best_epoch
        for one, its in zip(run.rows, other.rows, strict=True):
            assert one["loss"] == pytest.approx(its["loss"], rel=1e-4)
            assert one.keys() == its.keys()
            assert (one.get("accuracy"), one["lr"]) == (its.get("accuracy"), its["lr"])
        if other.average is not None:
            averages = [list(one.average.parameters()) for one in (run, other)]
            torch.testing.assert_close(*averages, rtol=1e-4, atol=1e-5)
    assert distance(runs[0], runs[1]) > 0.01


def test_accumulated_batches_count_by_their_examples(monkeypatch):
    """80 examples as 80 and as 30 + 30 + 20, without BatchNorm, which tells them apart."""
    monkeypatch.setattr(captured, "WARM_UP", 10**9)
    whole, parts = (config("rcad", epochs=2, batch_size=size, accumulate=count) for size, count in ((80, 1), (30, 3)))
    whole, parts = (replace(one, model=replace(one.model, norm="group")) for one in (whole, parts))
    others = [alone(whole, seed) for seed in range(2)]
    same_up_to_rounding([alone(parts, seed) for seed in range(2)], others)
    for engine in ("eager", "graph"):
        team, runs = team_of(parts, range(2), engine=engine)
        finish(team)
        same_up_to_rounding(runs, others)


def test_real_targets_of_images(monkeypatch):
    x = np.random.default_rng(0).integers(0, 255, (60, 1, 8, 8)).astype(np.uint8)
    images = Dataset("images", "regression", Split(x, x.mean((1, 2, 3)).astype(np.float32)))
    monkeypatch.setattr(tiny_runs, "dataset", lambda: images)
    settings = config("rcad", epochs=2)
    team, runs = team_of(settings, range(2))
    finish(team)
    assert runs[0].stepper.name == "eager, 2 joined"
    same_up_to_rounding(runs, [alone(settings, seed) for seed in range(2)])


@pytest.mark.parametrize("method", ["rcad", "grow"])
def test_a_run_that_diverges_takes_nobody_with_it(method):
    settings = config(method)
    team, runs = team_of(settings, range(3))
    with torch.no_grad():
        next(runs[1].model.parameters()).fill_(torch.nan)
    assert finish(team) == ["done", "diverged", "done"]
    assert len(runs[1].rows) == 1
    for seed in (0, 2):
        assert distance(runs[seed], alone(settings, seed)) < 2e-5


@pytest.mark.parametrize("words", ["of one size", "of one method", "without dropout"])
def test_those_that_do_not_fit_go_each_by_itself(words, caplog):
    settings = config("rcad")
    team, runs = team_of(settings, range(2))
    first = runs[0].stepper.update
    if words == "of one size":
        first.x, first.y = runs[0].x, runs[0].y = runs[0].x[:-2], runs[0].y[:-2]
    elif words == "of one method":
        first.method = trainer(config("erm")).method
    else:
        for run in runs:
            run.model.dropout.p = 0.5  # type: ignore[union-attr]
    assert finish(team) == ["done"] * 2
    assert [words in message for message in caplog.messages if "not joined" in message] == [True]
    assert runs[0].stepper.name == "eager"
    assert words == "without dropout" or distance(runs[1], alone(settings, 1)) == 0.0


@pytest.mark.parametrize("places", [(1, 1, 0), (0, 2, 0, 2), (0, 1, 2)])
def test_those_at_the_same_step_join(places, caplog):
    """Nobody waits for one that stands elsewhere, and nobody is trained from where another stands."""
    settings = config("rcad", epochs=3)
    team, runs = team_of(settings, range(len(places)))
    for run, epoch in zip(runs, places, strict=True):
        run.epoch = epoch
    assert finish(team) == ["done"] * len(runs)
    assert [record.message.partition(":")[0] for record in caplog.records] == ["some runs are not joined"]
    for seed, (run, epoch) in enumerate(zip(runs, places, strict=True)):
        joins = places.count(epoch) == 2
        assert (run.stepper.name, len(run.rows)) == ("eager" + ", 2 joined" * joins, 3 - epoch)
        assert distance(run, alone(settings, seed, epoch)) < (2e-5 if joins else 1e-300)


def test_nobody_learns_at_the_rate_of_another():
    settings = config("erm", epochs=2)
    team, runs = team_of(settings, range(3))
    slower = runs[1].config = replace(settings, seed=1, optim=replace(settings.optim, lr=0.01))
    assert finish(team) == ["done"] * 3
    assert [run.stepper.name for run in runs] == ["eager, 2 joined", "eager", "eager, 2 joined"]
    assert distance(runs[1], alone(slower, 1)) == 0.0


def shifted(like: Tensor) -> Tensor:
    """Other numbers in the same memory order, not at the beginning of their storage."""
    return torch.randn(like.numel() + 5).as_strided(like.shape, like.stride(), 5)


@pytest.mark.parametrize(
    "drawn",  # as the weights lie, elsewhere, in another order, in bf16
    [torch.randn_like, shifted, lambda w: torch.randn(w.shape), lambda w: torch.randn_like(w).bfloat16()],
)
def test_each_run_gets_its_own_part(drawn):
    _, runs = team_of(config("rcad", model="resnet18", channels_last=True), range(3))
    update = JoinedUpdate([run.stepper.update for run in runs])
    weights = list(update.model.parameters())
    tensors = [drawn(weight).detach() for weight in weights]
    # What belongs to a run is what a step along the tensor changes in its weights.
    before = [[parameter.detach().clone() for parameter in own] for own in update.owned(weights)]
    with torch.no_grad():
        for weight, tensor in zip(weights, tensors, strict=True):
            weight += tensor
    for run, (own, parts) in enumerate(zip(update.owned(weights), update.split(weights, tensors), strict=True)):
        assert {id(parameter) for parameter in own} == {id(p) for p in update.members[run].model.parameters()}
        for parameter, old, part in zip(own, before[run], parts, strict=True):
            assert part.shape == parameter.shape
            torch.testing.assert_close(parameter, old + part)
    nothing: list[Tensor | None] = [None] * len(weights)
    assert update.split(weights, nothing) == [nothing] * 3


CUDA = torch.device("cuda")
RESNET = config("rcad", model="resnet18", channels_last=True)  # where a map has one pixel, rounding grows too fast


def alone_on_gpu(settings: RunConfig, seed: int, epoch: int = 0) -> Trainer:
    with side_stream(CUDA):
        run = trainer(replace(settings, seed=seed), CUDA, "graph")
        run.epoch = epoch
        assert run.fit() == "done"
        return run


@pytest.mark.gpu
@pytest.mark.parametrize("settings", [*KINDS.values(), RESNET], ids=[*KINDS, "resnet"])
def test_capture_changes_nothing(settings, monkeypatch):
    """Joined steps with and without capture, bit for bit."""
    made = []
    with deterministic(True, CUDA):
        for captures in (True, False):
            with monkeypatch.context() as patch:
                if not captures:
                    patch.setattr(captured.Captured, "_capture", lambda *args: None)
                team, runs = team_of(wide(settings), range(3), CUDA, "graph")
                assert finish(team) == ["done"] * 3
                assert team.settled == captures
            made.append(runs)
        torch.cuda.synchronize()
    assert made[0][0].stepper.name == "graph, 3 joined"
    for one, other in zip(*made, strict=True):
        assert distance(one, other) == 0.0
        assert [row["loss"] for row in one.rows] == [row["loss"] for row in other.rows]


@pytest.mark.gpu
def test_those_at_the_same_step_join_on_a_gpu():
    places, settings = (1, 0, 1, 2), wide(config("rcad", epochs=4))
    with deterministic(True, CUDA):
        team, runs = team_of(settings, range(4), CUDA, "graph")
        for run, epoch in zip(runs, places, strict=True):
            run.epoch = epoch
        assert finish(team) == ["done"] * 4
        others = [alone_on_gpu(settings, seed, epoch) for seed, epoch in enumerate(places)]
        torch.cuda.synchronize()
    assert [run.stepper.name for run in runs] == ["graph, 2 joined", "graph", "graph, 2 joined", "graph"]
    assert [len(run.rows) for run in runs] == [3, 4, 3, 2]
    far = [distance(run, other) for run, other in zip(runs, others, strict=True)]
    assert far[1] == far[3] == 0.0
    assert max(far) < 0.02


@pytest.mark.gpu
def test_who_the_others_are_changes_nothing():
    """The same run in the same place of teams with other mates, one of them lost; places sum in other orders."""
    settings = wide(config("data_augmentation + rcad", model="resnet18", channels_last=True, precision="bf16"))
    with deterministic(True, CUDA):
        teams = []
        for seeds, lost in (((1, 0, 2), False), ((3, 0, 4), False), ((1, 0, 2), True)):
            team, runs = team_of(settings, seeds, CUDA, "graph")
            if lost:
                with torch.no_grad(), team.queue:
                    next(runs[0].model.parameters()).fill_(torch.nan)
            assert finish(team).count("diverged") == lost
            teams.append(runs)
        torch.cuda.synchronize()
    assert distance(teams[0][1], teams[1][1]) == 0.0
    assert distance(teams[0][0], teams[1][0]) > 0.01
    assert distance(teams[0][1], teams[2][1]) == 0.0


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["graph", "compile"])
def test_bf16_over_fifty_steps(engine):
    """Joined against alone; a repeated lone run says how far apart equals may be."""
    torch._dynamo.reset()
    settings = wide(config("rcad", "resnet18", precision="bf16", channels_last=True, epochs=10))
    with deterministic(False, CUDA):
        others = [alone_on_gpu(settings, seed) for seed in (0, 0, 1)]
        team, runs = team_of(settings, range(2), CUDA, engine)
        assert finish(team) == ["done"] * 2
        torch.cuda.synchronize()
    spread = distance(others[1], others[0])
    apart = [distance(runs[0], others[0]), distance(runs[1], others[2])]
    print(f"\n{engine}: joined {apart[0]:.2e} and {apart[1]:.2e} from alone; alone from itself {spread:.2e}")
    assert runs[0].stepper.name == ("graph, compiled, 2 joined" if engine == "compile" else "graph, 2 joined")
    assert max(spread, *apart) < ROUNDED
    for run, other in zip(runs, (others[0], others[2]), strict=True):
        assert run.rows[-1]["loss"] == pytest.approx(other.rows[-1]["loss"], rel=ROUNDED_LOSS)
