"""The least time that a step's arithmetic takes: its operations at the rate of a large matrix product."""

from __future__ import annotations

import time

import torch
from step_jobs import wait
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


def flops_of(model: nn.Module, x: Tensor) -> float:
    """Floating-point operations of one forward: its convolutions, linear layers and other products."""
    with torch.no_grad(), FlopCounterMode(display=False) as counted:
        model.eval()(x)
    return float(counted.get_total_flops())


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
