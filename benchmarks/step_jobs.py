"""The steps that `step_time.py` measures: methods, the ways of taking RCAD's passes, data, runs that step in turns; and
the least time that a step's arithmetic takes, at the rate of a large matrix product."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from common import wait
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from rcad.data.dataset import Dataset, Split
from rcad.loss.criterion import Criterion
from rcad.loss.likelihoods import Likelihood
from rcad.loss.method_rows import rows_to_plain
from rcad.loss.methods import Method
from rcad.loss.model_calls import frozen_batch_stats
from rcad.loss.perturbations import ProjectedAscent
from rcad.loss.terms import Losses, Term
from rcad.runs.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from rcad.train.joined import JoinedStepper, Team
from rcad.train.loop import Course, Trainer
from rcad.train.place import Engine
from rcad.train.task import Problem, method_of, model_of, prepare

CROP = ("data_augmentation", ())
FIXED = (("alpha", 0.5), ("lam", 0.02))
"""Of every step: where alpha is measured, the first batches are other steps, and runs are not joined."""
METHODS: dict[str, tuple[Any, ...]] = {
    "erm": (("erm", ()),),
    "rcad": (("rcad", FIXED),),
    "rcad reference": (("rcad", FIXED),),
    "rcad autograd": (("rcad", FIXED),),
    "rcad naive": (("rcad", FIXED),),
    "rcad every=4": (("rcad", (*FIXED, ("every", 4))),),
    "fgsm": (("adversarial_training", ()),),
    "pgd 10": (("adversarial_training", ()),),
    "rcad_released": (("rcad_released", ()),),
    "me_ada": (("me_ada", ()),),
}
PASSES = {
    "rcad": 2.0,
    "rcad reference": 2.0,
    "rcad autograd": 2.0,
    "rcad naive": 2.0,
    "rcad every=4": 1.25,
    "fgsm": 5 / 3,
    "pgd 10": 23 / 3,
    "rcad_released": 3.0,
}
"""Forward and backward passes of a method, in those of ERM, for its floor: directions alone cost two thirds."""
EPOCHS = 200
"""Of the paper's runs."""
FIRST_STEPS, WARM_STEPS = 2, 8
"""Steps that choose algorithms and compile, which takes memory of its own; those after which all are captured."""


class Layout(NamedTuple):
    """Runs at once: so many teams, each of so many runs that are joined in one network."""

    teams: int
    joined: int

    @classmethod
    def parse(cls, text: str) -> Layout:
        """ "10" are ten runs, "2x5" two teams of five."""
        teams, _, joined = text.partition("x")
        return cls(int(teams), int(joined or 1))

    @property
    def replicas(self) -> int:
        return self.teams * self.joined


class Reference(Criterion):
    """The passes of the library where the clean backward does not give the direction, as with sample weights."""

    def backward(self, model: Any, x: Any, y: Tensor, **options: Any) -> Losses:
        return super().backward(model, x, y, weight=torch.ones(len(y), device=y.device), **options)


class Autograd(Criterion):
    """What `criterion(model, x, y).backward()` does: one graph for all passes."""

    def backward(self, model: Any, x: Any, y: Tensor, **options: Any) -> Losses:
        for name in ("accumulate", "share"):
            options.pop(name, None)
        after_pass = options.pop("after_pass")
        losses = self.losses(model, x, y, **options)
        losses.total.backward()  # type: ignore[no-untyped-call]
        if after_pass is not None:
            after_pass()
        return losses._replace(total=losses.total.detach())


class Naive(Criterion):
    """The paper's lines as they stand: a forward for the direction, one for the loss, one for the entropy."""

    def backward(self, model: Any, x: Any, y: Tensor, **options: Any) -> Losses:
        step, likelihood = self.loss.terms[1], self.loss.likelihood
        with frozen_batch_stats(model):
            moving = x.detach().requires_grad_(True)
            (gradient,) = torch.autograd.grad(likelihood.nll(model(moving), y).sum(), moving)
            moved = step.where(model, x, y, likelihood, gradient=gradient)  # type: ignore[misc]
        output = model(x)
        loss = likelihood.nll(output, y).mean()
        with frozen_batch_stats(model):
            total = loss - step.weight * likelihood.entropy(model(moved)).mean()
        total.backward()
        if options["after_pass"] is not None:
            options["after_pass"]()
        return Losses(total.detach(), {}, output.detach())


class Multistep(Criterion):
    """Adversarial training on ten projected steps, each a forward and a backward to x alone."""

    def __init__(self, likelihood: Likelihood, terms: Sequence[Term], **options: Any) -> None:
        far = ProjectedAscent(0.05, "linf", (0.0, 1.0), steps=10)
        super().__init__(likelihood, [replace(term, where=far) for term in terms], **options)


CRITERIA: dict[str, type[Criterion]] = {
    "rcad reference": Reference,
    "rcad autograd": Autograd,
    "rcad naive": Naive,
    "pgd 10": Multistep,
}


def criterion_of(method: str) -> Criterion:
    """The loss of a method with the numbers of `METHODS`, for one's own loop."""
    value = Method.from_dict({"methods": rows_to_plain(METHODS[method])})
    return value.criterion(units="input", checks="first")


