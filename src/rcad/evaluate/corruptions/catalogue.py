"""The fifteen corruptions by name, and the one function that applies them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rcad.data.corrupted import CORRUPTIONS, SEVERITIES
from rcad.errors import InputError, one_of, whole
from rcad.evaluate.corruptions.blur import defocus_blur, glass_blur, motion_blur, zoom_blur
from rcad.evaluate.corruptions.digital import contrast, elastic_transform, pixelate
from rcad.evaluate.corruptions.draws import Draws
from rcad.evaluate.corruptions.jpeg import jpeg_compression
from rcad.evaluate.corruptions.noise import gaussian_noise, impulse_noise, shot_noise
from rcad.evaluate.corruptions.severities import constant, scale_of
from rcad.evaluate.corruptions.weather import brightness, fog, frost, snow

SMALLEST = 4

# From float32 images, the constant of the severity and random numbers to images that may leave [0, 1].
_FUNCTIONS: dict[str, Callable[[Tensor, Any, Draws], Tensor]] = {
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "defocus_blur": defocus_blur,
    "glass_blur": glass_blur,
    "motion_blur": motion_blur,
    "zoom_blur": zoom_blur,
    "snow": snow,
    "frost": frost,
    "fog": fog,
    "brightness": brightness,
    "contrast": contrast,
    "elastic_transform": elastic_transform,
    "pixelate": pixelate,
    "jpeg_compression": jpeg_compression,
}


def corrupt(x: Tensor, name: str, severity: int, *, generator: torch.Generator) -> Tensor:
    """Images with one corruption, drawn per image.

    Shape: x (B, C, H, W) with 1 or 3 channels, uint8 or floats in [0, 1], on any device; the same comes back. The
    generator may live on another device: one number is drawn from it. Use `corrupt_numbered` where a set goes through
    in batches and an image's corruption must not depend on their size.
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
    moved = _FUNCTIONS[name](unit, constant(name, severity, scale_of(x)), draws).clamp_(0, 1)
    return moved.mul_(255).round_().to(torch.uint8) if x.dtype == torch.uint8 else moved.to(x.dtype)


def check_request(names: list[str] | tuple[str, ...], severities: list[int] | tuple[int, ...]) -> None:
    """Each name is a corruption's and each severity one of 1 to 5, and there is at least one of both."""
    for kind, given in (("corruption", names), ("severity", severities)):
        if not given:
            raise InputError(f"expected at least one {kind}, but got none")
    for name in names:
        one_of("the corruption", name, CORRUPTIONS)
    for severity in severities:
        if severity not in SEVERITIES or isinstance(severity, bool):
            raise InputError(f"expected a severity from 1 to 5, but got {severity!r}")


def check_images(x: Tensor) -> None:
    """x holds images (B, C, H, W) as uint8 or floats in [0, 1]."""
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
    if not (low >= 0 and high <= 1):
        raise InputError(
            f"expected pixels in [0, 1], but got [{low:.4g}, {high:.4g}]; corrupt images before they are normalised"
        )
