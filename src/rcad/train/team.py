"""Runs that take their steps together, as one joined network; each goes its own way in everything else.

Every run has a seat. A step is launched once all seats that are taken have asked for it. A run that ends leaves its
seat: its part of the network trains on unheard, and the others do not notice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from rcad.errors import InputError
from rcad.train.cuda_graph import Captured
from rcad.train.joined import JoinedUpdate
from rcad.train.place import Engine
from rcad.train.step import Plan, Stepper, Update

log = logging.getLogger("rcad")


def stepper_for(update: Update, engine: Engine) -> Stepper:
    """What takes this update's steps."""
    return Stepper(update) if engine == "eager" else Captured(update, compiled=engine == "compile")


class Team:
    """The seats, and what takes the step of all once every one of them has asked.

    Runs that go on from different steps part: those that stand at the same one are a team of their own. Where runs
    turn out not to fit each other, each steps by itself.

    Args:
        size: how many runs are to come.
        engine: how steps are taken.
        said: why runs were not joined, shared with other teams so that nobody is told twice.
    """

    def __init__(self, size: int, engine: Engine, *, said: set[str] | None = None) -> None:
        self.seats = [Seat(self) for _ in range(size)]
        self.engine = engine
        self.apart = size == 1
        self._said = set() if said is None else said
        self.queue: AbstractContextManager[Any] | None = None
        self.taken = 0
        self._joined: list[Seat] = []
        self._stepper: Stepper | None = None
        self._failed: BaseException | None = None
        self._answers: dict[str, tuple[int, bool]] = {}

    @property
    def name(self) -> str:
        """How steps are taken, in words."""
        if self._stepper is None:
            left = sum(seat.left for seat in self.seats)
            return self.engine if self.apart else f"{self.engine}, {len(self.seats) - left} to be joined"
        return f"{self._stepper.name}, {len(self._joined)} joined"

    @property
    def failed(self) -> bool:
        """Whether a step has failed, so that all who are here will."""
        return self._failed is not None

    def go(self) -> None:
        """Takes the step if all who are here have asked for it."""
        if self._failed is not None:
            raise self._failed
        here = [seat for seat in self.seats if not seat.left]
        if self.apart or any(seat.plan is None for seat in here):
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
        gone = [seat for seat in self.seats if seat.left]
        if self.apart or len(gone) == len(self.seats):
            for seat in gone:
                vars(seat).pop("update", None)
        if len(gone) == len(self.seats):
            self._stepper, self._joined, self._failed = None, [], None

    def _join(self, here: Sequence[Seat]) -> None:
        first = here[0]
        if len(here) == 1:
            self.apart = True  # the others had been finished before, or are busy
            return
        alike: dict[tuple[Plan | None, tuple[float, ...]], list[Seat]] = {}
        for seat in here:
            alike.setdefault((seat.plan, tuple(seat.rates)), []).append(seat)
        if len(alike) > 1:
            self._say("some runs are not joined: expected all of them to stand at the same step, but they do not")
            self._part(alike.values())
            return
        try:
            if first.update.x.is_cuda:
                torch.cuda.synchronize(first.update.x.device)  # what each has launched in its own queue
            self._stepper = stepper_for(JoinedUpdate([seat.update for seat in here]), self.engine)
        except InputError as error:
            self._say(f"the runs are not joined: {error}")
            self.apart = True
            return
        self._joined = list(here)
        if first.update.x.is_cuda:
            self.queue = torch.cuda.stream(torch.cuda.current_stream())

    def _part(self, groups: Iterable[list[Seat]]) -> None:
        """Each group goes on as a team of its own, which joins when one of them asks again."""
        for seats in groups:
            team = Team(0, self.engine, said=self._said)
            team.seats = seats
            for seat in seats:
                seat.team = team
        self.apart = True
        self.leave()  # for those who had left before

    def _say(self, text: str) -> None:
        """A text, not an error: whoever keeps the log would keep the runs that an error holds."""
        if text not in self._said:
            self._said.add(text)
            log.warning(text)

    def _step(self, here: Sequence[Seat]) -> None:
        plan = here[0].plan
        assert self._stepper is not None
        assert plan is not None
        if any(seat.begun for seat in here):
            self._stepper.begin(torch.stack([seat.order for seat in self._joined]), here[0].rates, plan)
        self._stepper.step(plan)
        self.taken += 1
        for seat in here:
            seat.plan, seat.begun = None, False


class Seat(Stepper):
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

    @property
    def waiting(self) -> bool:  # type: ignore[override]
        if self.plan is not None:
            self.team.go()
            self._by_itself()
        return self.plan is not None

    def take(self, update: Update) -> Seat:
        """Sits down."""
        self.update = update
        return self

    def begin(self, order: Tensor, rates: Sequence[float], first: Plan) -> None:
        self.order, self.rates, self.first, self.begun = order, rates, first, True

    def step(self, plan: Plan) -> None:
        self.plan = plan
        self.team.go()
        self._by_itself()

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
