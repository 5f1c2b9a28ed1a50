"""Optimizers from a config, their state as named tensors, and the learning rate as a function of the progress."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

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


def build_optimizer(optim: OptimConfig, model: nn.Module, *, capturable: bool = False) -> torch.optim.Optimizer:
    """SGD or AdamW over all parameters of the model.

    Args:
        capturable: for use inside a CUDA graph: one fused kernel, the learning rate a tensor on the device.
    """
    lr: Any = optim.lr
    if capturable:
        lr = torch.tensor(optim.lr, device=next(model.parameters()).device)
    if optim.name == "sgd":
        return torch.optim.SGD(
            model.parameters(),
            lr=lr,
            momentum=optim.momentum,
            nesterov=optim.nesterov,
            weight_decay=optim.weight_decay,
            fused=capturable or None,
        )
    return torch.optim.AdamW(
        model.parameters(), lr=lr, weight_decay=optim.weight_decay, fused=capturable or None, capturable=capturable
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's memory as tensors named "<parameter index>.<key>"; the rate follows from the schedule."""
    state: dict[int, dict[str, Any]] = optimizer.state_dict()["state"]
    return {
        f"{index}.{key}": value if isinstance(value, Tensor) else torch.tensor(value)
        for index, memory in state.items()
        for key, value in memory.items()
        if value is not None
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Gives the optimizer the memory that `optimizer_tensors` took; a ValueError where it is of others."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, key = name.split(".", 1)
        wanted = torch.Size() if key == "step" else parameters[int(index)].shape
        if value.shape != wanted or (key == "step" and not 0 <= value.item() < 2**53):
            raise ValueError(f"a memory of the optimizer, {name}, that fits no parameter")
        state.setdefault(int(index), {})[key] = value
    keys = {"step", "exp_avg", "exp_avg_sq"} if isinstance(optimizer, torch.optim.AdamW) else {"momentum_buffer"}
    if any(memory.keys() != keys for memory in state.values()):
        raise ValueError("a memory of the optimizer that is not whole")
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
