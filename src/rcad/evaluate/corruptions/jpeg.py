"""JPEG compression as its decoder shows it, computed on the device: what is lost, without any file.

Baseline JPEG as libjpeg does it by default: YCbCr, chroma halved in both directions, 8 x 8 cosine transform, the
standard's example tables (ITU-T T.81, annex K) scaled by the quality, smooth enlargement of the chroma. Entropy coding
loses nothing and is left out. One-channel images are coded as grey ones.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor
from torch.nn import functional as F

from rcad.evaluate.corruptions.draws import Draws

_LUMA_TABLE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMA_TABLE = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *[(99,) * 8] * 4,
)
# JFIF: Y, Cb and Cr from R, G and B; the chroma is centred at 128.
_TO_YCBCR = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))
_TO_RGB = ((1.0, 0.0, 1.402), (1.0, -0.344136, -0.714136), (1.0, 1.772, 0.0))


def jpeg_compression(x: Tensor, quality: int, draws: Draws) -> Tensor:
    """x as it comes back from a JPEG file of this quality."""
    levels = (x * 255).round()
    if x.shape[1] != 3:
        return _coded(levels, quality, _LUMA_TABLE) / 255
    height, width = x.shape[-2:]
    components = _colours(levels, _TO_YCBCR).round()
    luma = _coded(components[:, :1], quality, _LUMA_TABLE)
    # Chroma lies about 0 here; the coder wants levels about 128.
    chroma = _coded(_halved(components[:, 1:]) + 128, quality, _CHROMA_TABLE)[..., : -(-height // 2), : -(-width // 2)]
    chroma = F.interpolate(chroma - 128, scale_factor=2, mode="bilinear", align_corners=False).round_()
    return _colours(torch.cat([luma, chroma[..., :height, :width]], 1), _TO_RGB) / 255


def _halved(x: Tensor) -> Tensor:
    """Means of 2 x 2 pixels in whole levels; ties fall and rise in turns, as in libjpeg.

    The last column is repeated to the end of its block before the mean is taken, the last row after it.
    """
    means = F.avg_pool2d(_filled(x, 2, 16), 2)
    ties = torch.tensor([0.25, 0.5], device=x.device).repeat(means.shape[-1] // 2)
    return (means + ties).floor_()


def _colours(x: Tensor, matrix: tuple[tuple[float, ...], ...]) -> Tensor:
    return torch.einsum("oc,bchw->bohw", torch.tensor(matrix, device=x.device), x)


def _coded(levels: Tensor, quality: int, table: tuple[tuple[int, ...], ...]) -> Tensor:
    """Levels 0..255 after transform, rounding to the quality's steps, and back."""
    height, width = levels.shape[-2:]
    filled = _filled(levels, 8, 8) - 128
    transform, steps = _transform().to(levels.device), _steps(quality, table).to(levels.device)
    count, channels, rows, columns = filled.shape
    blocks = filled.view(count, channels, rows // 8, 8, columns // 8, 8).transpose(3, 4).reshape(-1, 64)
    # Ties away from zero, as libjpeg rounds.
    scaled = (blocks @ transform.T).div_(steps)
    coefficients = (scaled + 0.5 * scaled.sign()).trunc_().mul_(steps)
    shown = (coefficients @ transform).add_(128).round_().clamp_(0, 255)
    shown = shown.view(count, channels, rows // 8, columns // 8, 8, 8).transpose(3, 4)
    return shown.reshape(count, channels, rows, columns)[..., :height, :width]


def _filled(x: Tensor, rows: int, columns: int) -> Tensor:
    """x with its last row and column repeated up to a multiple of `rows` and `columns`."""
    bottom, right = -x.shape[-2] % rows, -x.shape[-1] % columns
    return F.pad(x, [0, right, 0, bottom], mode="replicate") if bottom or right else x


@functools.cache
def _transform() -> Tensor:
    """The two-dimensional cosine transform of a block as a matrix (64, 64); orthogonal, so its transpose undoes it."""
    k = torch.arange(8, dtype=torch.float64)
    one = torch.cos((2 * k + 1) * k[:, None] * (math.pi / 16)) / 2
    one[0] /= math.sqrt(2)
    return torch.kron(one, one).float()


@functools.lru_cache(maxsize=64)
def _steps(quality: int, table: tuple[tuple[int, ...], ...]) -> Tensor:
    """The table at a quality from 1 to 100, by libjpeg's rule, flat."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return torch.tensor(table).flatten().mul(percent).add(50).div(100, rounding_mode="floor").clamp(1, 255).float()