def problem_of(
    options: argparse.Namespace, batch: int, device: torch.device, steps: int = 0
) -> tuple[RunConfig, Problem]:
    """Noise in the shape of images; an epoch is longer than the steps that are measured of it."""
    draw = np.random.default_rng(0)
    count = batch * (16 + steps)
    shape = (count, options.channels, options.size, options.size)
    train = Split(draw.integers(0, 256, shape, dtype=np.uint8), np.arange(count) % options.classes)
    names = tuple(map(str, range(options.classes)))
    data = Dataset("noise", "classification", train, train.take(np.arange(min(count, options.classes))), names)
    gpu = device.type == "cuda"
    config = RunConfig(
        data=DataConfig(name="noise", validation=0.0),
        model=ModelConfig(name=options.model),
        method=(("erm", ()),),
        optim=OptimConfig(lr=0.01, weight_decay=5e-4, clip=1.0),
        train=TrainConfig(
            epochs=EPOCHS,
            batch_size=batch,
            selection="last",
            precision="bf16" if gpu else "fp32",
            channels_last=gpu,
        ),
    )
    return config, prepare(config, data, device)


class Job:
    """Some runs of one method that take their steps in turns.

    Attributes:
        peak: bytes in tensors at most: those that stay, and for each run what comes and goes in one of its steps.
        held: bytes that are kept from others for it: where graphs were captured, with the gaps between their tensors.
    """

    def __init__(
        self,
        method: str,
        settings: RunConfig,
        problem: Problem,
        mode: Engine,
        layout: Layout,
        *,
        seconds: float,
        limit: int,
    ) -> None:
        self.method, device = method, problem.device
        rows = METHODS[method] if problem.train[0].ndim == 2 else (CROP, *METHODS[method])
        self.teams = [Team(mode, device) for _ in range(layout.teams)]
        self.trainers: list[Trainer] = []
        for team in self.teams:
            with team.queue:
                _use(device)
        tensors_before, held_before = memory(device)

        def course(member: JoinedStepper) -> Course:
            config = replace(settings, method=rows, seed=member.run)
            plan = method_of(config, problem)
            trainer = Trainer(config, problem, plan, model_of(config, problem), engine=mode, member=member)
            if method in CRITERIA:
                old = trainer.criterion.loss
                trainer.criterion = CRITERIA[method](old.likelihood, old.terms, units="input", checks="first")
                trainer.stepper.update.criterion = trainer.criterion
            self.trainers.append(trainer)
            return trainer.course()

        for seed in range(layout.replicas):
            team = self.teams[seed // layout.joined]
            with team.queue:
                team.enter(seed, course)
        self.run(FIRST_STEPS)
        passing = self._passing(WARM_STEPS - FIRST_STEPS, device)
        each = self.run(4) / 4
        tensors, held = memory(device)
        self.peak, self.held = tensors - tensors_before + passing, held - held_before
        self.steps = max(4, min(limit, int(seconds / each) // 4 * 4))
        self.launching = min(self.run(1, waiting=False) for _ in range(4)) / layout.replicas

    def seconds(self) -> float:
        """For one step of every run."""
        return self.run(self.steps) / self.steps

    def run(self, steps: int, *, waiting: bool = True) -> float:
        """Seconds for so many steps of every run; without waiting for the device, what their launching takes."""
        device = self.trainers[0].problem.device
        wait(device)
        start = time.perf_counter()
        for _ in range(steps):
            for team in self.teams:
                take_step(team)
        if waiting:
            wait(device)
        return time.perf_counter() - start

    def _passing(self, steps: int, device: torch.device) -> int:
        """Bytes that come and go in one step of every run; takes so many."""
        most = [0] * len(self.teams)
        for _ in range(steps):
            for place, team in enumerate(self.teams):
                before, _ = memory(device)
                take_step(team)
                if device.type == "cuda":
                    most[place] = max(most[place], torch.cuda.max_memory_allocated(device) - before)
        return sum(most)


def take_step(team: Team) -> None:
    """One step of all runs of a team."""
    with team.queue:
        for member in team.awake():
            team.resume(member)
        team.step()


def _use(device: torch.device) -> None:
    """What a library keeps for a stream from its first product on, forward and backward, counts for no job."""
    if device.type == "cuda":
        square = torch.ones(64, 64, dtype=torch.bfloat16, device=device, requires_grad=True)
        (square @ square).sum().backward()  # type: ignore[no-untyped-call]


def memory(device: torch.device) -> tuple[int, int]:
    """Bytes in tensors now, from which the peak is counted anew, and bytes held, with what graphs will use."""
    if device.type != "cuda":
        return 0, 0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)


def flops_of(model: nn.Module, x: Tensor) -> float:
    """Floating-point operations of one forward: its convolutions, linear layers and other products."""
    with torch.no_grad(), FlopCounterMode(display=False) as counted:
        model.eval()(x)
    return float(counted.get_total_flops())


def rate_of(device: torch.device) -> float:
    """Operations a second of a large matrix product, the best of ten."""
    size, kind = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    times = []
    for _ in range(12):
        wait(device)
        start = time.perf_counter()
        a @ b
        wait(device)
        times.append(time.perf_counter() - start)
    return 2.0 * size**3 / min(times[2:])
