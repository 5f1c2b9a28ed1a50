"""Weather by what it does to light."""

from __future__ import annotations

import colorsys

import pytest
import torch

from rcad.evaluate.corruptions.draws import Draws
from rcad.evaluate.corruptions.ice import PICTURES, ice
from rcad.evaluate.corruptions.weather import brightness, fog, frost, grey, snow


def draws(count):
    return Draws(0, "test", 0, count, torch.device("cpu"))


def uniform(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(2))


def test_brightness_adds_to_the_value_of_hsv():
    x = uniform(1, 3, 6, 6)
    x[0, :, 0, 0] = 0  # black has no hue
    x[0, :, 0, 1] = torch.tensor([0.9, 0.0, 0.95])  # reaches the top
    out = brightness(x, 0.3, draws(1))
    for row in range(6):
        for column in range(6):
            hue, saturation, value = colorsys.rgb_to_hsv(*x[0, :, row, column].tolist())
            expected = colorsys.hsv_to_rgb(hue, saturation, min(value + 0.3, 1))
            assert out[0, :, row, column].tolist() == pytest.approx(expected, abs=1e-5)


def test_grey_is_rec_601():
    colours = torch.eye(3).view(3, 3, 1, 1)
    assert grey(colours).flatten().tolist() == pytest.approx([0.299, 0.587, 0.114])
    assert torch.equal(grey(colours[:, :1]), colours[:, :1])


def test_fog_keeps_the_brightest_level_and_lifts_black():
    x = uniform(6, 3, 32, 32) * 0.8
    x[:, :, 0, 0] = 0.8
    out = fog(x, (1.0, 2.0), draws(6))
    assert out.max() <= 0.8 + 1e-5
    black = fog(torch.full((6, 3, 32, 32), 1e-3), (1.0, 2.0), draws(6)) / (1e-3 / (1e-3 + 1))
    cloud = black - 1e-3
    torch.testing.assert_close(cloud.amin((1, 2, 3)), torch.zeros(6), rtol=0, atol=1e-4)
    torch.testing.assert_close(cloud.amax((1, 2, 3)), torch.ones(6), rtol=0, atol=1e-4)
    assert torch.equal(cloud[:, 0], cloud[:, 1])


def test_a_cloud_is_smooth_and_smoother_with_more_decay():
    def roughness(decay):
        out = fog(torch.ones(16, 1, 64, 64) * 0.5, (1.0, decay), draws(16))
        return (out.diff(dim=-1).abs().mean() / out.std()).item()

    assert roughness(3.0) < roughness(1.75) < roughness(1.4) < 0.4


def test_fog_on_an_image_that_is_not_square():
    assert fog(uniform(2, 3, 20, 40), (1.0, 2.0), draws(2)).shape == (2, 3, 20, 40)


def test_snow_only_whitens_and_lies_on_both_sides():
    x = uniform(40, 3, 32, 32) * 0.5
    out = snow(x, (0.1, 0.2, 1, 0.5, 10, 4, 0.9), draws(40))
    assert (out >= x - 1e-6).all()
    fallen = snow(torch.zeros(40, 3, 32, 32), (0.1, 0.2, 1, 0.5, 10, 4, 1.0), draws(40))
    torch.testing.assert_close(fallen, fallen.flip(-2, -1))
    assert 0.001 < (fallen > 0.01).float().mean() < 0.95
    down, across = fallen.diff(dim=-2).abs().mean(), fallen.diff(dim=-1).abs().mean()
    assert down < 0.8 * across  # flakes fall


def test_frost_is_a_mixture_with_pieces_of_ice():
    x = uniform(30, 3, 24, 24)
    out = frost(x, (0.8, 0.5), draws(30))
    pieces = (out - 0.8 * x) / 0.5
    pictures = ice(4)
    assert pieces.min() >= pictures.min() - 1e-5
    assert pieces.max() <= pictures.max() + 1e-5
    # The first pixels of each piece are found somewhere in the pictures, forwards or backwards.
    rows = torch.cat([pictures, pictures.flip(-1)])
    windows = torch.cat([rows, rows[..., :7]], -1).unfold(3, 8, 1)
    for piece in pieces[:4]:
        assert (windows - piece[:, None, None, 0, :8]).abs().amax((1, 4)).min() < 1e-5
        assert (windows - (piece[:, None, None, 0, :8] + 0.01)).abs().amax((1, 4)).min() > 1e-3


def test_one_channel_gets_grey_ice():
    x = torch.zeros(8, 1, 16, 16)
    colour = frost(x.expand(-1, 3, -1, -1), (1.0, 0.5), draws(8))
    torch.testing.assert_close(frost(x, (1.0, 0.5), draws(8)), grey(colour))


@pytest.mark.parametrize("shrink", [1, 2, 4])
def test_ice_is_in_range_varied_and_bluish(shrink):
    pictures = ice(shrink)
    assert pictures.shape == (PICTURES, 3, 512 // shrink, 512 // shrink)
    assert 0 <= pictures.min() < pictures.max() <= 1
    assert 0.35 < pictures.mean() < 0.65
    assert (pictures.std((1, 2, 3)) > 0.1).all()
    assert pictures[:, 2].mean() > pictures[:, 1].mean() > pictures[:, 0].mean()
    assert not torch.equal(pictures[0], pictures[1])


def test_ice_repeats_at_its_borders_without_a_seam():
    pictures = ice(1)
    for dim in (2, 3):
        seam = (pictures.select(dim, 0) - pictures.select(dim, -1)).abs().mean()
        inside = pictures.diff(dim=dim).abs().mean()
        assert seam < 1.5 * inside
        # Nor does what grows beyond the border pile up there.
        assert abs(pictures.select(dim, 0).mean() - pictures.mean()) < 0.05
