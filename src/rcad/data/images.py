"""One encoded image to one array."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.data.files import reason
from rcad.errors import InputError, need

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff"})
# Naming the formats keeps Pillow from trying all fifty on every image, which is both slower and less safe.
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "PPM", "TIFF")
_GREY_MODES = ("1", "L", "LA", "La", "I")


class ColourError(InputError):
    """A colour image where grey ones were expected."""


def is_image_name(name: str) -> bool:
    """Whether a file name looks like an image's; hidden files (.DS_Store, ._a.png) do not."""
    path = Path(name)
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def decode(
    data: bytes | InputError, origin: str, size: int | None = None, *, grey: bool = False
) -> npt.NDArray[np.uint8]:
    """Decode one image to uint8 (3, H, W), upright as EXIF says; greyscale, palette and alpha become RGB.

    Args:
        data: the encoded file, or why there is none, which is raised; 16 bits a channel are rounded to 8.
        origin: how an error names the image.
        size: where given, the largest centred square is resized to size x size (bilinear with antialiasing):
            the shorter side becomes `size`, the longer one is cropped.
        grey: one channel, (1, H, W); a colour image is then a `ColourError`.
    """
    with _opened(data, origin) as image:
        if grey and image.mode not in _GREY_MODES and not image.mode.startswith("I;16"):
            raise ColourError(f"expected a grey image, but got mode {image.mode} in {origin}")
        image.load()
        # A broken EXIF block says nothing about the pixels.
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            need("PIL.ImageOps", "pillow").exif_transpose(image, in_place=True)
        image, mode = _eight_bits(image, origin), "L" if grey else "RGB"
        if image.mode != mode:
            image = image.convert(mode)
        width, height = image.size
        if size is not None and (width, height) != (size, size):
            side = min(width, height)
            left, top = (width - side) / 2, (height - side) / 2
            image = image.resize((size, size), _pillow().Resampling.BILINEAR, box=(left, top, left + side, top + side))
        # Transposed as a view: the caller copies once, into its own buffer.
        return np.asarray(image)[None] if grey else np.asarray(image).transpose(2, 0, 1)


@contextlib.contextmanager
def _opened(data: bytes | InputError, origin: str) -> Iterator[Any]:
    """Pillow's image; whatever its plugins raise on broken files becomes one line."""
    pillow = _pillow()
    try:
        if isinstance(data, InputError):
            raise data
        with pillow.open(io.BytesIO(data), formats=_FORMATS) as image:
            yield image
    except InputError:
        raise
    except Exception as error:
        # Pillow's own sentence for an unknown format prints the address of our buffer.
        why = "unknown format" if isinstance(error, pillow.UnidentifiedImageError) else reason(error)
        raise InputError(
            f"expected {origin} to be an image, but it cannot be decoded ({why}); "
            "replace or remove it, or pass --skip-bad"
        ) from None


def _eight_bits(image: Any, origin: str) -> Any:
    """Levels 0..65535 rounded to 0..255; Pillow itself would clip them."""
    if not image.mode.startswith(("I", "F")):
        return image
    levels = np.asarray(image)
    if image.mode == "F" or levels.min() < 0 or levels.max() > 65535:
        raise InputError(
            f"expected images of 8 or 16 bits, but got mode {image.mode} in {origin}; convert it to 8 bits per channel"
        )
    return _pillow().fromarray(((levels.astype(np.int64) + 128) // 257).astype(np.uint8))


@functools.cache
def _pillow() -> Any:
    pillow = need("PIL.Image", "pillow")
    logging.getLogger("PIL").addHandler(logging.NullHandler())  # what it says of broken files is said by our errors
    return pillow
