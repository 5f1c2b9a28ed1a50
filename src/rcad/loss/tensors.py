"""Small tensor helpers that several modules share."""

from __future__ import annotations

import torch
from torch import Tensor

from rcad.errors import InputError


def full_precision(x: Tensor) -> Tensor:
    """x in at least float32: half precision is for the network, not for logarithms."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def per_example(values: Tensor, valid: Tensor | None = None) -> Tensor:
    """Averages every dimension but the first, over the `valid` positions only."""
    if values.ndim == 1:
        return values if valid is None else values * valid
    if valid is None:
        return values.flatten(1).mean(1)
    return (values * valid).flatten(1).sum(1) / valid.flatten(1).sum(1).clamp(min=1)


def matching_target(output: Tensor, target: Tensor) -> Tensor:
    """The target in the output's shape: (B,) is read as (B, 1)."""
    if target.shape == output.shape:
        return target
    if target.ndim == 1 and output.shape == (len(target), 1):
        return target[:, None]
    if target.ndim == 2 and output.ndim == 1 and target.shape == (len(output), 1):
        return target[:, 0]
    raise InputError(
        f"expected a target of shape {tuple(output.shape)} like the prediction, but got {tuple(target.shape)}"
    )


def same_order(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape lie in memory in the same order."""
    wide = [i for i, size in enumerate(other.shape) if size > 1]
    return one.shape == other.shape and all(one.stride(i) == other.stride(i) for i in wide)
