"""Weather: snow, frost on the lens, fog, bright light."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from rcad.evaluate.corruptions.draws import Draws
from rcad.evaluate.corruptions.ice import PICTURES, ice
from rcad.evaluate.corruptions.linear import streak
from rcad.evaluate.corruptions.severities import scale_of

# Rec. 601: what a grey picture keeps of red, green and blue.
LUMA = (0.299, 0.587, 0.114)
_SHRINK = {"small": 4, "medium": 2, "large": 1}


def grey(x: Tensor) -> Tensor:
    """The brightness of images (B, C, H, W) as (B, 1, H, W)."""
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    red, green, blue = x.unbind(1)
    return (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue).unsqueeze(1)


def snow(x: Tensor, fall: tuple[float, float, float, float, int, float, float], draws: Draws) -> Tensor:
    """Whitens the picture and lets flakes fall over it, each image at its own angle."""
    mean, deviation, zoom, threshold, radius, sigma, share = fall
    height, width = x.shape[-2:]
    flakes = mean + deviation * draws.normal(1, math.ceil(height / zoom), math.ceil(width / zoom))
    flakes = F.interpolate(flakes, size=(height, width), mode="bilinear", align_corners=True)
    flakes = torch.where(flakes < threshold, 0, flakes.clamp(max=1))
    angle = (draws.uniform() * 0.5 + 0.25) * math.pi
    flakes = streak(flakes, angle, radius, sigma)
    pale = torch.maximum(x, grey(x) * 1.5 + 0.5)
    return share * x + (1 - share) * pale + flakes + flakes.flip(-2, -1)


def frost(x: Tensor, shares: tuple[float, float], draws: Draws) -> Tensor:
    """Lays a random piece of an ice picture over each image, mirrored at random."""
    channels, height, width = x.shape[1:]
    pictures = ice(_SHRINK[scale_of(x)]).to(x.device)
    side = pictures.shape[-1]
    which = draws.integers(PICTURES)
    rows = _stretch(draws, height, side)[:, :, None]
    columns = _stretch(draws, width, side)[:, None, :]
    pieces = pictures[which[:, None, None], :, rows, columns].permute(0, 3, 1, 2)
    if channels != 3:
        pieces = grey(pieces)
    return shares[0] * x + shares[1] * pieces


def fog(x: Tensor, haze: tuple[float, float], draws: Draws) -> Tensor:
    """Adds a cloud to each image and divides, so that its brightest value stays where it was."""
    density, decay = haze
    height, width = x.shape[-2:]
    brightest = x.amax((1, 2, 3), keepdim=True)
    cloud = _cloud(max(height, width), decay, draws)[..., :height, :width]
    return (x + density * cloud) * (brightest / (brightest + density))


def brightness(x: Tensor, added: float, draws: Draws) -> Tensor:
    """Raises the largest channel by `added`, keeping hue and saturation; black becomes grey."""
    value = x.amax(1, keepdim=True)
    raised = (value + added).clamp(max=1)
    return torch.where(value > 0, x * (raised / value), raised)


def _stretch(draws: Draws, length: int, side: int) -> Tensor:
    """`length` consecutive indices into a picture that repeats after `side`, forwards or backwards, (B, length)."""
    start = draws.integers(side)[:, None]
    forwards = draws.uniform()[:, None] < 0.5
    steps = torch.arange(length, device=start.device)
    return torch.where(forwards, start + steps, start - steps) % side


def _cloud(side: int, decay: float, draws: Draws) -> Tensor:
    """A plasma fractal (B, 1, side, side) in [0, 1]: doubled again and again, with ever weaker noise added."""
    cloud = draws.uniform(1, 2, 2)
    strength = 1.0
    while cloud.shape[-1] < side:
        # The published program multiplies its amplitude by a noise of that amplitude: its decay acts twice.
        strength /= decay**2
        cloud = F.interpolate(cloud, scale_factor=2, mode="bilinear", align_corners=False)
        cloud = cloud + strength * draws.uniform(1, *cloud.shape[-2:])
    low, high = cloud.amin((1, 2, 3), keepdim=True), cloud.amax((1, 2, 3), keepdim=True)
    return (cloud - low) / (high - low).clamp(min=1e-6)
