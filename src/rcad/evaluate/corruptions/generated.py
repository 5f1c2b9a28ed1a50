"""The fifteen corruptions of Hendrycks & Dietterich (2019), and the one function that applies them.

Each goes from float32 images, the constant of its severity (`severities.toml`) and random numbers to images that may
leave [0, 1].
"""

from __future__ import annotations

import functools
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rcad.data.corrupted import CORRUPTIONS, check_request
from rcad.errors import InputError, whole
from rcad.evaluate.corruptions.materials import (
    ICE_PICTURES,
    Draws,
    coarse_matrix,
    convolve,
    disk,
    gaussian_blur,
    ice,
    separable,
    streak,
    zoom_matrix,
)

CONSTANTS: dict[str, dict[str, list[Any]]] = tomllib.loads(
    Path(__file__).with_name("severities.toml").read_text(encoding="utf-8")
)
"""By corruption and size of image, what each severity takes."""


def scale_of(x: Tensor) -> str:
    """Which constants suit images (..., H, W): CIFAR's below 48 pixels, Tiny ImageNet's below 128, else ImageNet's."""
    side = min(x.shape[-2:])
    return "small" if side < 48 else "medium" if side < 128 else "large"


def gaussian_noise(x: Tensor, deviation: float, draws: Draws) -> Tensor:
    """Adds independent normal noise to every value."""
    return draws.normal(*x.shape[1:]).mul_(deviation).add_(x)


def shot_noise(x: Tensor, photons: float, draws: Draws) -> Tensor:
    """Counts photons: Poisson with mean x * photons, divided by `photons`."""
    return draws.poisson(x * photons).div_(photons)


def impulse_noise(x: Tensor, amount: float, draws: Draws) -> Tensor:
    """Turns a share `amount` of the values black or white, half each, channel by channel."""
    chance = draws.uniform(*x.shape[1:])
    salt = (chance < amount / 2).to(x.dtype)
    return torch.where(chance < amount, salt, x)


def defocus_blur(x: Tensor, lens: tuple[float, float], draws: Draws) -> Tensor:
    """Averages over a disk with a soft edge."""
    return convolve(x, disk(*lens))


def glass_blur(x: Tensor, glass: tuple[float, int, int, float], draws: Draws) -> Tensor:
    """Swaps pixels with near ones, between two slight Gaussian blurs."""
    sigma, reach, rounds, share = glass
    return gaussian_blur(_swapped(gaussian_blur(x, sigma), reach, rounds, share, draws), sigma)


def motion_blur(x: Tensor, motion: tuple[int, float], draws: Draws) -> Tensor:
    """Smears each image along its own line, within 45 degrees of the horizontal."""
    angle = (draws.uniform() - 0.5) * (math.pi / 2)
    return streak(x, angle, *motion)


def zoom_blur(x: Tensor, zooming: tuple[int, float], draws: Draws) -> Tensor:
    """The mean of the image (counted twice) and of its enlargements about the centre."""
    count, step = zooming
    height, width = x.shape[-2:]
    total = 2 * x
    for i in range(1, count + 1):
        factor = round(1 + i * step, 6)
        total += separable(x, zoom_matrix(height, factor), zoom_matrix(width, factor))
    return total / (count + 2)


