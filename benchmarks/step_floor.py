"""The least time that a step's arithmetic takes: its operations at the rate of a large matrix product."""

from __future__ import annotations

import time
from typing import Any

import torch
from step_jobs import wait
from torch import Tensor, nn


def flops_of(model: nn.Module, x: Tensor) -> float:
    """Floating-point operations of one forward, of its convolutions and linear layers."""
    total = 0.0

    def count(module: nn.Module, inputs: Any, output: Tensor) -> None:
        nonlocal total
        weights = module.weight
        assert isinstance(weights, Tensor)
        places = output.numel() / output.shape[1]
        total += 2.0 * weights.numel() * places

    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    with torch.no_grad():
        model.eval()(x)
    for hook in hooks:
        hook.remove()
    return total


def rate_of(device: torch.device) -> float:
    """Operations a second of a large matrix product, the best of ten."""
    size, kind = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    times = []
    for _ in range(12):
        wait(device)
        start = time.perf_counter()
        a @ b
        wait(device)
        times.append(time.perf_counter() - start)
    return 2.0 * size**3 / min(times[2:])
