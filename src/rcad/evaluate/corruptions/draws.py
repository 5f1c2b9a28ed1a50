"""Random numbers that belong to an image's number, not to its batch.

Blocks of `BLOCK` consecutive images share a generator seeded by (seed, block); a batch draws the blocks it touches
whole and cuts out its part. So image i gets the same numbers whatever the batch size, at the price of a few unused
ones at the ends of a batch. CPU and CUDA generators differ, as everywhere in torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from torch import Tensor

BLOCK = 16


class Draws:
    """The random numbers of images first, first + 1, ..., first + count - 1.

    Args:
        key: what the numbers are for, so that two corruptions of one seed have nothing in common.
    """

    def __init__(self, seed: int, key: str, first: int, count: int, device: torch.device) -> None:
        self._origin = (seed, key)
        self._first, self._count, self._device = first, count, device
        blocks = range(first // BLOCK, -(-(first + count) // BLOCK))
        self._generators = [self._generator("block", block) for block in blocks]

    def uniform(self, *shape: int) -> Tensor:
        """Of shape (count, *shape), from [0, 1)."""
        return self._fill(shape, lambda part, generator: part.uniform_(generator=generator))

    def normal(self, *shape: int) -> Tensor:
        """Of shape (count, *shape), from the standard normal distribution."""
        return self._fill(shape, lambda part, generator: part.normal_(generator=generator))

    def integers(self, high: int, *shape: int) -> Tensor:
        """Of shape (count, *shape), int64 from 0..high-1."""
        # The product of a float just below 1 and `high` can round up to `high`.
        return (self.uniform(*shape) * high).long().clamp_(max=high - 1)

    def poisson(self, rates: Tensor) -> Tensor:
        """Counts with the given rates (count, ...).

        One generator per image: how many numbers a count consumes depends on its rate, so a shared one would let
        an image's neighbours decide about it.
        """
        images = [
            torch.poisson(rate, generator=self._generator("image", self._first + i)) for i, rate in enumerate(rates)
        ]
        return torch.stack(images) if images else rates

    def _fill(self, shape: tuple[int, ...], fill: Callable[[Tensor, torch.Generator], Tensor]) -> Tensor:
        numbers = torch.empty(len(self._generators) * BLOCK, *shape, device=self._device)
        for part, generator in zip(torch.split(numbers, BLOCK), self._generators, strict=True):
            fill(part, generator)
        skipped = self._first % BLOCK
        return numbers[skipped : skipped + self._count]

    def _generator(self, kind: str, number: int) -> torch.Generator:
        digest = hashlib.blake2b(repr((*self._origin, kind, number)).encode(), digest_size=8).digest()
        # manual_seed takes up to 63 bits on every device.
        return torch.Generator(self._device).manual_seed(int.from_bytes(digest, "little") >> 1)
