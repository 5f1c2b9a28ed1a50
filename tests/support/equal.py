"""Two models after training: are they the same, and how far apart are they?"""

from __future__ import annotations

import torch
from torch import nn


def same_parameters(first: nn.Module, second: nn.Module, *, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Parameters and buffers are equal: bit for bit unless a tolerance is given."""
    left, right = first.state_dict(), second.state_dict()
    assert left.keys() == right.keys()
    for name, value in left.items():
        torch.testing.assert_close(value, right[name], rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


def moved(first: nn.Module, second: nn.Module) -> float:
    """The largest difference between two of their parameters."""
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return max((p - q).abs().max().item() for p, q in pairs)
