"""How strong each severity is: the constants of Hendrycks & Dietterich (ICLR 2019), for three sizes of image.

They are the numbers of the programs that made CIFAR-10-C, Tiny-ImageNet-C and ImageNet-C, except where those make a
higher severity change an image less than a lower one. These lines say so; docs/corruptions.md lists them.
"""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

Scale = Literal["small", "medium", "large"]
_LARGEST_SMALL, _LARGEST_MEDIUM = 47, 127


def scale_of(x: Tensor) -> Scale:
    """Which constants suit images (..., H, W): CIFAR's below 48 pixels, Tiny ImageNet's below 128, else ImageNet's."""
    side = min(x.shape[-2:])
    return "small" if side <= _LARGEST_SMALL else "medium" if side <= _LARGEST_MEDIUM else "large"


def constant(name: str, severity: int, scale: Scale) -> Any:
    """The number or tuple of numbers that the corruption `name` takes at this severity."""
    return _CONSTANTS[name][scale][severity - 1]


_CONSTANTS: dict[str, dict[Scale, tuple[Any, ...]]] = {
    # Standard deviation, in units of the pixel range.
    "gaussian_noise": {
        "small": (0.04, 0.06, 0.08, 0.09, 0.10),
        "medium": (0.04, 0.08, 0.12, 0.15, 0.18),
        "large": (0.08, 0.12, 0.18, 0.26, 0.38),
    },
    # Photons at full brightness.
    "shot_noise": {
        "small": (500, 250, 100, 75, 50),
        "medium": (250, 100, 50, 30, 15),
        "large": (60, 25, 12, 5, 3),
    },
    # Share of the values that become black or white.
    "impulse_noise": {
        "small": (0.01, 0.02, 0.03, 0.05, 0.07),
        "medium": (0.01, 0.02, 0.05, 0.08, 0.14),
        "large": (0.03, 0.06, 0.09, 0.17, 0.27),
    },
    # Radius of the disk in pixels, sigma of the Gaussian that softens its edge.
    "defocus_blur": {
        "small": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        "medium": ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
        "large": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    },
    # Sigma before and after, largest shift of a swap, rounds of swapping, share of the pixels that swap.
    # Ours: the share, and the rounds of the small images' severity 5 (published: 2).
    "glass_blur": {
        "small": ((0.05, 1, 1, 0.4), (0.25, 1, 1, 0.7), (0.4, 1, 1, 1), (0.25, 1, 2, 0.7), (0.4, 1, 3, 1)),
        "medium": ((0.1, 1, 1, 0.5), (0.5, 1, 1, 1), (0.6, 1, 2, 1), (0.7, 2, 1, 1), (0.9, 2, 2, 1)),
        "large": ((0.7, 1, 2, 1), (0.9, 2, 1, 1), (1, 2, 3, 1), (1.1, 3, 2, 1), (1.5, 4, 2, 1)),
    },
    # Radius and sigma along the line. Ours: the small images' severity 4 (published: (8, 2), no different from 3).
    "motion_blur": {
        "small": ((6, 1), (6, 1.5), (6, 2), (8, 2.25), (9, 2.5)),
        "medium": ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
        "large": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    },
    # Number of zoom factors after 1, step between them.
    "zoom_blur": {
        "small": ((5, 0.01), (10, 0.01), (15, 0.01), (20, 0.01), (25, 0.01)),
        "medium": ((5, 0.01), (10, 0.01), (15, 0.01), (20, 0.01), (25, 0.01)),
        "large": ((10, 0.01), (15, 0.01), (10, 0.02), (12, 0.02), (10, 0.03)),
    },
    # Mean and deviation of the flakes, their zoom, threshold, radius and sigma of their fall, share of the picture.
    # Ours: the threshold of the large images' severity 3 (published: 0.9).
    "snow": {
        "small": (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        "medium": (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.8),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.8),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
        ),
        "large": (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.87, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    },
    # Share of the picture, share of the ice. Ours: more ice at 4 and 5 (published: small 0.4, 0.45; large 0.7, 0.75)
    # and for medium images from 3 on (0.45, 0.5, 0.55).
    "frost": {
        "small": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.47), (0.75, 0.55)),
        "medium": ((1, 0.3), (0.9, 0.4), (0.8, 0.5), (0.75, 0.56), (0.7, 0.62)),
        "large": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.77), (0.6, 0.85)),
    },
    # Density of the fog, decay of its finer detail. Ours: the density of large images at 4 and 5 (published: 2.5, 3).
    "fog": {
        "small": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        "medium": ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
        "large": ((1.5, 2), (2, 2), (2.5, 1.7), (3, 1.5), (4, 1.4)),
    },
    # What is added to the value (of hue, saturation, value).
    "brightness": {
        "small": (0.05, 0.1, 0.15, 0.2, 0.3),
        "medium": (0.1, 0.2, 0.3, 0.4, 0.5),
        "large": (0.1, 0.2, 0.3, 0.4, 0.5),
    },
    # What remains of the distance to the mean.
    "contrast": {
        "small": (0.75, 0.5, 0.4, 0.3, 0.15),
        "medium": (0.4, 0.3, 0.2, 0.1, 0.05),
        "large": (0.4, 0.3, 0.2, 0.1, 0.05),
    },
    # In units of the shorter side: strength and sigma of the elastic field, jitter of the affine part. Ours: the order;
    # the published jitter shrinks (0.08 to 0.03 for small images) while the field grows.
    "elastic_transform": {
        "small": ((0, 0, 0.03), (0.05, 0.2, 0.05), (0.08, 0.06, 0.06), (0.1, 0.04, 0.07), (0.1, 0.03, 0.08)),
        "medium": ((0, 0, 0.02), (0.05, 0.3, 0.03), (0.1, 0.08, 0.06), (0.1, 0.03, 0.06), (0.16, 0.03, 0.08)),
        "large": ((0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02), (2, 0.08, 0.02), (2, 0.08, 0.1)),
    },
    # Share of the side that is left after shrinking.
    "pixelate": {
        "small": (0.95, 0.9, 0.85, 0.75, 0.65),
        "medium": (0.9, 0.8, 0.7, 0.6, 0.5),
        "large": (0.6, 0.5, 0.4, 0.3, 0.25),
    },
    # Quality from 1 to 100.
    "jpeg_compression": {
        "small": (80, 65, 58, 50, 40),
        "medium": (65, 58, 50, 40, 25),
        "large": (25, 18, 15, 10, 7),
    },
}