def _swapped(x: Tensor, reach: int, rounds: int, share: float, draws: Draws) -> Tensor:
    """A share of the pixels swapped in turn, each with one at most `reach` away."""
    # Pixels 2 * reach + 1 apart have no neighbour in common, so all of these swap at once: only the order differs from
    # that of the original, which goes pixel by pixel.
    count, _, height, width = x.shape
    apart = 2 * reach + 1
    source = torch.arange(height * width, device=x.device).repeat(count, 1)
    for _ in range(rounds):
        shift = draws.integers(apart, 2, height, width) - reach
        if share < 1:
            shift = shift * (draws.uniform(1, height, width) < share)
        for start in range(apart * apart):
            rows = torch.arange(start // apart, height, apart, device=x.device)
            columns = torch.arange(start % apart, width, apart, device=x.device)
            own = (rows[:, None] * width + columns).flatten().expand(count, -1)
            move = shift[:, :, rows[:, None], columns].flatten(2)
            row = (own // width + move[:, 0]).clamp_(0, height - 1)
            column = (own % width + move[:, 1]).clamp_(0, width - 1)
            other = row * width + column
            first, second = source.gather(1, own), source.gather(1, other)
            source.scatter_(1, own, second).scatter_(1, other, first)
    return x.flatten(2).gather(2, source[:, None].expand(-1, x.shape[1], -1)).view_as(x)


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
    which = draws.integers(ICE_PICTURES)
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


def contrast(x: Tensor, share: float, draws: Draws) -> Tensor:
    """Draws every value towards the mean of its image and channel."""
    mean = x.mean((2, 3), keepdim=True)
    return mean + share * (x - mean)


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
    """Displacements (B, 2, H, W) of the affine map that moves three corners of a square by up to `jitter` each."""
    # The square stands about the centre with half-side s; its corners (s, s), (s, -s), (-s, -s) move by a, b and c.
    half = min(height, width) // 3
    a, b, c = (draws.uniform(3, 2).mul_(2).sub_(1) * jitter).view(-1, 3, 2, 1, 1).unbind(1)
    rows = torch.arange(height, device=a.device).view(-1, 1) - height // 2
    columns = torch.arange(width, device=a.device) - width // 2
    return (a + c) / 2 + rows * (b - c) / (2 * half) + columns * (a - b) / (2 * half)


# JFIF: Y, Cb and Cr from R, G and B; the chroma is centred at 128.
_TO_YCBCR = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))
_TO_RGB = ((1.0, 0.0, 1.402), (1.0, -0.344136, -0.714136), (1.0, 1.772, 0.0))


