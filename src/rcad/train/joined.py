"""Runs that take their steps together, as one joined network; each goes its own way in everything else.

Every run is a member of a team. A step is launched once all members that are still here have asked for it. A run that
ends leaves: its part of the network trains on unheard, and the others do not notice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from rcad.errors import InputError
from rcad.kernels.fused_sgd import same_order
from rcad.loss.augmentations import Alternating, Source, alternating
from rcad.models.joined import Joined
from rcad.train.machine import timed
from rcad.train.place import Engine
from rcad.train.step import Plan, Stepper, Update, stepper_for


class JoinedUpdate(Update):
    """What a step of several runs changes: each keeps its data, randomness, optimizer, averages and sums.

    Args:
        runs: of one setting; their models' weights and their sums become views of this one's. Those that cannot be
            joined are an InputError.
    """

    def __init__(self, runs: Sequence[Update]) -> None:
        first = runs[0]
        if any(run.method != first.method for run in runs):
            raise InputError("expected runs of one method to join, but their settings differ")
        if first.method.growth is not None:
            raise InputError("expected training sets that stay as they are to join runs, but these grow")
        if any(run.x.shape != first.x.shape for run in runs):
            raise InputError("expected training sets of one size to join runs, but theirs differ")
        names = [dict(run.model.named_parameters()) for run in runs]
        super().__init__(
            config=first.config,
            method=first.method,
            criterion=first.criterion,
            model=Joined([run.model for run in runs]),
            average=None,
            optimizer=first.optimizer,
            generator=first.generator,
            sums=torch.stack([run.sums for run in runs]),
            classes=first.classes,
            x=first.x,
            y=first.y,
        )
        self._runs, self._source = tuple(runs), Alternating([run.generator for run in runs])
        for run, row in zip(runs, self.sums, strict=True):
            run.sums.data = row
        self._owned = {
            parameter: [mine[name] for mine in names]
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
        found = [(run.x[mine], run.y[mine]) for run, mine in zip(self._runs, index, strict=True)]
        return alternating([x for x, _ in found]), alternating([y for _, y in found])

    def _parts(self, weight: nn.Parameter, tensor: Tensor | None) -> list[Tensor | None]:
        """Views of a tensor that lies in memory as the weight does, or of its copy that does."""
        own = self._owned[weight]
        if tensor is None:
            return [None] * len(own)
        if not same_order(tensor, weight):
            tensor = torch.empty_like(weight, dtype=tensor.dtype).copy_(tensor)
        begin = tensor.storage_offset() - weight.storage_offset()
        return [tensor.as_strided(part.shape, part.stride(), begin + part.storage_offset()) for part in own]


log = logging.getLogger("rcad")


class Team:
    """The members, and what takes the step of all once every one of them has asked.

    Runs that go on from different steps part: those that stand at the same one are a team of their own. Where runs
    turn out not to fit each other, each steps by itself.

    Args:
        size: how many runs are to come.
        engine: how steps are taken.
        said: why runs were not joined, shared with other teams so that nobody is told twice.
    """

    def __init__(self, size: int, engine: Engine, *, said: set[str] | None = None) -> None:
        self.members = [Member(self) for _ in range(size)]
        self.engine = engine
        self.apart = size == 1
        self._said = set() if said is None else said
        self.queue: AbstractContextManager[Any] | None = None
        self.taken = 0
        self._joined: list[Member] = []
        self._stepper: Stepper | None = None
        self._failed: BaseException | None = None
        self._answers: dict[str, tuple[int, bool]] = {}

    @property
    def name(self) -> str:
        """How steps are taken, in words."""
        if self._stepper is None:
            left = sum(member.left for member in self.members)
            return self.engine if self.apart else f"{self.engine}, {len(self.members) - left} to be joined"
        return f"{self._stepper.name}, {len(self._joined)} joined"

    @property
    def failed(self) -> bool:
        """Whether a step has failed, so that all who are here will."""
        return self._failed is not None

    def go(self) -> None:
        """Takes the step if all who are here have asked for it."""
        if self._failed is not None:
            raise self._failed
        here = [member for member in self.members if not member.left]
        if self.apart or any(member.plan is None for member in here):
            return
        try:
            if self._stepper is None:
                self._join(here)
            if self._stepper is not None:
                self._step(here)
        except BaseException as error:  # no memory, Ctrl-C: a step half taken must not be taken again, nor saved
            self._failed = error
            raise

    def agreed(self, answer: bool, question: str) -> bool:
        """The answer of the first who asks after a step is the answer for all: they pause after the same step."""
        if self._answers.get(question, (-1, False))[0] != self.taken:
            self._answers[question] = self.taken, answer
        return self._answers[question][1]

    def leave(self) -> None:
        """What nobody needs any more goes at once: a GPU's memory must not wait for the collector of cycles."""
        gone = [member for member in self.members if member.left]
        if self.apart or len(gone) == len(self.members):
            for member in gone:
                vars(member).pop("update", None)
        if len(gone) == len(self.members):
            self._stepper, self._joined, self._failed = None, [], None

    def _join(self, here: Sequence[Member]) -> None:
        first = here[0]
        if len(here) == 1:
            self.apart = True  # the others had been finished before, or are busy
            return
        alike: dict[tuple[Plan | None, tuple[float, ...]], list[Member]] = {}
        for member in here:
            alike.setdefault((member.plan, tuple(member.rates)), []).append(member)
        if len(alike) > 1:
            self._say("some runs are not joined: expected all of them to stand at the same step, but they do not")
            self._part(alike.values())
            return
        try:
            if first.update.x.is_cuda:
                torch.cuda.synchronize(first.update.x.device)  # what each has launched in its own queue
            with timed("join", f"{first.update.method.name}, {len(here)} runs", first.update.x.device):
                self._stepper = stepper_for(JoinedUpdate([member.update for member in here]), self.engine)
        except InputError as error:
            self._say(f"the runs are not joined: {error}")
            self.apart = True
            return
        self._joined = list(here)
        if first.update.x.is_cuda:
            self.queue = torch.cuda.stream(torch.cuda.current_stream())

    def _part(self, groups: Iterable[list[Member]]) -> None:
        """Each group goes on as a team of its own, which joins when one of them asks again."""
        for members in groups:
            team = Team(0, self.engine, said=self._said)
            team.members = members
            for member in members:
                member.team = team
        self.apart = True
        self.leave()  # for those who had left before

    def _say(self, text: str) -> None:
        """A text, not an error: whoever keeps the log would keep the runs that an error holds."""
        if text not in self._said:
            self._said.add(text)
            log.warning(text)

    def _step(self, here: Sequence[Member]) -> None:
        plan = here[0].plan
        assert self._stepper is not None
        assert plan is not None
        if any(member.begun for member in here):
            self._stepper.begin(torch.stack([member.order for member in self._joined]), here[0].rates, plan)
        self._stepper.step(plan)
        self.taken += 1
        for member in here:
            member.plan, member.begun = None, False


