"""One encoded image to one array."""

from __future__ import annotations

import functools
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.data.lazy import need
from rcad.errors import InputError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff"})
# Naming the formats keeps Pillow from trying all fifty on every image, which is both slower and less safe.
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "PPM", "TIFF")
# Pillow clips or refuses these when it converts to RGB, so the pixels would be wrong.
_DEEP_MODES = ("I", "F")
# EXIF's tag of the camera's position, and what turns each of its values upright.
_ORIENTATION = 0x0112
_TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}


def is_image_name(name: str) -> bool:
    """Whether a file name looks like an image's; hidden files (.DS_Store, ._a.png) do not."""
    path = Path(name)
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def decode(data: bytes, origin: str, size: int | None = None) -> npt.NDArray[np.uint8]:
    """Decode one image to uint8 (3, H, W), upright as EXIF says; greyscale, palette and alpha become RGB.

    Args:
        data: the encoded file.
        origin: how an error names the image.
        size: where given, the largest centred square is resized to size x size (bilinear with antialiasing):
            the shorter side becomes `size`, the longer one is cropped.
    """
    pillow = _pillow()
    try:
        with pillow.open(io.BytesIO(data), formats=_FORMATS) as image:
            mode = str(image.mode)
            pixels = None if mode.startswith(_DEEP_MODES) else _pixels(image, size)
    except MemoryError:
        raise
    except Exception as error:  # Pillow's plugins raise nearly everything on broken files
        # Pillow's own sentence for an unknown format prints the address of our buffer.
        unknown = isinstance(error, pillow.UnidentifiedImageError)
        reason = "unknown format" if unknown else " ".join(str(error).split())[:100]
        raise InputError(
            f"expected {origin} to be an image, but it cannot be decoded ({reason}); replace or remove it"
        ) from None
    if pixels is None:
        raise InputError(f"expected 8-bit images, but got mode {mode} in {origin}; convert it to 8 bits per channel")
    return pixels


def _pixels(image: Any, size: int | None) -> npt.NDArray[np.uint8]:
    image = _upright(image)
    if image.mode != "RGB":
        image = image.convert("RGB")
    width, height = image.size
    if size is not None and (width, height) != (size, size):
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        image = image.resize((size, size), _pillow().Resampling.BILINEAR, box=(left, top, left + side, top + side))
    # Transposed as a view: the caller copies once, into its own buffer.
    return np.asarray(image).transpose(2, 0, 1)


def _upright(image: Any) -> Any:
    # A broken EXIF block says nothing about the pixels.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            turn = _TURNS.get(image.getexif().get(_ORIENTATION))
    except Exception:
        return image
    return image if turn is None else image.transpose(_pillow().Transpose[turn])


def check_size(size: int | None) -> None:
    """`size` is None or a positive int of a sane magnitude."""
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= 4096):
        raise InputError(f"expected size to be a whole number of pixels from 1 to 4096, but got {size!r}")


@functools.cache
def _pillow() -> Any:
    return need("PIL.Image", "pillow")
