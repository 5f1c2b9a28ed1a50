"""Runs that take their steps together, as one joined network; each goes its own way in everything else.

A team owns its runs. It lets each go on until it asks for a step, and takes the step of all once every one has asked.
A run that ends leaves: its part of the network trains on unheard, and the others do not notice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rcad.errors import InputError
from rcad.kernels.fused_sgd import same_order
from rcad.loss.augmentations import Alternating, Source, alternating
from rcad.loss.criterion import Criterion
from rcad.loss.methods import Method
from rcad.loss.perturbations import StepOfEach
from rcad.loss.suggest_alpha import STEPS
from rcad.loss.terms import Term
from rcad.models.joined import Joined
from rcad.train.machine import side_stream, timed
from rcad.train.place import Engine
from rcad.train.step import Plan, Stepper, Streamed, Update, stepper_for

log = logging.getLogger("rcad")


class JoinedUpdate(Update):
    """What a step of several runs changes: each keeps its data, randomness, optimizer, averages and sums.

    Their models' weights and their sums become views of this one's. Runs that cannot be joined are an InputError.
    """

    def __init__(self, runs: Sequence[Update]) -> None:
        first = runs[0]
        criterion = first.criterion
        if any(run.method != first.method for run in runs):
            options = criterion.asked
            terms = tuple(joined_terms([run.method for run in runs]))
            criterion = Criterion(options.likelihood, terms, units=options.units, checks=options.checks)
        if isinstance(first.x, Streamed):
            raise InputError("expected images in memory to join runs, but these are streamed from disk")
        if any(run.x.shape != first.x.shape for run in runs):
            raise InputError("expected training sets of one size to join runs, but theirs differ")
        names = [dict(run.model.named_parameters()) for run in runs]
        model, sums = Joined([run.model for run in runs]), torch.stack([run.sums for run in runs])
        super().__init__(**{**vars(first), "criterion": criterion, "model": model, "average": None, "sums": sums})
        self._runs, self._source = tuple(runs), Alternating([run.generator for run in runs])
        for run, row in zip(runs, self.sums, strict=True):
            run.sums.data = row
        self._owned = {
            parameter: [parameters[name] for parameters in names]
            for name, parameter in self.model.get_submodule("network").named_parameters()
        }

    @property
    def members(self) -> Sequence[Update]:
        return self._runs

    @property
    def source(self) -> Source:
        return self._source

    def owned(self, weights: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
        return [[self._owned[weight][run] for weight in weights] for run in range(len(self._runs))]

    def split(self, weights: Sequence[nn.Parameter], tensors: Sequence[Tensor | None]) -> list[list[Tensor | None]]:
        parts = [self._parts(weight, tensor) for weight, tensor in zip(weights, tensors, strict=True)]
        return [[part[run] for part in parts] for run in range(len(self._runs))]

    def hand_out(self) -> None:
        for weight, own in self._owned.items():
            for parameter, part in zip(own, self._parts(weight, weight.grad), strict=True):
                parameter.grad = part

    def examples(self, index: Tensor) -> tuple[Tensor, Tensor]:
        batches = [(run.x[rows], run.y[rows]) for run, rows in zip(self._runs, index, strict=True)]
        return alternating([x for x, _ in batches]), alternating([y for _, y in batches])

    def _parts(self, weight: nn.Parameter, tensor: Tensor | None) -> list[Tensor | None]:
        """Views of a tensor that lies in memory as the weight does, or of its copy that does."""
        own = self._owned[weight]
        if tensor is None:
            return [None] * len(own)
        if not same_order(tensor, weight):
            tensor = torch.empty_like(weight, dtype=tensor.dtype).copy_(tensor)
        begin = tensor.storage_offset() - weight.storage_offset()
        return [tensor.as_strided(part.shape, part.stride(), begin + part.storage_offset()) for part in own]


def joined_terms(methods: Sequence[Method]) -> Iterator[Term]:
    """The terms of methods that may differ in the alpha that each run measured, and in nothing else."""
    if len({_at_unit_distance(method) for method in methods}) > 1:
        raise InputError("expected runs of one method to join, but their settings differ")
    for terms in zip(*(method.terms for method in methods), strict=True):
        steps = [term.where for term in terms if isinstance(term.where, STEPS)]
        yield terms[0] if len(set(terms)) == 1 else replace(terms[0], where=StepOfEach.of(steps))


def _at_unit_distance(method: Method) -> Method:
    def with_unit_alpha(term: Term) -> Term:
        return replace(term, where=replace(term.where, alpha=1.0)) if isinstance(term.where, STEPS) else term

    clean = None if method.clean is None else tuple(map(with_unit_alpha, method.clean))
    return replace(method, recipe=(), clean=clean, extra=tuple(map(with_unit_alpha, method.extra)))


class Team:
    """Runs in one queue of the device, which take their steps together.

    Runs that go on from different steps part: those that stand at the same one are a team of their own. Where runs
    turn out not to fit each other, each is one.
    """

    def __init__(self, engine: Engine, device: torch.device, *, warnings: set[str] | None = None) -> None:
        self.engine, self.device = engine, device
        self.queue = side_stream(device)  # the context to be in where its runs go on and its steps are taken
        # Those that have not ended, each with its course.
        self.runs: dict[JoinedStepper, Generator[None, None, Any]] = {}
        self.size = self.epochs = 0  # how many runs have come, and how many epochs have begun here
        self._warnings = set() if warnings is None else warnings  # shared with other teams: none is given twice
        self._stepper: Stepper | None = None
        self._orders: list[Tensor] = []
        self._answers: dict[str, bool] = {}

    @property
    def name(self) -> str:
        if self._stepper is None:
            return self.engine if len(self.runs) == 1 else f"{self.engine}, {len(self.runs)} to be joined"
        return self._stepper.name if len(self._orders) == 1 else f"{self._stepper.name}, {len(self._orders)} joined"

    @property
    def settled(self) -> bool:
        return self._stepper is not None and self._stepper.settled

    def enter(self, run: Any, begin: Callable[[JoinedStepper], Generator[None, None, Any]]) -> JoinedStepper:
        """A run more, before the first step: `begin` makes its course, whose trainer takes its steps by the member."""
        member = JoinedStepper(self, run)
        self.runs[member] = begin(member)
        self.size += 1
        return member

    def awake(self) -> list[JoinedStepper]:
        """The runs that do not wait for a step."""
        return [member for member in self.runs if member.plan is None]

    def resume(self, member: JoinedStepper) -> Any:
        """The next instalment of a run; what it returned if that was the last, else None."""
        try:
            next(self.runs[member])
        except StopIteration as end:
            del self.runs[member]
            return end.value
        except BaseException:
            self.drop(member)
            raise
        return None

    def step(self) -> list[Team]:
        """Takes the step if all have asked for it; those who go on: this team, or those that it parts into."""
        if not self.runs:
            return []
        if any(member.plan is None for member in self.runs):
            return [self]
        try:
            if self._stepper is None and (parts := self._join()):
                return parts
            self._take()
        except BaseException as error:  # no memory, Ctrl-C: a step half taken must not be taken again, nor saved
            for member in tuple(self.runs):
                if isinstance(error, Exception) and not isinstance(error, torch.OutOfMemoryError):
                    with suppress(BaseException):
                        self.runs[member].throw(error)  # for its record
                self.drop(member)
            self._stepper = None
            raise
        return [self]

    def drop(self, member: JoinedStepper) -> None:
        """Gives a run up; what it had made goes at once, whoever may still hold the stepper."""
        if (course := self.runs.pop(member, None)) is not None:
            course.close()
            vars(member).pop("update", None)

    def agreed(self, answer: bool, question: str) -> bool:
        """The answer of the first who asks after a step is the answer for all: they pause after the same step."""
        return self._answers.setdefault(question, answer)

    def _join(self) -> list[Team]:
        """Makes what takes the steps; where the runs do not fit each other, the teams that they part into."""
        members = list(self.runs)
        alike: dict[tuple[Plan | None, tuple[float, ...]], list[JoinedStepper]] = {}
        for member in members:
            alike.setdefault((member.plan, tuple(member.rates)), []).append(member)
        if len(alike) > 1:
            self._warn("some runs are not joined: expected all of them to stand at the same step, but they do not")
            return self._part(alike.values())
        update = members[0].update
        if len(members) > 1:
            try:
                with timed("join", f"{update.method.name}, {len(members)} runs", self.device):
                    update = JoinedUpdate([member.update for member in members])
            except InputError as error:
                self._warn(f"the runs are not joined: {error}")
                return self._part([member] for member in members)
        self._stepper = stepper_for(update, self.engine)
        self._orders = [member.order for member in members]
        for place, member in enumerate(members):
            member.place = place
        return []

    def _part(self, groups: Iterable[Sequence[JoinedStepper]]) -> list[Team]:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # what was launched in the queue that they leave
        teams = []
        for members in groups:
            teams.append(Team(self.engine, self.device, warnings=self._warnings))
            teams[-1].size = len(members)
            for member in members:
                member.team, teams[-1].runs[member] = teams[-1], self.runs.pop(member)
        return teams

    def _warn(self, text: str) -> None:
        """A text, not an error: whoever keeps the log would keep the runs that an error holds."""
        if text not in self._warnings:
            self._warnings.add(text)
            log.warning(text)

    def _take(self) -> None:
        first = next(iter(self.runs))
        assert self._stepper is not None
        assert first.plan is not None
        if any(member.begun for member in self.runs):
            for member in self.runs:
                self._orders[member.place] = member.order
            for place, order in enumerate(self._orders):
                if len(order) != len(first.order):  # of one that has left: the sets of the others have grown
                    self._orders[place] = torch.zeros_like(first.order)
            order = self._orders[0] if len(self._orders) == 1 else torch.stack(self._orders)
            self._stepper.begin(order, first.rates, first.plan)
            self.epochs += first.plan.turn == 0
        self._stepper.step(first.plan)
        self._answers.clear()
        for member in self.runs:
            member.plan, member.begun = None, False


class JoinedStepper(Stepper):
    """The stepper of a run in a team: keeps the step that its trainer asks for until the team takes it."""

    update: Update  # once its trainer has it

    def __init__(self, team: Team, run: Any) -> None:
        self.team, self.run = team, run  # which of the runs it is, to those who made the team
        self.place = 0  # which part of the joined network is its own
        self.plan: Plan | None = None  # the step that it has asked for and that is not taken yet
        self.begun = False  # whether it has begun an epoch, or gone on with one, since the last step

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.team.name

    def begin(self, order: Tensor, rates: Sequence[float], first: Plan) -> None:
        self.order, self.rates, self.begun = order, rates, True

    def step(self, plan: Plan) -> None:
        self.plan = plan

    def agreed(self, answer: bool, question: str = "pause") -> bool:
        return self.team.agreed(answer, question)
