"""Projected gradient steps on the linear problem, for many training sets (and many alpha) at once.

    ERM:   w <- P(w - lr * grad mean max(0, gamma - y<w, x>))
    RCAD:  w <- P(w + lr * grad M(w)),   M(w) = mean exp(-|<w, x~>|),   x~ = x - alpha y w  if y<w, x> < gamma, else x

The paper defines P as the projection onto the unit ball and then, "for simplicity", renormalises to the sphere in its
proofs; and its x~ depends on w, while its algorithm holds x~ constant. All four combinations are here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from rcad.errors import one_of
from rcad.paper.theory.linear import Sample, margins

Projection = Literal["sphere", "ball"]
Reading = Literal["constant", "through"]
Step = Callable[[Tensor], Tensor]

# The paper names no step sizes. ERM's mean accuracy is the same from 0.05 to 0.5. RCAD's matters for alpha = 0.01: see
# sweeps.step_sizes.
ERM_LR, RCAD_LR = 0.1, 0.05


def project(w: Tensor, onto: Projection) -> Tensor:
    """w: (..., features) -> the same shape. "sphere": norm 1; "ball": norm at most 1."""
    one_of("projection", onto, get_args(Projection))
    norm: Tensor = w.norm(dim=-1, keepdim=True)
    return w / norm if onto == "sphere" else w / norm.clamp_min(1)


def margin_loss(sample: Sample, w: Tensor, gamma: float) -> Tensor:
    """Mean of max(0, gamma - y<w, x>) over each training set. w: (..., draws, d + 1) -> (..., draws)."""
    return (gamma - margins(sample, w)).clamp_min(0).mean(-1)


def margin_gradient(sample: Sample, w: Tensor, gamma: float) -> Tensor:
    """Gradient of margin_loss in w, 0 at the kink as the paper has it. (..., draws, d + 1)."""
    inside = (margins(sample, w) < gamma).to(w.dtype)
    return -_weighted_mean(sample, inside)


def surrogate(sample: Sample, w: Tensor, alpha: float | Tensor, gamma: float, reading: Reading = "constant") -> Tensor:
    """M(w), the stand-in for the mean entropy at x~. w: (..., draws, d + 1) -> (..., draws).

    The readings have the same value and differ under autograd. alpha: a number, or broadcastable to (..., draws).
    """
    frozen = w.detach() if reading == "constant" else w
    margin = margins(sample, w)
    inside = (margin.detach() < gamma).to(w.dtype)
    step = torch.as_tensor(alpha, dtype=w.dtype) * (w * frozen).sum(-1)
    return (-(margin - step[..., None] * inside).abs()).exp().mean(-1)


def surrogate_gradient(sample: Sample, w: Tensor, alpha: float | Tensor, gamma: float, reading: Reading) -> Tensor:
    """Gradient of M in w, written out: autograd on `surrogate` gives the same. (..., draws, d + 1).

    The readings differ by a multiple of w alone, so on the sphere they differ only in the length of a step.
    """
    one_of("reading", reading, get_args(Reading))
    alpha = torch.as_tensor(alpha, dtype=w.dtype)
    margin = margins(sample, w)
    inside = (margin < gamma).to(w.dtype)
    at_step = margin - (alpha * w.square().sum(-1))[..., None] * inside
    slope = -at_step.sign() * (-at_step.abs()).exp()
    radial = alpha * (slope * inside).mean(-1)
    return _weighted_mean(sample, slope) - (1 if reading == "constant" else 2) * radial[..., None] * w


def _weighted_mean(sample: Sample, weight: Tensor) -> Tensor:
    """Mean over examples of weight * y x. weight: (..., draws, n) -> (..., draws, d + 1)."""
    flat = weight.reshape(-1, *weight.shape[-2:]).movedim(0, -2)
    total = flat @ (sample.y[..., None] * sample.x)
    return total.movedim(-2, 0).reshape(*weight.shape[:-1], sample.x.shape[-1]) / sample.y.shape[-1]


def erm_step(sample: Sample, gamma: float, *, lr: float = ERM_LR, projection: Projection = "sphere") -> Step:
    """One iteration of projected descent on the margin loss, as a function of w."""
    return lambda w: project(w - lr * margin_gradient(sample, w, gamma), projection)


def rcad_step(
    sample: Sample,
    gamma: float,
    alpha: float | Tensor,
    *,
    lr: float = RCAD_LR,
    projection: Projection = "sphere",
    reading: Reading = "constant",
) -> Step:
    """One iteration of projected ascent on M, as a function of w. alpha: a number, or broadcastable to (..., draws)."""
    return lambda w: project(w + lr * surrogate_gradient(sample, w, alpha, gamma, reading), projection)


def trajectory(step: Step, w: Tensor, steps: int) -> Tensor:
    """w and the iterates after it: (steps + 1, *w.shape)."""
    path = [w]
    for _ in range(steps):
        path.append(step(path[-1]))
    return torch.stack(path)


def final(step: Step, w: Tensor, steps: int) -> Tensor:
    """The last iterate alone: the shape of one step's result."""
    for _ in range(steps):
        w = step(w)
    return w