class Member(Stepper):
    """One run's place in a team.

    Attributes:
        update: what its steps change, while it sits there.
        plan: the step that it has asked for and that is not taken yet.
        begun: whether it has begun an epoch, or gone on with one, since the last step.
        left: whether its run has ended.
    """

    update: Update

    def __init__(self, team: Team) -> None:
        self.team = team
        self._own: Stepper | None = None
        self.order, self.rates = torch.empty(0, dtype=torch.int64), ()
        self.first: Plan | None = None
        self.plan: Plan | None = None
        self.begun = self.left = False
        self._name = ""

    @property
    def name(self) -> str:  # type: ignore[override]
        if self.left:
            return self._name
        return self.team.name if self._own is None else self._own.name

    @property
    def queue(self) -> AbstractContextManager[Any] | None:
        """Where the run's work is launched now; None for its own queue."""
        return self.team.queue

    def take(self, update: Update) -> Member:
        """Sits down."""
        self.update = update
        return self

    def begin(self, order: Tensor, rates: Sequence[float], first: Plan) -> None:
        self.order, self.rates, self.first, self.begun = order, rates, first, True

    def ask(self, plan: Plan) -> None:
        self.plan = plan

    def launch(self) -> bool:
        if self.plan is not None:
            self.team.go()
            self._by_itself()
        return self.plan is None

    def agreed(self, answer: bool, question: str = "pause") -> bool:
        return answer if self.team.apart else self.team.agreed(answer, question)

    def leave(self) -> None:
        """The run has ended; the others need not wait for it any more."""
        self._name = self.name
        self.left, self.plan, self._own = True, None, None
        self.team.leave()

    def _by_itself(self) -> None:
        if not self.team.apart or self.plan is None:
            return
        if self._own is None:
            self._own = stepper_for(self.update, self.team.engine)
        if self.begun:
            assert self.first is not None
            self._own.begin(self.order, self.rates, self.first)
        self._own.step(self.plan)
        self.plan, self.begun = None, False
