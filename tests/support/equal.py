"""Two models after training: are they the same, and how far apart are they? And the plain loop that adapters equal."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from rcad import Criterion, augment
from rcad.integrations.resolve import as_method
from small_nets import CLASSES


def same_parameters(first: nn.Module, second: nn.Module, *, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Parameters and buffers are equal: bit for bit unless a tolerance is given."""
    left, right = first.state_dict(), second.state_dict()
    assert left.keys() == right.keys()
    for name, value in left.items():
        torch.testing.assert_close(value, right[name], rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


def moved(first: nn.Module, second: nn.Module) -> float:
    """The largest difference between two of their parameters."""
    return max((p - q).abs().max().item() for p, q in zip(first.parameters(), second.parameters(), strict=True))


def sgd(net: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), **{"lr": 0.1, "momentum": 0.9, **options})


def plain_loop(
    net: nn.Module,
    method: str | Criterion,
    batches: Iterable[Any],
    optimizer: torch.optim.Optimizer | None = None,
    *,
    fused: bool = True,
    accumulate: int = 1,
    clip: float | None = None,
    per_step: bool = True,
    generator: torch.Generator | None = None,
) -> nn.Module:
    """The net, trained by the core's criterion and a method's augmentations, with nothing of any framework's.

    Batches are (x, y), perhaps with options of the criterion. `per_step`: `every=` counts steps, else batches.
    """
    value = None if isinstance(method, Criterion) else as_method(method)
    criterion = method if value is None else value.criterion()
    optimizer = optimizer or sgd(net)
    for number, (x, y, *more) in enumerate(batches):
        options = {"step": number // accumulate if per_step else number, **(more[0] if more else {})}
        if value is not None:
            options |= {"raw": x, "raw_target": y, "generator": generator}
            x, y = augment(value.augment, x, y, classes=CLASSES, generator=generator)
        if fused:
            criterion.backward(net, x, y, accumulate=accumulate, **options)
        else:
            (criterion(net, x, y, **options) / accumulate).backward()
        if (number + 1) % accumulate == 0:
            if clip is not None:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
    return net
