"""Images that stay on disk, behind the little of a tensor that training and evaluation use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor

from rcad.errors import InputError

if TYPE_CHECKING:
    from rcad.data.streams import Index, Pixels, Stream


class Streamed:
    """uint8 images (N, C, H, W) that come to the device as they are indexed.

    What `expect` was told is decoded ahead; whatever else is asked for is decoded then.
    """

    ndim, dtype = 4, torch.uint8

    def __init__(self, stream: Stream, device: torch.device) -> None:
        self.stream, self.device = stream, device
        self.shape = torch.Size(stream.shape)
        self._expected: Iterator[Index] = iter(())
        self._coming: Iterator[Pixels] = iter(())

    def __len__(self) -> int:
        return len(self.stream)

    def expect(self, batches: Iterable[Tensor]) -> None:
        """The next batches will be the examples with these indices."""
        wanted: Sequence[Index] = [part.numpy() for part in batches]
        self._expected, self._coming = iter(wanted), self.stream.batches(wanted)

    def __getitem__(self, index: Tensor) -> Tensor:
        rows: Index = index.cpu().numpy()
        expected = next(self._expected, None)
        if expected is None or len(expected) != len(rows) or (expected != rows).any():
            self._expected, self._coming = iter(()), iter(())
            return self._sent(next(self.stream.batches([rows])))
        return self._sent(next(self._coming))

    def part(self, rows: slice) -> Streamed:
        """These of them."""
        return Streamed(self.stream[rows], self.device)

    def split(self, size: int) -> Iterator[Tensor]:
        """All of them in order, in parts."""
        for pixels in self.stream.batches(part.numpy() for part in torch.split(torch.arange(len(self)), size)):
            yield self._sent(pixels)

    def _sent(self, pixels: Pixels) -> Tensor:
        images = torch.from_numpy(pixels)
        if self.device.type == "cuda":
            return images.pin_memory().to(self.device, non_blocking=True)
        return images

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise InputError(
            "expected images in memory to measure distances, but these are streamed from disk; give alpha a number"
        )


def in_parts(x: Tensor | Streamed, size: int, rows: slice = slice(None)) -> Iterable[Tensor]:
    """These of the examples in order, so many at a time."""
    return x.part(rows).split(size) if isinstance(x, Streamed) else torch.split(x[rows], size)
