"""What corruptions are made of: random numbers by image, linear maps, and pictures of ice."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 16


class Draws:
    """The random numbers of images first, first + 1, ..., first + count - 1, whatever batch they come in.

    Blocks of `BLOCK` consecutive images share a generator seeded by (seed, key, block); a batch draws the blocks it
    touches whole and cuts out its part. CPU and CUDA generators differ, as everywhere in torch.
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
        """The same from the standard normal distribution."""
        return self._fill(shape, lambda part, generator: part.normal_(generator=generator))

    def integers(self, high: int, *shape: int) -> Tensor:
        """Of shape (count, *shape), int64 from 0..high-1."""
        # The product of a float just below 1 and `high` can round up to `high`.
        return (self.uniform(*shape) * high).long().clamp_(max=high - 1)

    def poisson(self, rates: Tensor) -> Tensor:
        """Counts with the given rates (count, ...)."""
        # One generator per image: how many numbers a count consumes depends on its rate, so neighbours must not share.
        generators = (self._generator("image", self._first + i) for i in range(len(rates)))
        return torch.stack([torch.poisson(rate, generator=own) for rate, own in zip(rates, generators, strict=True)])

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


# Above this many taps a convolution beats shifted sums.
_MOST_SHIFTS = 40


def separable(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """rows @ image @ columns.T for every image and channel: on a CPU ten times faster than one-channel convolutions."""
    return rows.to(x.device) @ (x @ columns.to(x.device).T)


def gaussian_blur(x: Tensor, sigma: float, truncate: float = 4.0) -> Tensor:
    """Smoothed with a Gaussian of `sigma` pixels, cut off after `truncate` sigmas."""
    if int(truncate * sigma + 0.5) == 0:
        return x
    return separable(x, *(_gaussian_matrix(side, sigma, truncate) for side in x.shape[-2:]))


def convolve(x: Tensor, kernel: npt.NDArray[np.float64]) -> Tensor:
    """x, mirrored beyond its border, filtered with a square kernel of odd side, channel by channel."""
    reach = len(kernel) // 2
    height, width = x.shape[-2:]
    padded = mirrored(x, reach)
    taps = np.argwhere(kernel > 0)
    if len(taps) > _MOST_SHIFTS:
        weight = torch.as_tensor(kernel, dtype=x.dtype, device=x.device)[None, None]
        return F.conv2d(padded.flatten(0, 1).unsqueeze(1), weight).view_as(x)
    out = torch.zeros_like(x)
    for row, column in taps.tolist():
        out.add_(padded[..., row : row + height, column : column + width], alpha=float(kernel[row, column]))
    return out


def mirrored(x: Tensor, reach: int) -> Tensor:
    """x with `reach` more pixels on every side, which may exceed the image's own side."""
    rows, columns = (_mirror(np.arange(-reach, side + reach), side) for side in x.shape[-2:])
    tall = x.index_select(-2, torch.as_tensor(rows, device=x.device))
    return tall.index_select(-1, torch.as_tensor(columns, device=x.device))


def disk(radius: float, sigma: float) -> npt.NDArray[np.float64]:
    """A flat disk softened by a Gaussian cut to 3 x 3 (5 x 5 from radius 9 on), summing to 1."""
    soft = 1 if radius <= 8 else 2
    reach = math.floor(radius) + soft
    at = np.arange(-reach, reach + 1)
    flat = (at[:, None] ** 2 + at**2 <= radius**2).astype(np.float64)
    bell = np.exp(-((np.arange(-soft, soft + 1) / sigma) ** 2) / 2)
    bell /= bell.sum()
    kernel: npt.NDArray[np.float64] = np.apply_along_axis(np.convolve, 0, flat, bell, mode="same")
    kernel = np.apply_along_axis(np.convolve, 1, kernel, bell, mode="same")
    kernel[kernel < 1e-6 * kernel.max()] = 0
    kernel /= kernel.sum()
    return kernel


def streak(x: Tensor, angle: Tensor, radius: int, sigma: float) -> Tensor:
    """x, continued by its border pixels, smeared one way at `angle` (radians, one per image), like half a Gaussian."""
    count, channels, height, width = x.shape
    weights = np.exp(-((np.arange(2 * radius + 1) / sigma) ** 2) / 2)
    weights = weights[weights > 1 / 512]
    weights /= weights.sum()
    reach = len(weights) - 1
    padded = F.pad(x, [reach] * 4, mode="replicate")
    stride = width + 2 * reach
    rows = torch.arange(height, device=x.device)[:, None] + reach
    pixel = (rows * stride + torch.arange(width, device=x.device) + reach).view(1, -1)
    flat = padded.flatten(2)
    out = torch.zeros_like(x).flatten(2)
    for step, weight in enumerate(weights.tolist()):
        across, down = (step * angle.cos()).round().long(), (step * angle.sin()).round().long()
        source = pixel + (down * stride + across)[:, None]
        out.add_(flat.gather(2, source[:, None].expand(count, channels, -1)), alpha=weight)
    return out.view_as(x)


@functools.lru_cache(maxsize=256)
def zoom_matrix(side: int, factor: float) -> Tensor:
    """Enlarges about the centre by `factor` >= 1 with linear interpolation; the side stays."""
    place = (np.arange(side) - (side - 1) / 2) / factor + (side - 1) / 2
    below = np.floor(place).astype(int).clip(0, max(side - 2, 0))
    share = place - below
    matrix = np.zeros((side, side))
    matrix[np.arange(side), below] += 1 - share
    matrix[np.arange(side), np.minimum(below + 1, side - 1)] += share
    return torch.as_tensor(matrix, dtype=torch.float32)


@functools.lru_cache(maxsize=256)
def coarse_matrix(side: int, small: int) -> Tensor:
    """Shrinks to `small` pixels by averaging whole pixels, then enlarges again by repeating them."""
    scale = side / small
    shrink = np.zeros((small, side))
    for i in range(small):
        centre = (i + 0.5) * scale
        first, last = math.floor(centre - scale / 2 + 0.5), math.floor(centre + scale / 2 + 0.5)
        shrink[i, first : min(last, side)] = 1
    shrink /= shrink.sum(1, keepdims=True)
    nearest = ((np.arange(side) + 0.5) / scale).astype(int)
    return torch.as_tensor(shrink[nearest], dtype=torch.float32)


@functools.lru_cache(maxsize=256)
def _gaussian_matrix(side: int, sigma: float, truncate: float) -> Tensor:
    reach = int(truncate * sigma + 0.5)
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-((offsets / sigma) ** 2) / 2)
    matrix = np.zeros((side, side))
    source = _mirror(np.arange(side)[:, None] + offsets, side)
    np.add.at(matrix, (np.arange(side)[:, None], source), weights / weights.sum())
    return torch.as_tensor(matrix, dtype=torch.float32)


