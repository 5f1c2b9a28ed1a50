"""JPEG against Pillow's, and the pieces that are exact."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch

from rcad.evaluate.corruptions.draws import Draws
from rcad.evaluate.corruptions.jpeg import _CHROMA_TABLE, _LUMA_TABLE, _steps, _transform, jpeg_compression

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


def test_the_transform_is_orthogonal_and_starts_with_the_mean():
    torch.testing.assert_close(_transform() @ _transform().T, torch.eye(64), rtol=0, atol=1e-6)
    torch.testing.assert_close(_transform()[0], torch.full((64,), 1 / 8))


def test_flat_and_grey_pictures_survive_at_full_quality():
    flat = torch.tensor([0.2, 0.5, 0.7]).view(1, 3, 1, 1).expand(1, 3, 17, 19)
    assert (jpeg_compression(flat, 100, NONE) - flat).abs().max() < 2.5 / 255
    noise = torch.rand(2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    assert (jpeg_compression(noise, 100, NONE) - noise).abs().max() < 2.5 / 255
