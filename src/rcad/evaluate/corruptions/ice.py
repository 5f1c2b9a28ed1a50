"""Pictures of frost ferns, grown by program: the published textures are photographs that are not ours to give away.

A fern is a stem with side branches at about 60 degrees, which branch again; many of them on a pale cloud make a
frosted window. The pictures repeat at their borders, so that a piece may be cut anywhere.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor
from torch.nn import functional as F

PICTURES = 5
_SIDE = 512
_FERNS = 46
_BRANCHES = (26, 9)
_TINT = (0.72, 0.88, 1.0)


@functools.lru_cache(maxsize=4)
def ice(shrink: int) -> Tensor:
    """Pictures (PICTURES, 3, side, side) in [0, 1], `shrink` times smaller than drawn; the same on every machine."""
    return F.avg_pool2d(_drawn(), shrink)


@functools.cache
def _drawn() -> Tensor:
    generator = torch.Generator().manual_seed(20190327)
    return torch.stack([_picture(generator) for _ in range(PICTURES)])


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