def _mirror(index: npt.NDArray[np.int64], side: int) -> npt.NDArray[np.int64]:
    wrapped = index % (2 * side)
    return np.minimum(wrapped, 2 * side - 1 - wrapped)


ICE_PICTURES = 5
_SIDE = 512
_FERNS = 46
_BRANCHES = (26, 9)
_TINT = (0.72, 0.88, 1.0)


@functools.cache
def ice(shrink: int) -> Tensor:
    """Frost ferns (ICE_PICTURES, 3, side, side) in [0, 1], `shrink` times smaller than drawn; the same everywhere.

    They are grown by program: the published textures are photographs that are not ours to give away. A fern is a stem
    with side branches at about 60 degrees, which branch again; many of them on a pale cloud make a frosted window. The
    pictures repeat at their borders, so that a piece may be cut anywhere.
    """
    if shrink > 1:
        return F.avg_pool2d(ice(1), shrink)
    generator = torch.Generator().manual_seed(20190327)
    return torch.stack([_picture(generator) for _ in range(ICE_PICTURES)])


def _picture(generator: torch.Generator) -> Tensor:
    ferns = _rasterised(_grown(generator))
    glow = _periodic_blur(ferns, 3.0)
    cloud = _periodic_blur(torch.randn(_SIDE, _SIDE, generator=generator), 24.0)
    cloud = 0.5 + 0.5 * (cloud / (2.5 * cloud.std())).clamp(-1, 1)
    light = 0.22 + 0.22 * cloud + 0.08 * glow.clamp(max=2) + (0.3 + 0.4 * cloud) * (1 - torch.exp(-0.7 * ferns))
    tint = torch.tensor(_TINT).view(3, 1, 1)
    # The brighter the ice, the whiter.
    colour = tint + (1 - tint) * light.clamp(0, 1) ** 2
    return (light * colour).clamp(0, 1)


def _grown(generator: torch.Generator) -> list[Tensor]:
    """Segments (N, 5) of row, column, angle, length and weight: the stems, their branches, and the branches' own."""

    def uniform(low: float, high: float, count: int) -> Tensor:
        return low + (high - low) * torch.rand(count, generator=generator)

    place = _SIDE * torch.rand(2, _FERNS, generator=generator)
    length = uniform(0.15, 0.5, _FERNS) * _SIDE
    stems = torch.stack([*place, uniform(0, 2 * math.pi, _FERNS), length, uniform(0.5, 1, _FERNS)], 1)
    grown = [stems]
    for count in _BRANCHES:
        parents = grown[-1].repeat_interleave(2 * count, 0)
        along = torch.arange(count).repeat_interleave(2).repeat(len(grown[-1])).add(0.5) / count
        side = torch.tensor([-1.0, 1.0]).repeat(count * len(grown[-1]))
        row, column, angle, size, weight = parents.unbind(1)
        turned = angle + side * uniform(0.85, 1.15, len(parents)) * (math.pi / 3)
        children = [
            row + along * size * angle.sin(),
            column + along * size * angle.cos(),
            turned,
            size * (1 - along) * uniform(0.15, 0.45, len(parents)),
            weight * 0.75,
        ]
        grown.append(torch.stack(children, 1))
    return grown


def _rasterised(levels: list[Tensor]) -> Tensor:
    """How much ice lies on each pixel: points strewn along the segments, twice per pixel, and slightly blurred."""
    canvas = torch.zeros(_SIDE * _SIDE)
    for segments in levels:
        row, column, angle, length, weight = (values[:, None] for values in segments.unbind(1))
        steps = torch.arange(int(2 * segments[:, 3].max()) + 1)[None] / 2
        rows = (row + steps * angle.sin()).round().long() % _SIDE
        columns = (column + steps * angle.cos()).round().long() % _SIDE
        fading = weight * (1 - 0.6 * steps / length.clamp(min=1))
        canvas.index_add_(0, (rows * _SIDE + columns).flatten(), (fading * (steps <= length)).flatten())
    return _periodic_blur(canvas.view(_SIDE, _SIDE), 0.7)


def _periodic_blur(x: Tensor, sigma: float) -> Tensor:
    """A Gaussian blur of a picture that repeats, by its spectrum."""
    rows, columns = torch.fft.fftfreq(_SIDE)[:, None], torch.fft.rfftfreq(_SIDE)
    damping = torch.exp(-2 * (math.pi * sigma) ** 2 * (rows**2 + columns**2))
    blurred: Tensor = torch.fft.irfft2(torch.fft.rfft2(x) * damping, s=x.shape)
    return blurred
