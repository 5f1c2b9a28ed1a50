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
    gaussian_noise,
    grey,
    jpeg_compression,
    pixelate,
)
from rcad.evaluate.corruptions.materials import Draws


def draws(count):
    return Draws(0, "test", 0, count, torch.device("cpu"))


def test_gaussian_noise_has_its_deviation():
    x = torch.full((64, 3, 32, 32), 0.5)
    noise = gaussian_noise(x, 0.1, draws(64)) - x
    assert abs(noise.mean()) < 1e-3
    assert abs(noise.std() - 0.1) < 1e-3
    assert abs((noise[:, 0] * noise[:, 1]).mean()) < 1e-4  # channels are independent


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
