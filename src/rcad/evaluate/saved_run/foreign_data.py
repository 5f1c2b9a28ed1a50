"""Examples that a model was not made for: another data set brought to its shape, or noise."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from rcad.data.decoding import SizesDifferError
from rcad.data.scaling import Standardizer
from rcad.data.splits import parse_spec
from rcad.errors import InputError
from rcad.evaluate.saved_run.finished_run import Shelf, Subject, drawn
from rcad.evaluate.saved_run.settings import NOISE

# The luminance of RGB (ITU-R BT.601).
GREY = (0.299, 0.587, 0.114)


def foreign(subject: Subject, shelf: Shelf, name: str, count: int, seed: int) -> Tensor:
    """Up to `count` foreign inputs as the model takes them: pixels in [0, 1], or standardised columns.

    Args:
        name: of a data set, whose test part is taken where it has one; or "noise": uniform pixels, normal columns.
    """
    if name == NOISE:
        generator = torch.Generator().manual_seed(seed)
        make = torch.rand if subject.is_image else torch.randn
        return make((count, *subject.shape), generator=generator).to(subject.problem.device)
    if name == parse_spec(subject.record.config.data.name)[0]:
        raise InputError(f"expected another data set than the run's own, but got {name!r}; name one, or noise")
    size = max(subject.shape[1:]) if subject.is_image else None
    try:
        dataset = shelf.other(name, size, subject.record.config.data.target)
    except SizesDifferError:
        if subject.is_image:
            raise
        raise _of_another_kind(subject, name, "images") from None  # whatever their sizes are
    part = dataset.train if dataset.test is None else dataset.test
    x = part.x[drawn(len(part), count, seed).numpy()]
    if dataset.is_image != subject.is_image:
        raise _of_another_kind(subject, name, "images" if dataset.is_image else "a table")
    if dataset.is_image:
        return as_images(torch.from_numpy(x.copy()).to(subject.problem.device), subject.shape)
    table = Standardizer.from_dict(subject.problem.preprocessing["features"])
    if x.shape[1] != len(table.mean):
        raise InputError(
            f"expected {len(table.mean)} columns as the run was trained on, but {name} has {x.shape[1]}; "
            "name a table with the same columns"
        )
    return torch.from_numpy(table.transform(x)).to(subject.problem.device)


def as_images(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """uint8 images brought to (C, H, W): grey becomes equal channels or their luminance, the size is interpolated."""
    pixels = x.float() / 255
    if pixels.shape[1] != shape[0]:
        if pixels.shape[1] == 3:
            pixels = (pixels * pixels.new_tensor(GREY)[None, :, None, None]).sum(1, keepdim=True)
        pixels = pixels[:, :1].expand(-1, shape[0], -1, -1)
    if pixels.shape[2:] != shape[1:]:
        pixels = F.interpolate(pixels, size=shape[1:], mode="bilinear", antialias=True)
    return pixels.clamp(0, 1)


def _of_another_kind(subject: Subject, name: str, kind: str) -> InputError:
    wanted = "images" if subject.is_image else "a table"
    return InputError(f"expected {wanted} as the run was trained on, but {name} is {kind}")
