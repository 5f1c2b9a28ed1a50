"""From a name and a few options to a model."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rcad.errors import InputError, check_parameters, shown
from rcad.models.layers import Model
from rcad.models.weights import load_weights

if TYPE_CHECKING:
    from rcad.models.convnets import Stem

_HOMES = {
    **dict.fromkeys(("resnet18", "resnet34", "resnet50", "wrn28_10", "wrn16_8"), "convnets"),
    "small_cnn": "convnets",
    "mlp": "mlp",
}
"""The module of each network, which is imported when it is wanted; its signature says which options it has."""
_CLASSES = {"small_cnn": "SmallCNN", "mlp": "MLP"}
_GIVEN = {"num_outputs", "in_shape", "channels"}

MODELS: tuple[str, ...] = (*_HOMES, "timm:NAME")
"""The names that `build` knows; NAME is any of timm's."""

PRETRAINED = "pretrained"
WIDE = 512
"""A wider convnet is counted before memory is taken for it."""
LARGEST_SMALL_IMAGE = 64
"""Up to this many pixels a side, a ResNet takes the CIFAR stem unless told otherwise."""


def build(
    name: str,
    *,
    num_outputs: int,
    in_shape: Sequence[int],
    norm: str | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    dropout: float | None = None,
    width: int | None = None,
    hidden: Sequence[int] | None = None,
    stem: Stem | None = None,
    weights: str | Path | None = None,
    skip_head: bool | None = False,
) -> Model:
    """Build a model; the same torch seed gives the same weights.

    Args:
        name: one of `MODELS`, e.g. "resnet18" or "timm:convnext_tiny".
        num_outputs: K logits, or 2 for a Gaussian's mean and log-variance.
        in_shape: one example's shape: (C, H, W), or (D,) for "mlp".
        norm: "batch", "group" or "none" for the convnets of this package.
        mean, std: per channel of images, in [0, 1] pixels.
        dropout: probability in [0, 1), for wide ResNets, "small_cnn", "mlp" and timm.
        width: base number of channels of a convnet.
        hidden: units of the hidden layers of "mlp".
        stem: "cifar" or "imagenet" for a ResNet; by default from the size of the images.
        weights: a file to load, see `load_weights`; or "pretrained", those that timm has for its network. With either
            a timm network keeps its own mean and std.
        skip_head: load all of `weights` but the last layer; None leaves it out only where it has other outputs.

    An option left at None takes the model's own default; one that the model does not have is an `InputError`.
    """
    shape = tuple(in_shape)
    given: dict[str, Any] = {
        "norm": norm,
        "mean": mean,
        "std": std,
        "dropout": dropout,
        "width": width,
        "hidden": hidden,
        "stem": stem,
    }
    options = {key: value for key, value in given.items() if value is not None}
    if weights is not None and name.startswith("timm:"):
        options = {key: value for key, value in options.items() if key not in ("mean", "std")}
        options["pretrained"] = weights == PRETRAINED
    elif weights == PRETRAINED:
        raise InputError(f"expected a file of weights for {name}, but got 'pretrained', which is for --model timm:NAME")
    model = _construct(name, num_outputs, shape, options)
    if weights is not None and weights != PRETRAINED:
        load_weights(model, weights, skip_head=skip_head)
    elif skip_head:
        raise InputError("expected weights with skip_head, but got none; give a file of weights")
    return model


def _construct(name: str, num_outputs: int, shape: tuple[int, ...], options: dict[str, Any]) -> Model:
    make: Callable[..., Model]
    if name.startswith("timm:"):
        from rcad.models.timm_model import TimmModel

        make = partial(TimmModel, name.removeprefix("timm:"))
    elif name in _HOMES:
        make = getattr(import_module(f"rcad.models.{_HOMES[name]}"), _CLASSES.get(name, name))
    else:
        near = difflib.get_close_matches(name, list(_HOMES), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "choose one of these"
        raise InputError(f"expected a model out of {', '.join(MODELS)}, but got {name!r}; {hint}")
    if name != "mlp" and len(shape) != 3:
        raise InputError(f"expected images of shape (C, H, W) for {name}, but got {shape}; take 'mlp' for tables")
    takes = set(signature(make).parameters)
    for option in options:
        if option not in takes - _GIVEN:
            names = ", ".join(sorted(takes - _GIVEN))
            raise InputError(f"expected options out of {names} for {name}, but got {option!r}; leave it out")
    if "stem" in takes:
        options.setdefault("stem", "cifar" if max(shape[1:]) <= LARGEST_SMALL_IMAGE else "imagenet")
    size = {"in_shape": shape} if "in_shape" in takes else {"channels": shape[0]}
    make = partial(make, num_outputs=num_outputs, **size, **options)
    if options.get("width", 0) > WIDE:
        _check_width(f"{name} of width {shown(options['width'])}", options["width"], make)
    return make()


def _check_width(what: str, width: int, make: Callable[[], Model]) -> None:
    check_parameters(what, 9 * width**2)  # of one of its 3x3 convolutions: more, and it cannot even be counted
    with torch.device("meta"):
        check_parameters(what, sum(one.numel() for one in make().parameters()))
