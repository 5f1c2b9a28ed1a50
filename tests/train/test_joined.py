"""What a joined step hands to each run: its own part of every gradient, wherever and however that lies in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rcad.data.dataset import Dataset, Split
from rcad.train import cuda_graph as captured
from rcad.train.joined import JoinedUpdate, Member, Team
from rcad.train.loop import Trainer
from rcad.train.place import Engine
from rcad.train.task import method_of, model_of, prepare
from tiny_runs import CPU, config, distance, trainer


def joined(runs: int = 3) -> JoinedUpdate:
    settings = config("rcad", model="resnet18", channels_last=True)
    team = Team(runs, "eager")
    return JoinedUpdate(
        [
            trainer(replace(settings, seed=seed), member=member).stepper.update
            for seed, member in enumerate(team.members)
        ]
    )


def shifted(like: Tensor) -> Tensor:
    """Other numbers in the same memory order, not at the beginning of their storage."""
    return torch.randn(like.numel() + 5).as_strided(like.shape, like.stride(), 5)


@pytest.mark.parametrize("how", ["as it lies", "elsewhere", "in another order", "in bf16"])
def test_each_run_gets_its_own_part(how: str) -> None:
    update = joined()
    weights = list(update.model.parameters())
    grads = {
        "as it lies": lambda weight: torch.randn_like(weight),
        "elsewhere": shifted,
        "in another order": lambda weight: torch.randn(weight.shape),
        "in bf16": lambda weight: torch.randn_like(weight).bfloat16(),
    }[how]
    tensors = [grads(weight).detach() for weight in weights]
    # What belongs to a run is what a step along the tensor changes in its weights.
    before = [[parameter.detach().clone() for parameter in own] for own in update.owned(weights)]
    with torch.no_grad():
        for weight, tensor in zip(weights, tensors, strict=True):
            weight += tensor
    for run, (own, parts) in enumerate(zip(update.owned(weights), update.split(weights, tensors), strict=True)):
        assert {id(parameter) for parameter in own} == {id(p) for p in update.members[run].model.parameters()}
        for parameter, old, part in zip(own, before[run], parts, strict=True):
            assert part is not None
            assert part.shape == parameter.shape
            torch.testing.assert_close(parameter, old + part)


def test_none_is_nobodys() -> None:
    update = joined(2)
    weights = list(update.model.parameters())
    assert update.split(weights, [None] * len(weights)) == [[None] * len(weights)] * 2


def test_real_targets_of_images() -> None:
    draw = np.random.default_rng(0)
    x = draw.integers(0, 255, (60, 1, 8, 8)).astype(np.uint8)
    y = x.mean((1, 2, 3)).astype(np.float32)
    dataset = Dataset("images", "regression", Split(x, y))
    settings = config("rcad", epochs=2)

    def made(seed: int, member: Member | None = None) -> Trainer:
        mine = replace(settings, seed=seed)
        problem = prepare(mine, dataset, CPU)
        return Trainer(mine, problem, method_of(mine, problem), model_of(mine, problem), member=member)

    team = Team(2, "eager")
    runs = [made(seed, member) for seed, member in enumerate(team.members)]
    courses = {seed: run.course() for seed, run in enumerate(runs)}
    while courses:
        for seed, course in tuple(courses.items()):
            try:
                next(course)
            except StopIteration:
                team.members[seed].leave()
                del courses[seed]
    assert runs[0].stepper.name == "eager, 2 joined"
    for seed, run in enumerate(runs):
        alone = made(seed)
        alone.fit()
        assert distance(run, alone) < 2e-5
        assert [row.keys() for row in run.rows] == [row.keys() for row in alone.rows]
        assert run.rows[-1]["loss"] == pytest.approx(alone.rows[-1]["loss"], rel=1e-4)


@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_gradients_of_the_step_before_are_let_go(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the passes, whose own take their room."""
    monkeypatch.setattr(captured, "WARM_UP", 10**9)
    team = Team(2, engine)
    runs = [
        trainer(replace(config("rcad"), seed=seed), CPU, engine, member) for seed, member in enumerate(team.members)
    ]
    courses, held = [run.course() for run in runs], []
    batch = JoinedUpdate.batch

    def watching(self: JoinedUpdate, *rest: Any) -> None:
        held.append(sum(p.grad is not None for member in self.members for p in member.model.parameters()))
        batch(self, *rest)

    monkeypatch.setattr(JoinedUpdate, "batch", watching)
    for _ in range(3):
        for course in courses:
            next(course)
    assert held == [0, 0, 0]
    assert all(p.grad is not None for run in runs for p in run.model.parameters())
