"""Auto-PGD (Croce and Hein, ICML 2020): projected ascent with momentum that chooses its own step sizes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rcad.errors import InputError, one_of, whole
from rcad.evaluate.attack import Restarted
from rcad.evaluate.attack_ball import Ball
from rcad.evaluate.attack_losses import LOSSES, AttackLoss, LossName, dlr_towards
from rcad.evaluate.attack_search import Best, Look, View
from rcad.loss.model_calls import Forward, Model

MOMENTUM = 0.75
# A stretch between checkpoints is good if the loss rose in this share of its steps.
RISING = 0.75


def checkpoints(steps: int) -> list[int]:
    """After which steps the step sizes are looked at: at 22% of them, then ever more often, at least every 6%."""
    found, place, gap = [], 0, 22
    while place + gap <= 100:
        place += gap
        found.append(-(-place * steps // 100))
        gap = max(gap - 3, 6)
    return sorted(set(found))


@dataclass(frozen=True, repr=False)
class APGD(Restarted):
    """Auto-PGD on the cross-entropy (APGD-CE) or the difference of logits ratio (APGD-DLR, APGD-T).

    Each example has a step size of its own, 2 eps at first. At a checkpoint it is halved, and the search goes on from
    the best point so far, if the loss rose in fewer than 75% of the steps since the last checkpoint, or if neither
    the best loss nor the step size has changed since then.

    Args:
        loss: "ce" or "dlr" (3 classes or more).
        targets: 0, or that many searches per restart, each towards one of the most likely wrong classes (with
            loss="dlr" only; 4 classes or more). The standard suite has 9.
    """

    steps: int = 100
    loss: LossName = "ce"
    targets: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("loss", self.loss, LOSSES)
        whole("targets", self.targets, minimum=0)
        if self.targets and self.loss != "dlr":
            raise InputError(f'expected loss="dlr" with targets={self.targets}, but got {self.loss!r}')

    def rounds(self) -> int:
        return self.restarts * max(1, self.targets)

    def search(self, model: Model, ball: Ball, y: Tensor, turn: int, generator: torch.Generator) -> Best:
        view = View(model, y, self._loss(model, ball.x, y, turn))
        point = ball.start(generator)
        look, gradient = view.climb(point)
        best = Best(point, look)
        pace = _Pace(point, look.loss, gradient, 2 * self.eps)
        before, ends = point, set(checkpoints(self.steps))
        for step in range(1, self.steps + 1):
            ahead = ball.climbed(point, gradient, pace.size)
            if step > 1:
                ahead = ball.projected(point + MOMENTUM * (ahead - point) + (1 - MOMENTUM) * (point - before))
            before, point = point, ahead
            if step == self.steps:
                best.offer(point, view.look(point))
                break
            look, gradient = view.climb(point)
            best.offer(point, look)
            pace.record(point, look, gradient)
            if step in ends:
                point, gradient = pace.checked(point, gradient)
        return best

    def _loss(self, model: Model, x: Tensor, y: Tensor, turn: int) -> AttackLoss:
        if not self.targets:
            return LOSSES[self.loss]
        with torch.no_grad():
            output = Forward(model)(x)
        if self.targets >= output.shape[1]:
            raise InputError(
                f"expected fewer targets than the {output.shape[1]} classes, but got {self.targets}; "
                f"use targets={output.shape[1] - 1}"
            )
        others = output.scatter(1, y[:, None], -torch.inf)
        return dlr_towards(others.argsort(1, descending=True)[:, turn % self.targets])


class _Pace:
    """The step size of each example, and what is needed to choose it."""

    def __init__(self, point: Tensor, loss: Tensor, gradient: Tensor, size: float) -> None:
        self.size = torch.full_like(loss, size)
        self._wide = (-1, *[1] * (point.ndim - 1))
        self._top_point, self._top_loss, self._top_gradient = point, loss, gradient
        self._last_loss = loss
        self._rises = torch.zeros_like(loss)
        self._steps = 0
        self._top_then, self._halved_then = loss, torch.zeros_like(loss, dtype=torch.bool)

    def record(self, point: Tensor, look: Look, gradient: Tensor) -> None:
        """Takes note of one step."""
        self._rises = self._rises + (look.loss > self._last_loss)
        self._steps += 1
        self._last_loss = look.loss
        higher = look.loss > self._top_loss
        wide = higher.view(self._wide)
        self._top_point = torch.where(wide, point, self._top_point)
        self._top_gradient = torch.where(wide, gradient, self._top_gradient)
        self._top_loss = torch.where(higher, look.loss, self._top_loss)

    def checked(self, point: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """A checkpoint: where the search goes on, and the gradient there."""
        few = self._rises < RISING * self._steps
        stuck = ~self._halved_then & (self._top_loss == self._top_then)
        halve = few | stuck
        self.size = torch.where(halve, self.size / 2, self.size)
        self._last_loss = torch.where(halve, self._top_loss, self._last_loss)
        self._rises, self._steps = torch.zeros_like(self._rises), 0
        self._top_then, self._halved_then = self._top_loss, halve
        wide = halve.view(self._wide)
        return torch.where(wide, self._top_point, point), torch.where(wide, self._top_gradient, gradient)
