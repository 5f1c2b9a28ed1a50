"""Random numbers for a batch, from one generator or from one for each of the runs that share the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


class Alternating:
    """The generators of several runs whose examples alternate in a batch: each run draws as if it were alone."""

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        self.generators = tuple(generators)

    def __len__(self) -> int:
        return len(self.generators)


Source = torch.Generator | Alternating
"""Where random numbers come from."""


def drawn(sample: Callable[..., Tensor], count: int, source: Source | None, **options: Any) -> Tensor:
    """sample(count, generator=..., **options) with the examples in the first dimension."""
    if not isinstance(source, Alternating):
        return sample(count, generator=source, **options)
    parts = [sample(count // len(source), generator=generator, **options) for generator in source.generators]
    return alternating(parts)


def alternating(parts: Sequence[Tensor]) -> Tensor:
    """The examples of several runs in turn: the first of each, then the second of each."""
    return torch.stack(list(parts), 1).flatten(0, 1)
