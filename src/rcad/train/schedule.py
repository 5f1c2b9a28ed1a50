"""The learning rate as a pure function of the progress: nothing to save, nothing to restore."""

from __future__ import annotations

import math

from rcad.runs.config import OptimConfig


def learning_rate(optim: OptimConfig, epochs: int, progress: float) -> float:
    """The rate after `progress` epochs (a fraction inside an epoch).

    The warm-up is linear and reaches the full rate after `warmup` epochs; "multistep" then drops at the start of
    each milestone epoch, "cosine" falls to zero at the end.
    """
    if progress < optim.warmup:
        return optim.lr * max(progress, 1e-3) / optim.warmup
    if optim.schedule == "cosine":
        done = (progress - optim.warmup) / max(epochs - optim.warmup, 1)
        return optim.lr * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
    if optim.schedule == "multistep":
        return optim.lr * optim.gamma ** sum(progress >= milestone for milestone in optim.milestones)
    return optim.lr
