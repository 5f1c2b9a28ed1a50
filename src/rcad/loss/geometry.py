"""Distances between inputs: the norm, the units and the limits of a move, with no model in sight."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from rcad.errors import InputError, finite, is_number, one_of
from rcad.loss.tensors import full_precision
from rcad.loss.values import Value

Norm = Literal["l2", "raw", "linf"]
Channels = tuple[float, ...]


def unit(g: Tensor, norm: Norm) -> Tensor:
    """g scaled, per example, to length 1 in the given norm; a zero gradient stays zero."""
    g = full_precision(g)
    if norm == "raw":
        return g
    if norm == "linf":
        return g.sign()
    # Dividing by the largest entry first keeps the squares of tiny gradients from underflowing.
    flat = g.flatten(1)
    flat = flat / flat.abs().amax(1, keepdim=True).clamp(min=torch.finfo(g.dtype).tiny)
    length: Tensor = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
    return (flat / length.clamp(min=0.5)).view_as(g)


def masked(step: Tensor, mask: Tensor | None) -> Tensor:
    """The step with the positions outside the mask set to zero; a mask (B, T) covers (B, T, ...)."""
    if mask is None:
        return step
    return step * mask.view(*mask.shape, *[1] * (step.ndim - mask.ndim)).to(step.dtype)


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    """A number, or one per channel, as a tuple."""
    try:
        return (float(values),) if is_number(values) else tuple(float(v) for v in values)
    except (TypeError, ValueError):
        raise InputError(f"expected {name} to be numbers, one per channel, but got {values!r}") from None


@lru_cache(maxsize=64)
def _channels(values: Channels, ndim: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """One number per channel, shaped to broadcast over (B, C, ...)."""
    return torch.tensor(values, device=device, dtype=dtype).view(1, -1, *[1] * (ndim - 2))


@dataclass(frozen=True, repr=False)
class Move(Value):
    """What every perturbation shares: a distance, the norm it is measured in, and the space it lives in.

    Args:
        alpha: distance per example, in the units of the input (an L2 distance in [0, 1] pixel space for images).
        norm: "l2", "linf", or "raw" (alpha times the gradient itself: the paper's formula).
        bounds: (low, high) limits on x' in the same units; None leaves it free.
        mean, std: per-channel numbers by which the inputs were already normalised.
    """

    alpha: float
    norm: Norm = "l2"
    bounds: tuple[float, float] | None = None
    mean: Channels | None = None
    std: Channels | None = None

    def __post_init__(self) -> None:
        finite("alpha", self.alpha, minimum=0.0)
        one_of("norm", self.norm, self._norms())
        for name in ("bounds", "mean", "std"):
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, _numbers(name, values))
        if self.bounds is not None and not (len(self.bounds) == 2 and self.bounds[0] < self.bounds[1]):
            raise InputError(f"expected bounds as (low, high) with low < high, but got {self.bounds}")
        if self.std is not None and not all(math.isfinite(s) and s > 0 for s in self.std):
            raise InputError(f"expected std to hold positive numbers, but got {self.std}")
        if self.bounds is not None and (self.std is None) != (self.mean is None):
            raise InputError("expected both mean and std with bounds, or neither, but got only one of them")

    def _norms(self) -> tuple[str, ...]:
        return get_args(Norm)

    def direction(self, gradient: Tensor, mask: Tensor | None = None) -> Tensor:
        """The step of length 1 that a gradient with respect to x gives, in pixel units."""
        g = full_precision(gradient)
        if self.std is not None:
            g = g / self._like(self.std, g)
        return unit(masked(g, mask), self.norm)

    def moved(self, x: Tensor, step: Tensor) -> Tensor:
        """x moved by a step in pixel units, kept inside the bounds, detached and in x's dtype."""
        wide = full_precision(x.detach())
        result = wide + (step if self.std is None else step / self._like(self.std, step))
        if self.bounds is not None:
            low, high = self._limits(wide)
            result = result.clamp(low, high)
        return result.to(x.dtype)

    def _like(self, values: Channels, x: Tensor) -> Tensor:
        if x.ndim < 2 or len(values) not in (1, x.shape[1]):
            raise InputError(
                f"expected one number per channel of {tuple(x.shape)}, but got {len(values)}; pass such mean= and std="
            )
        return _channels(values, x.ndim, x.device, x.dtype)

    def _limits(self, x: Tensor) -> tuple[Any, Any]:
        assert self.bounds is not None
        low, high = self.bounds
        if self.std is None or self.mean is None:
            return low, high
        mean, std = self._like(self.mean, x), self._like(self.std, x)
        return (low - mean) / std, (high - mean) / std
