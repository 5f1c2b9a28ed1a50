"""Each corruption by what it does: moments, closed forms, Pillow's own."""

from __future__ import annotations

import colorsys
import io

import numpy as np
import pytest
import torch

from rcad.evaluate.corruptions.generated import (
    _CHROMA_TABLE,
    _LUMA_TABLE,
    _steps,
    brightness,
    contrast,
    elastic_transform,
    fog,
    frost,
    gaussian_noise,
    glass_blur,
    grey,
    impulse_noise,
    jpeg_compression,
    motion_blur,
    pixelate,
    shot_noise,
    snow,
    zoom_blur,
)
from rcad.evaluate.corruptions.materials import ICE_PICTURES, Draws, ice


def draws(count):
    return Draws(0, "test", 0, count, torch.device("cpu"))


def test_gaussian_noise_has_its_deviation():
    x = torch.full((64, 3, 32, 32), 0.5)
    noise = gaussian_noise(x, 0.1, draws(64)) - x
    assert abs(noise.mean()) < 1e-3
    assert abs(noise.std() - 0.1) < 1e-3
    assert abs((noise[:, 0] * noise[:, 1]).mean()) < 1e-4  # channels are independent


def test_shot_noise_keeps_the_mean_and_its_variance_is_the_signal():
    x = torch.tensor([0.0, 0.1, 0.5, 1.0]).view(4, 1, 1, 1).expand(4, 3, 64, 64)
    seen = shot_noise(x, 50, draws(4))
    assert (seen[0] == 0).all()
    torch.testing.assert_close(seen.mean((1, 2, 3)), x[:, 0, 0, 0], rtol=0.02, atol=0)
    torch.testing.assert_close(seen.var((1, 2, 3)), x[:, 0, 0, 0] / 50, rtol=0.08, atol=0)


def test_impulses_are_half_black_half_white_and_leave_the_rest():
    x = torch.full((32, 3, 32, 32), 0.5)
    seen = impulse_noise(x, 0.1, draws(32))
    black, white = (seen == 0).float().mean(), (seen == 1).float().mean()
    assert abs(black - 0.05) < 2e-3
    assert abs(white - 0.05) < 2e-3
    assert ((seen == 0) | (seen == 1) | (seen == 0.5)).all()
    assert not torch.equal(seen[:, 0], seen[:, 1])


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
    assert pictures.shape == (ICE_PICTURES, 3, 512 // shrink, 512 // shrink)
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


NONE = Draws(0, "test", 0, 1, torch.device("cpu"))
image = pytest.importorskip("PIL.Image")


def saved(levels: np.ndarray, quality: int) -> tuple[np.ndarray, dict]:
    """What Pillow reads back, and the tables it used."""
    file = io.BytesIO()
    image.fromarray(levels.squeeze(-1) if levels.shape[-1] == 1 else levels).save(file, "JPEG", quality=quality)
    opened = image.open(file)
    return np.asarray(opened).reshape(levels.shape), opened.quantization


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("quality", [80, 50, 25, 7])
@pytest.mark.parametrize("side", [8, 21, 32, 64])
def test_pillow_agrees_to_a_fraction_of_a_level(side, quality, channels, photos):
    levels = (photos(side, 8)[:, :channels] * 255).round()
    ours = (jpeg_compression(levels / 255, quality, NONE) * 255).round().clamp(0, 255)
    pictures = levels.permute(0, 2, 3, 1).numpy().astype(np.uint8)
    theirs = np.stack([saved(picture, quality)[0] for picture in pictures]).astype(float)
    difference = np.abs(ours.permute(0, 2, 3, 1).numpy() - theirs).mean()
    change = np.abs(theirs - pictures).mean()
    assert side == 8 or difference < 1.0  # a single block may fall on the other side of a coarse step
    assert difference < 0.13 * change


@pytest.mark.parametrize("quality", [1, 7, 25, 42, 50, 80, 100])
def test_the_tables_are_libjpegs(quality):
    _, tables = saved(np.zeros((16, 16, 3), np.uint8), quality)
    # Pillow gives them row by row.
    assert _steps(quality, _LUMA_TABLE).tolist() == list(tables[0])
    assert _steps(quality, _CHROMA_TABLE).tolist() == list(tables[1])