def jpeg_compression(x: Tensor, quality: int, draws: Draws) -> Tensor:
    """x as it comes back from a JPEG file of this quality, computed on the device.

    Baseline JPEG as libjpeg does it by default: YCbCr, chroma halved in both directions, 8 x 8 cosine transform, the
    standard's example tables (ITU-T T.81, annex K) scaled by the quality, smooth enlargement of the chroma. Entropy
    coding loses nothing and is left out. One-channel images are coded as grey ones.
    """
    levels = (x * 255).round()
    if x.shape[1] != 3:
        return _coded(levels, quality, "luma") / 255
    height, width = x.shape[-2:]
    components = _colours(levels, _TO_YCBCR).round()
    luma = _coded(components[:, :1], quality, "luma")
    # Chroma lies about 0 here; the coder wants levels about 128.
    chroma = _coded(_halved(components[:, 1:]) + 128, quality, "chroma")[..., : -(-height // 2), : -(-width // 2)]
    chroma = F.interpolate(chroma - 128, scale_factor=2, mode="bilinear", align_corners=False).round_()
    return _colours(torch.cat([luma, chroma[..., :height, :width]], 1), _TO_RGB) / 255


def _halved(x: Tensor) -> Tensor:
    """Means of 2 x 2 pixels in whole levels; ties fall and rise in turns, as in libjpeg."""
    # The last column is repeated to the end of its block before the mean is taken, the last row after it.
    means = F.avg_pool2d(_filled(x, 2, 16), 2)
    ties = torch.tensor([0.25, 0.5], device=x.device).repeat(means.shape[-1] // 2)
    return (means + ties).floor_()


def _colours(x: Tensor, matrix: tuple[tuple[float, ...], ...]) -> Tensor:
    return torch.einsum("oc,bchw->bohw", torch.tensor(matrix, device=x.device), x)


def _coded(levels: Tensor, quality: int, table: str) -> Tensor:
    """Levels 0..255 after transform, rounding to the quality's steps, and back."""
    height, width = levels.shape[-2:]
    filled = _filled(levels, 8, 8) - 128
    transform, steps = _transform().to(levels.device), _steps(quality, table).to(levels.device)
    count, channels, rows, columns = filled.shape
    blocks = filled.view(count, channels, rows // 8, 8, columns // 8, 8).transpose(3, 4).reshape(-1, 64)
    # Ties away from zero, as libjpeg rounds.
    scaled = (blocks @ transform.T).div_(steps)
    coefficients = (scaled + 0.5 * scaled.sign()).trunc_().mul_(steps)
    decoded = (coefficients @ transform).add_(128).round_().clamp_(0, 255)
    decoded = decoded.view(count, channels, rows // 8, columns // 8, 8, 8).transpose(3, 4)
    return decoded.reshape(count, channels, rows, columns)[..., :height, :width]


def _filled(x: Tensor, rows: int, columns: int) -> Tensor:
    """x with its last row and column repeated up to a multiple of `rows` and `columns`."""
    bottom, right = -x.shape[-2] % rows, -x.shape[-1] % columns
    return F.pad(x, [0, right, 0, bottom], mode="replicate") if bottom or right else x


@functools.cache
def _transform() -> Tensor:
    """The two-dimensional cosine transform of a block as a matrix (64, 64); orthogonal, so its transpose undoes it."""
    k = torch.arange(8, dtype=torch.float64)
    cosines = torch.cos((2 * k + 1) * k[:, None] * (math.pi / 16)) / 2
    cosines[0] /= math.sqrt(2)
    return torch.kron(cosines, cosines).float()


@functools.lru_cache(maxsize=64)
def _steps(quality: int, table: str) -> Tensor:
    """The table, "luma" or "chroma", at a quality from 1 to 100, by libjpeg's rule, flat."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    steps = torch.tensor(CONSTANTS["jpeg_compression"][table]).flatten() * percent
    return steps.add(50).div(100, rounding_mode="floor").clamp(1, 255).float()


SMALLEST = 4

# Each corruption is the function of its name.
_FUNCTIONS: dict[str, Callable[[Tensor, Any, Draws], Tensor]] = {name: globals()[name] for name in CORRUPTIONS}


def corrupt(x: Tensor, name: str, severity: int, *, generator: torch.Generator) -> Tensor:
    """Images with one corruption, drawn per image.

    Shape: x (B, C, H, W) with 1 or 3 channels, uint8 or floats in [0, 1], on any device; the same comes back. One
    number is drawn from the generator. Use `corrupt_numbered` where an image's corruption must not depend on its batch.
    """
    draw = torch.randint(2**62, (1,), generator=generator, device=generator.device)
    return corrupt_numbered(x, name, severity, seed=int(draw), first=0)


@torch.no_grad()
def corrupt_numbered(x: Tensor, name: str, severity: int, *, seed: int, first: int) -> Tensor:
    """As `corrupt`, for images number `first`, `first` + 1, ... of a set: image i depends on (seed, i) alone.

    The random numbers of an image are the same at every severity, so that a curve over severities is smooth.
    """
    check_request([name], [severity])
    whole("seed", seed, minimum=0)
    whole("first", first, minimum=0)
    check_images(x)
    if not len(x):
        return x.clone()
    unit = x.float() / 255 if x.dtype == torch.uint8 else x.float()
    draws = Draws(seed, name, first, len(x), x.device)
    moved = _FUNCTIONS[name](unit, CONSTANTS[name][scale_of(x)][severity - 1], draws).clamp_(0, 1)
    return moved.mul_(255).round_().to(torch.uint8) if x.dtype == torch.uint8 else moved.to(x.dtype)


def check_images(x: Tensor) -> None:
    if x.ndim != 4 or x.shape[1] not in (1, 3) or min(x.shape[2:]) < SMALLEST:
        raise InputError(
            f"expected images (B, C, H, W) with 1 or 3 channels and sides of at least {SMALLEST} pixels, "
            f"but got {tuple(x.shape)}"
        )
    if x.dtype == torch.uint8 or not len(x):
        return
    if not x.is_floating_point():
        raise InputError(f"expected uint8 images or floats in [0, 1], but got {x.dtype}")
    low, high = (float(value) for value in x.aminmax())
    if not 0 <= low <= high <= 1:
        raise InputError(
            f"expected pixels in [0, 1], but got [{low:.4g}, {high:.4g}]; corrupt images before they are normalised"
        )
