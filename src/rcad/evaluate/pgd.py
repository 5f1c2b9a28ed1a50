"""Plain gradient attacks: one signed step, and projected gradient ascent."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rcad.errors import InputError, finite, one_of
from rcad.evaluate.attack import Attack, Restarted
from rcad.evaluate.attack_ball import Ball
from rcad.evaluate.attack_losses import LOSSES, LossName
from rcad.evaluate.attack_search import Best, View
from rcad.loss.model_calls import Model


@dataclass(frozen=True, repr=False)
class FGSM(Attack):
    """One step of length eps up the cross-entropy (Goodfellow et al., 2015); the RCAD paper attacks with eps 0.05.

    The step is taken whether or not it helps, so some predictions may turn right. In "l2" the gradient's direction
    takes the place of its sign.
    """

    def _attacked(self, model: Model, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        ball = Ball(x, self.space())
        _, gradient = View(model, y, LOSSES["ce"]).climb(x)
        return ball.climbed(x, gradient, self.eps)


@dataclass(frozen=True, repr=False)
class PGD(Restarted):
    """Projected gradient ascent (Madry et al., 2018): steps of one length, each projected back.

    The evaluation twin of `rcad.ProjectedAscent`, which gives training the last point of one search: this one keeps
    the best of all points, starts again, and holds the distance exactly.

    Args:
        step_size: length of a step in the units of eps; None takes 2.5 eps / steps.
        random_start: begin at a random point instead of at x; needed for more than one start.
        loss: "ce" (cross-entropy) or "dlr" (difference of logits ratio; 3 classes or more).
    """

    step_size: float | None = None
    random_start: bool = True
    loss: LossName = "ce"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("loss", self.loss, LOSSES)
        if self.step_size is not None:
            finite("step_size", self.step_size, above=0.0)
        if self.restarts > 1 and not self.random_start:
            raise InputError(
                f"expected random_start=True with several restarts, but got restarts={self.restarts} from x itself; "
                "all of them would be the same"
            )

    def search(self, model: Model, ball: Ball, y: Tensor, turn: int, generator: torch.Generator) -> Best:
        size = 2.5 * self.eps / self.steps if self.step_size is None else self.step_size
        view = View(model, y, LOSSES[self.loss])
        point = ball.start(generator) if self.random_start else ball.x
        look, gradient = view.climb(point)
        best = Best(point, look)
        for step in range(1, self.steps + 1):
            point = ball.climbed(point, gradient, size)
            if step < self.steps:
                look, gradient = view.climb(point)
            else:
                look = view.look(point)
            best.offer(point, look)
        return best
