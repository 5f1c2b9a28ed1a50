"""Contrast, elastic distortion and pixelation by closed forms and by Pillow."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rcad.evaluate.corruptions.digital import contrast, elastic_transform, pixelate
from rcad.evaluate.corruptions.draws import Draws


def draws(count):
    return Draws(0, "test", 0, count, torch.device("cpu"))


def uniform(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(3))


def test_contrast_keeps_the_means_and_scales_the_rest():
    x = uniform(4, 3, 9, 9)
    out = contrast(x, 0.3, draws(4))
    torch.testing.assert_close(out.mean((2, 3)), x.mean((2, 3)))
    torch.testing.assert_close(out.std((2, 3)), 0.3 * x.std((2, 3)))


@pytest.mark.parametrize(("side", "share"), [(8, 0.95), (8, 0.65), (32, 0.95), (32, 0.75), (64, 0.5), (50, 0.25)])
def test_pixelate_is_pillows_box_resize_but_for_rounding(side, share):
    image = pytest.importorskip("PIL.Image")
    levels = (uniform(2, 3, side, side) * 255).round()
    small = int(side * share)
    expected = []
    for picture in levels.permute(0, 2, 3, 1).numpy().astype(np.uint8):
        coarse = image.fromarray(picture).resize((small, small), image.Resampling.BOX)
        expected.append(np.asarray(coarse.resize((side, side), image.Resampling.BOX)))
    out = pixelate(levels / 255, share, draws(2)) * 255
    np.testing.assert_allclose(out.permute(0, 2, 3, 1).numpy(), np.stack(expected), atol=1.001)


def ramps(count, height, width):
    """Images that hold their own coordinates, so that a distortion can be read off: row, column, 0."""
    rows = torch.arange(height).view(-1, 1).expand(height, width).float()
    columns = torch.arange(width).expand(height, width).float()
    return torch.stack([rows, columns, torch.zeros(height, width)]).expand(count, -1, -1, -1)


def test_without_a_field_the_distortion_is_affine_and_moves_three_corners_within_the_jitter():
    x = ramps(64, 30, 40)
    moved = elastic_transform(x, (0, 0, 0.05), draws(64))[:, :2] - x[:, :2]
    inside = moved[..., 6:25, 10:31]
    assert inside.diff(n=2, dim=2).abs().max() < 1e-3
    assert inside.diff(n=2, dim=3).abs().max() < 1e-3
    corners = torch.stack([moved[..., 15 + a, 20 + b] for a, b in [(10, 10), (10, -10), (-10, -10)]], 1)
    assert corners.abs().max() <= 1.5 + 1e-3  # 0.05 of the shorter side
    assert corners.abs().max() > 1.4
    assert abs(corners.mean()) < 0.15
    spread = corners.flatten(1).T @ corners.flatten(1) / 64
    off = spread - torch.diag(spread.diag())
    assert off.abs().max() < 0.6 * spread.diag().min()  # the corners move independently


def test_the_field_is_smooth_and_as_strong_as_asked():
    x = ramps(64, 32, 32)
    moved = elastic_transform(x, (0.1, 0.06, 0.0), draws(64))[:, :2, 6:26, 6:26] - x[:, :2, 6:26, 6:26]
    sigma = 0.06 * 32
    expected = 0.1 * 32 * 3**-0.5 / (2 * sigma * np.pi**0.5)  # the deviation of smoothed uniform noise
    assert moved.std().item() == pytest.approx(expected, rel=0.1)
    assert moved.diff(dim=3).std() < 0.6 * moved.std()
    assert abs((moved[:, 0] * moved[:, 1]).mean() / moved.var()) < 0.1
