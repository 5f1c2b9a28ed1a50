"""Digital: low contrast, elastic distortion, coarse pixels. (JPEG has a module of its own.)"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from rcad.evaluate.corruptions.draws import Draws
from rcad.evaluate.corruptions.linear import coarse_matrix, gaussian_blur, separable


def contrast(x: Tensor, kept: float, draws: Draws) -> Tensor:
    """Draws every value towards the mean of its image and channel."""
    mean = x.mean((2, 3), keepdim=True)
    return mean + kept * (x - mean)


def elastic_transform(x: Tensor, field: tuple[float, float, float], draws: Draws) -> Tensor:
    """Moves every pixel by a random affine map plus a smooth random field, with one bilinear sampling."""
    height, width = x.shape[-2:]
    side = min(height, width)
    strength, sigma, jitter = (side * value for value in field)
    move = _affine(height, width, jitter, draws)
    if strength:
        noise = draws.uniform(2, height, width).mul_(2).sub_(1)
        move = move + strength * gaussian_blur(noise, sigma, truncate=3.0)
    rows = torch.arange(height, device=x.device)[:, None] + move[:, 0]
    columns = torch.arange(width, device=x.device) + move[:, 1]
    grid = torch.stack([columns * (2 / (width - 1)) - 1, rows * (2 / (height - 1)) - 1], -1)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=True)


def pixelate(x: Tensor, share: float, draws: Draws) -> Tensor:
    """Shrinks the image to a share of its side, and enlarges it again without interpolation."""
    rows, columns = (coarse_matrix(side, max(1, int(side * share))) for side in x.shape[-2:])
    return separable(x, rows, columns)


def _affine(height: int, width: int, jitter: float, draws: Draws) -> Tensor:
    """Displacements (B, 2, H, W) of the affine map that moves three corners of a square by up to `jitter` each.

    The square stands about the centre with half-side s; its corners (s, s), (s, -s), (-s, -s) move by a, b and c.
    """
    half = min(height, width) // 3
    a, b, c = (draws.uniform(3, 2).mul_(2).sub_(1) * jitter).view(-1, 3, 2, 1, 1).unbind(1)
    rows = torch.arange(height, device=a.device).view(-1, 1) - height // 2
    columns = torch.arange(width, device=a.device) - width // 2
    return (a + c) / 2 + rows * (b - c) / (2 * half) + columns * (a - b) / (2 * half)
