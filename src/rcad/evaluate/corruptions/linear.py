"""Linear maps of images: separable ones as a matrix for the rows and one for the columns, small kernels as shifts.

Matrix products and shifted sums are an order of magnitude faster than one-channel convolutions on a CPU. Pictures
continue mirrored beyond their border, the border pixel repeated.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

# Above this many taps a convolution beats shifted sums.
_MOST_SHIFTS = 40


def separable(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """rows @ image @ columns.T for every image and channel."""
    return rows.to(x.device) @ (x @ columns.to(x.device).T)


def gaussian_blur(x: Tensor, sigma: float, truncate: float = 4.0) -> Tensor:
    """Smoothed with a Gaussian of `sigma` pixels, cut off after `truncate` sigmas."""
    if int(truncate * sigma + 0.5) == 0:
        return x
    return separable(x, *(_gaussian_matrix(side, sigma, truncate) for side in x.shape[-2:]))


def convolve(x: Tensor, kernel: npt.NDArray[np.float64]) -> Tensor:
    """x filtered with a square kernel of odd side, channel by channel."""
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
    if reach == 0:
        return x
    rows, columns = (_mirror(np.arange(-reach, side + reach), side) for side in x.shape[-2:])
    taken = x.index_select(-2, torch.as_tensor(rows, device=x.device))
    return taken.index_select(-1, torch.as_tensor(columns, device=x.device))


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
    total: np.float64 = kernel.sum()
    return kernel / total


def streak(x: Tensor, angle: Tensor, radius: int, sigma: float) -> Tensor:
    """x smeared one way along a line at `angle` (radians, one per image), fading like half a Gaussian.

    The picture continues with its border pixels.
    """
    count, channels, height, width = x.shape
    weights = np.exp(-((np.arange(2 * radius + 1) / sigma) ** 2) / 2)
    weights = weights[weights > 1 / 512]
    weights /= weights.sum()
    reach = len(weights) - 1
    padded = F.pad(x, [reach] * 4, mode="replicate")
    stride = width + 2 * reach
    rows = torch.arange(height, device=x.device)[:, None] + reach
    here = (rows * stride + torch.arange(width, device=x.device) + reach).view(1, -1)
    flat = padded.flatten(2)
    out = torch.zeros_like(x).flatten(2)
    for step, weight in enumerate(weights.tolist()):
        across, down = (step * angle.cos()).round().long(), (step * angle.sin()).round().long()
        source = here + (down * stride + across)[:, None]
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
    mirrored: npt.NDArray[np.int64] = np.minimum(wrapped, 2 * side - 1 - wrapped)
    return mirrored
