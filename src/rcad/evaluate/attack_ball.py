"""The points an attack may choose: all within a distance of x, and inside the bounds, exact after rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rcad.errors import InputError
from rcad.loss.perturbations import Move, unit

# What the float arithmetic of one L2 projection may add to a length, relative to it; some hundreds of roundings.
ARITHMETIC = 16
# Inputs that leave the bounds by less than this share of their span do so by rounding, not by another scale.
OUTSIDE = 1e-5


class Ball:
    """The allowed points around a batch x, in float32 or float64.

    In "linf" every coordinate gets limits that are rounded towards x. In "l2" the radius is made smaller by what
    rounding the coordinates can add to it, a few millionths of a usual radius. Either way |x' - x| <= eps holds for the
    numbers that are returned, not only for those before rounding.
    """

    def __init__(self, x: Tensor, move: Move) -> None:
        if x.dtype not in (torch.float32, torch.float64):
            raise InputError(
                f"expected inputs in float32 or float64, in which a small distance can be kept, but got {x.dtype}; "
                "call x.float() (the model may run under autocast)"
            )
        self.x, self.move = x, move
        self._ones = (-1, *[1] * (x.ndim - 1))
        self._std = None if move.std is None else move._like(move.std, x)
        self._low, self._high = self._bounds()
        if move.norm == "linf":
            reach = torch.tensor(move.alpha, device=x.device, dtype=torch.float64)
            reach = reach if move.std is None else reach / move._like(move.std, x.double())
            low, high = _limit(x, -reach), _limit(x, reach)
            self._low = low if self._low is None else torch.maximum(low, self._low)
            self._high = high if self._high is None else torch.minimum(high, self._high)
        else:
            # Each coordinate of x' is rounded once, by at most half a unit in its last place.
            std = 1.0 if self._std is None else self._std
            half = torch.finfo(x.dtype).eps / 2
            rounding = half * torch.linalg.vector_norm((x.abs() * std + move.alpha).flatten(1), dim=1)
            exact = 1 - ARITHMETIC * torch.finfo(x.dtype).eps
            self._radius = ((move.alpha - rounding) * exact).clamp(min=0).view(self._ones)

    def climbed(self, point: Tensor, gradient: Tensor, size: float | Tensor) -> Tensor:
        """The point moved by `size` (a number, or one per example) in the direction of a gradient, and projected."""
        if isinstance(size, Tensor):
            size = size.view(self._ones)
        return self.projected(point + self._from_pixels(size * self.move.direction(torch.nan_to_num(gradient))))

    def projected(self, point: Tensor) -> Tensor:
        """The nearest allowed point ("l2" with bounds: first onto the sphere, then into the bounds)."""
        if self.move.norm == "l2":
            step = self._to_pixels(point - self.x)
            length = torch.linalg.vector_norm(step.flatten(1), dim=1).view(self._ones)
            shrink = (self._radius / length.clamp(min=torch.finfo(step.dtype).tiny)).clamp(max=1.0)
            point = self.x + self._from_pixels(step * shrink)
        return point if self._low is None else torch.clamp(point, self._low, self._high)

    def start(self, generator: torch.Generator) -> Tensor:
        """A random point: uniform in the cube ("linf"), or in any direction at a uniform distance up to eps ("l2").

        From the sphere itself, steps of 2.5 eps in all do not get all the way round to the best point: such starts left
        up to 2 points more accuracy on digits.
        """
        if self.move.norm == "linf":
            noise = 2 * self._drawn(torch.rand, self.x.shape, generator) - 1
        else:
            noise = unit(self._drawn(torch.randn, self.x.shape, generator), "l2")
            noise = noise * self._drawn(torch.rand, (len(self.x), *self._ones[1:]), generator)
        return self.projected(self.x + self._from_pixels(self.move.alpha * noise))

    def corner(self, generator: torch.Generator) -> Tensor:
        """A random point as far away as allowed: a corner of the cube ("linf"), or a point of the sphere ("l2")."""
        noise = unit(self._drawn(torch.randn, self.x.shape, generator), self.move.norm)
        return self.projected(self.x + self._from_pixels(self.move.alpha * noise))

    def _drawn(self, sample: Callable[..., Tensor], shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Noise like x, from a generator on any device."""
        return sample(shape, generator=generator, device=generator.device, dtype=self.x.dtype).to(self.x.device)

    def _to_pixels(self, step: Tensor) -> Tensor:
        return step if self._std is None else step * self._std

    def _from_pixels(self, step: Tensor) -> Tensor:
        return step if self._std is None else step / self._std

    def _bounds(self) -> tuple[Tensor | None, Tensor | None]:
        if self.move.bounds is None:
            return None, None
        x = self.x
        limits = self.move._limits(x.double())
        low, high = (torch.as_tensor(v, device=x.device, dtype=torch.float64).to(x.dtype).expand_as(x) for v in limits)
        slack = OUTSIDE * (high - low)
        if bool(((x < low - slack) | (x > high + slack) | ~torch.isfinite(x)).any()):
            raise InputError(
                f"expected inputs within the bounds {self.move.bounds}, but got values from {x.min().item():g} to "
                f"{x.max().item():g}; give mean and std if they were normalised, or bounds=None for a table"
            )
        return torch.minimum(low, x), torch.maximum(high, x)

    def whole_space(self) -> float:
        """An eps that reaches every point of the bounds; without them, ten times the spread of the batch.

        Examples that do not spread, a single one for instance, are taken as far from 0 as from others.
        """
        if self.move.bounds is None:
            far = [self._to_pixels(self.x - centre).abs().max().item() for centre in (self.x.mean(0), 0.0)]
            spread = 10 * (far[0] or far[1] or 1.0)
        else:
            spread = self.move.bounds[1] - self.move.bounds[0]
        return spread if self.move.norm == "linf" else spread * math.sqrt(self.x[0].numel())


def _limit(x: Tensor, reach: Tensor) -> Tensor:
    """x + reach, rounded towards x where rounding to nearest would go beyond."""
    rounded = (x.double() + reach).to(x.dtype)
    beyond = (rounded.double() - x.double()).abs() > reach.abs()
    return torch.where(beyond, torch.nextafter(rounded, x), rounded)
