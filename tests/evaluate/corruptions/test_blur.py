"""Blur that keeps what it must: the pixels (glass), the mean (all), the far side of a line (motion)."""

from __future__ import annotations

import pytest
import torch

from rcad.evaluate.corruptions.blur import defocus_blur, glass_blur, motion_blur, zoom_blur
from rcad.evaluate.corruptions.draws import Draws


def draws(count):
    return Draws(0, "test", 0, count, torch.device("cpu"))


def numbered(count, height, width):
    """Images whose every pixel has its own value, the same in all channels but for a factor."""
    values = torch.arange(height * width, dtype=torch.float32).view(1, 1, height, width)
    return values * torch.tensor([1.0, 2.0, 3.0]).view(1, 3, 1, 1).expand(count, 3, 1, 1)


@pytest.mark.parametrize("reach", [1, 2, 4])
def test_glass_permutes_pixels_within_reach(reach):
    x = numbered(6, 13, 9)
    out = glass_blur(x, (0.05, reach, 1, 1.0), draws(6))  # so small a sigma blurs nothing
    assert torch.equal(out.flatten(2).sort().values, x.flatten(2))
    assert torch.equal(out[:, 1], 2 * out[:, 0])  # whole pixels move, not channels
    rows, columns = out[:, 0].long() // 9, out[:, 0].long() % 9
    moved = (rows - torch.arange(13).view(-1, 1)).abs(), (columns - torch.arange(9)).abs()
    assert moved[0].float().mean() > 0.3
    assert moved[1].float().mean() > 0.3
    # Swaps in turn can carry a pixel further than one reach, but rarely.
    near = (moved[0] <= reach) & (moved[1] <= reach)
    assert near.float().mean() > 0.5


def test_glass_has_no_preferred_diagonal():
    x = numbered(64, 16, 16)
    out = glass_blur(x, (0.05, 1, 1, 0.3), draws(64))[:, 0].long()
    down, across = out // 16 - torch.arange(16).view(-1, 1), out % 16 - torch.arange(16)
    along, against = ((down == 1) & (across == 1)).sum(), ((down == 1) & (across == -1)).sum()
    assert 0.8 < along / against < 1.25


def test_the_share_and_the_rounds_of_glass_count():
    x = numbered(8, 16, 16)
    still = [(glass_blur(x, (0.05, 1, rounds, share), draws(8)) == x).float().mean() for rounds, share in
             [(1, 0.0), (1, 0.4), (1, 1.0), (3, 1.0)]]  # fmt: skip
    assert still[0] == 1
    assert still[0] > still[1] > still[2] > still[3]


def test_glass_blurs_before_and_after():
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert glass_blur(x, (0.8, 1, 1, 1.0), draws(4)).std() < 0.5 * x.std()


def test_motion_lies_within_45_degrees_of_the_horizontal():
    x = torch.zeros(200, 1, 25, 25)
    x[:, :, 12, 12] = 1
    out = motion_blur(x, (9, 2.5), draws(200))[:, 0]
    rows, columns = torch.meshgrid(torch.arange(25.0) - 12, torch.arange(25.0) - 12, indexing="ij")
    down, across = (out * rows).sum((1, 2)), (out * columns).sum((1, 2))
    slope = down / across
    assert (across < 0).all()
    assert slope.abs().max() <= 1.05
    assert slope.min() < -0.8
    assert slope.max() > 0.8


def test_zoom_blur_leaves_the_centre_and_moves_the_rim():
    ring = torch.zeros(1, 1, 33, 33)
    ring[..., 16, 16] = 1
    ring[..., 16, 30] = 1
    out = zoom_blur(ring, (10, 0.01), draws(1))
    assert out[..., 16, 16] > 0.8
    assert out[..., 16, 30] < 0.6
    assert out[..., 16, 31] > 0.05
    # Counted twice plus ten enlargements: a flat image stays flat only with the right divisor.
    torch.testing.assert_close(zoom_blur(torch.ones(1, 1, 8, 8), (10, 0.01), draws(1)), torch.ones(1, 1, 8, 8))


def test_defocus_keeps_the_mean_of_the_middle():
    x = torch.zeros(1, 3, 21, 21)
    x[..., 10, 10] = 1
    out = defocus_blur(x, (3, 0.1), draws(1))
    torch.testing.assert_close(out.sum((2, 3)), torch.ones(1, 3))
    assert out[0, 0, 10, 13] > 0.02
    assert out[0, 0, 10, 15] == 0
    assert out[0, 0, 13, 13] < 1e-6
