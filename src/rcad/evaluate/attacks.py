"""Attacks as values: FGSM, PGD, Auto-PGD, blind search, and several of them one after the other.

from rcad.evaluate.attacks import APGD, PGD, attacked_accuracy

result = attacked_accuracy(model, x, y, {"pgd": PGD(8 / 255), "apgd": APGD(8 / 255, loss="dlr")})
result.accuracies()  # percent: {"clean": ..., "pgd": ..., "apgd": ..., "worst": ...}
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rcad.errors import InputError, Value, finite, one_of, whole
from rcad.evaluate.attack_search import (
    LOSSES,
    AttackLoss,
    Ball,
    Best,
    Look,
    LossName,
    View,
    check_labels,
    dlr_towards,
    seeded,
    watched,
    without_label,
)
from rcad.evaluate.robustness import Attacked as Attacked
from rcad.evaluate.robustness import accuracy_under as accuracy_under
from rcad.evaluate.robustness import attacked_accuracy as attacked_accuracy
from rcad.loss.model_calls import Forward, Model
from rcad.loss.perturbations import Channels, Move

Norm = Literal["l2", "linf"]


@dataclass(frozen=True, repr=False)
class Attack(Value):
    """A way to move inputs, within a small distance, to where a classifier errs.

    Args:
        eps: the largest distance per example, in the units of the input ([0, 1] pixels for images).
        norm: "linf" (each pixel by eps at most) or "l2" (the whole image).
        bounds: (low, high) limits on x'; None for tables.
        mean, std: per-channel numbers by which the inputs were already normalised; eps and bounds stay in pixels.
    """

    eps: float
    norm: Norm = "linf"
    bounds: tuple[float, float] | None = (0.0, 1.0)
    mean: Channels | None = None
    std: Channels | None = None

    def __post_init__(self) -> None:
        finite("eps", self.eps, minimum=0.0)
        one_of("norm", self.norm, ("l2", "linf"))
        space = self.space()
        for name in ("bounds", "mean", "std"):
            object.__setattr__(self, name, getattr(space, name))

    def space(self) -> Move:
        return Move(self.eps, self.norm, self.bounds, self.mean, self.std)

    def perturb(self, model: Model, x: Tensor, y: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The attacked batch x', detached. The model, its mode, its gradients and the random state stay as they are.

        Args:
            model: a classifier with 2 or more logits; it is asked in eval mode.
            x: float32 or float64 (B, ...).
            y: labels (B,).
            generator: where random starts come from; None takes a new one, seeded 0, so that a call repeats itself.
        """
        check_labels(x, y)
        with watched(model, x.device):
            x, y = x.detach().clone(), y.detach().long().clone()
            return self._attacked(model, x, y, generator or seeded(x.device)) if len(x) else x

    @abstractmethod
    def _attacked(self, model: Model, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        """x' for inputs that may be kept, inside `watched`."""


@dataclass(frozen=True, repr=False)
class Restarted(Attack):
    """An attack that searches step by step, and again from other starts where it did not succeed.

    Of all points visited, an example gets one that is misclassified if there is any, and among equals the one of the
    highest loss. An example once misclassified takes no part in later restarts.

    Args:
        steps: gradient steps per search: `steps` forwards and backwards, and one forward for the last point.
        restarts: how many searches, the first included.
    """

    steps: int = 20
    restarts: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("steps", self.steps, minimum=1)
        whole("restarts", self.restarts, minimum=1)

    def rounds(self) -> int:
        return self.restarts

    @abstractmethod
    def search(self, model: Model, ball: Ball, y: Tensor, turn: int, generator: torch.Generator) -> Best:
        """The `turn`-th of `rounds` searches."""

    def _attacked(self, model: Model, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        space = self.space()
        best = self.search(model, Ball(x, space), y, 0, generator)
        for turn in range(1, self.rounds()):
            left = (~best.wrong).nonzero().squeeze(1)
            if not len(left):
                break
            better = self.search(model, Ball(x[left], space), y[left], turn, generator)
            best.offer(better.point, better, left)
        return best.point


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
        for _ in range(self.steps - 1):
            point = ball.climbed(point, gradient, size)
            look, gradient = view.climb(point)
            best.offer(point, look)
        point = ball.climbed(point, gradient, size)
        best.offer(point, view.look(point))
        return best


MOMENTUM = 0.75
# A stretch between checkpoints is good if the loss rose in this share of its steps.
RISING = 0.75


def checkpoints(steps: int) -> list[int]:
    """After which steps the step sizes are looked at: at 22% of them, then ever more often, at least every 6%."""
    places, percent, gap = [], 0, 22
    while percent + gap <= 100:
        percent += gap
        places.append(-(-percent * steps // 100))
        gap = max(gap - 3, 6)
    return sorted(set(places))


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
                break
            look, gradient = view.climb(point)
            best.offer(point, look)
            pace.record(point, look, gradient)
            if step in ends:
                point, gradient = pace.checked(point, gradient)
        best.offer(point, view.look(point))
        return best

    def _loss(self, model: Model, x: Tensor, y: Tensor, turn: int) -> AttackLoss:
        if not self.targets:
            return LOSSES[self.loss]
        output = Forward(model)(x)
        if self.targets >= output.shape[1]:
            raise InputError(
                f"expected fewer targets than the {output.shape[1]} classes, but got {self.targets}; "
                f"use targets={output.shape[1] - 1}"
            )
        ranked = without_label(output, y).argsort(1, descending=True)
        return dlr_towards(ranked[:, turn % self.targets])


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


@dataclass(frozen=True, repr=False)
class RandomSearch(Attack):
    """Asks the model at random points as far away as allowed, and keeps the best: an attack without gradients."""

    tries: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("tries", self.tries, minimum=1)

    def _attacked(self, model: Model, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        ball, view = Ball(x, self.space()), View(model, y, LOSSES["ce"])
        points = (ball.corner(generator) for _ in range(self.tries))
        first = next(points)
        best = Best(first, view.look(first))
        for point in points:
            best.offer(point, view.look(point))
        return best.point


@dataclass(frozen=True, repr=False)
class Worst(Value):
    """Several attacks, one after the other: each sees only the examples that withstood those before it."""

    attacks: tuple[Attack, ...]

    def __init__(self, attacks: Sequence[Attack]) -> None:
        if not attacks:
            raise InputError("expected at least one attack, but got none")
        object.__setattr__(self, "attacks", tuple(attacks))

    def perturb(self, model: Model, x: Tensor, y: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """x' of the first attack that succeeds, of the last one where none does; x where the model errs anyway."""
        generator = generator or seeded(x.device)
        with watched(model, x.device):
            forward, result = Forward(model), x.detach().clone()
            for attack in self.attacks if len(x) else ():
                left = (forward(result).argmax(1) == y).nonzero().squeeze(1)
                if not len(left):
                    break
                result[left] = attack.perturb(model, x[left], y[left], generator)
            return result
