"""What all attacks share: a radius, a norm, bounds, and how a search is repeated for the examples that withstood it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from rcad.errors import InputError, Value, finite, one_of, whole
from rcad.evaluate.attack_ball import Ball
from rcad.evaluate.attack_search import Best, watched
from rcad.loss.model_calls import Model
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

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the attack's name and its fields; `rcad.evaluate.attacks.from_dict` reads it back."""
        plain = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}
        return {"attack": type(self).__name__, **plain}

    def perturb(self, model: Model, x: Tensor, y: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The attacked batch x', detached. The model, its mode, its gradients and the random state stay as they are.

        Args:
            model: a classifier with 2 or more logits; it is asked in eval mode.
            x: float32 or float64 (B, ...).
            y: labels (B,).
            generator: where random starts come from; None takes a new one, seeded 0, so that a call repeats itself.
        """
        if y.is_floating_point() or y.ndim != 1 or len(y) != len(x):
            raise InputError(f"expected one class label per example, but got {y.dtype} of shape {tuple(y.shape)}")
        if generator is None:
            generator = torch.Generator(device=x.device).manual_seed(0)
        with watched(model, x.device):
            x, y = x.detach().clone(), y.detach().long().clone()
            return self._attacked(model, x, y, generator) if len(x) else x

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
        """How many searches there are in all."""
        return self.restarts

    @abstractmethod
    def search(self, model: Model, ball: Ball, y: Tensor, turn: int, generator: torch.Generator) -> Best:
        """One search, the `turn`-th."""

    def _attacked(self, model: Model, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        space = self.space()
        best = self.search(model, Ball(x, space), y, 0, generator)
        for turn in range(1, self.rounds()):
            left = (~best.wrong).nonzero().squeeze(1)
            if not len(left):
                break
            best.offer_for(left, self.search(model, Ball(x[left], space), y[left], turn, generator))
        return best.point
