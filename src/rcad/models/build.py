"""From a name and a few options to a model."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch

from rcad.errors import InputError, check_parameters, one_of, shown
from rcad.models.layers import Model, Normalize
from rcad.models.weights import load_weights

NETWORKS = {
    **{name: f"convnets:{name}" for name in ("resnet18", "resnet34", "resnet50", "wrn28_10", "wrn16_8")},
    "small_cnn": "convnets:SmallCNN",
    "mlp": "mlp:MLP",
}
"""Each network by its module, imported when it is used, and its class; its signature says which options it has."""
TIMM = "timm:"
MODELS: tuple[str, ...] = (*NETWORKS, f"{TIMM}NAME")
"""The names that `build` knows; NAME is any of timm's."""

PRETRAINED = "pretrained"
WIDE = 512
"""A wider convnet is counted before memory is taken for it."""
LARGEST_SMALL_IMAGE = 64
"""Up to this many pixels a side, a ResNet takes the CIFAR stem unless told otherwise."""


def build(
    name: str, *, num_outputs: int, in_shape: Sequence[int], weights: str | Path | None = None, **options: Any
) -> Model:
    """Build a model; the same torch seed gives the same weights.

    Args:
        name: one of `MODELS`, e.g. "resnet18" or "timm:convnext_tiny".
        num_outputs: K logits, or 2 for a Gaussian's mean and log-variance.
        in_shape: one example's shape: (C, H, W), or (D,) for "mlp".
        weights: a file to load, see `load_weights`; or "pretrained", those that timm has for its network. With either
            a timm network keeps its own mean and std.
        norm: "batch", "group" or "none" for the convnets of this package.
        mean, std: per channel of images, in [0, 1] pixels; by default 0 and 1, and timm's own for its networks.
        dropout: probability in [0, 1), for wide ResNets, "small_cnn", "mlp" and timm.
        width: base number of channels of a convnet.
        hidden: units of the hidden layers of "mlp".
        stem: "cifar" or "imagenet" for a ResNet; by default from the size of the images.

    An option that is None takes the model's own default; one that the model does not have is an `InputError`.
    """
    shape, of_timm = tuple(in_shape), name.startswith(TIMM)
    options = {key: value for key, value in options.items() if value is not None}
    statistics = {key: torch.tensor(options.pop(key)) for key in ("mean", "std") if key in options}
    if weights is not None and of_timm:
        statistics = {}
        options["pretrained"] = weights == PRETRAINED
    elif weights == PRETRAINED:
        raise InputError(f"expected a file of weights for {name}, but got 'pretrained', which is for --model timm:NAME")
    network = _network(name)
    if name != "mlp" and len(shape) != 3:
        raise InputError(f"expected images of shape (C, H, W) for {name}, but got {shape}; take 'mlp' for tables")
    parameters = set(signature(network).parameters)
    own = parameters - {"num_outputs", "in_shape", "channels"}
    for option in options:
        one_of(f"an option of {name}", option, sorted(own | {"mean", "std"}))
    if "stem" in own:
        options.setdefault("stem", "cifar" if max(shape[1:]) <= LARGEST_SMALL_IMAGE else "imagenet")
    size = {"in_shape": shape} if "in_shape" in parameters else {"channels": shape[0]}
    make = partial(network, num_outputs=num_outputs, **size, **options)
    if options.get("width", 0) > WIDE:
        _check_width(f"{name} of width {shown(options['width'])}", options["width"], make)
    model = make()
    if isinstance(model.normalize, Normalize):
        for key, value in statistics.items():
            model.normalize.get_buffer(key).copy_(value)
    if weights is not None and weights != PRETRAINED:
        load_weights(model, weights)
    return model


def _network(name: str) -> Callable[..., Model]:
    if name.startswith(TIMM):
        from rcad.models.timm_model import TimmModel

        return partial(TimmModel, name.removeprefix(TIMM))
    one_of("the model", name, MODELS)
    network: Callable[..., Model] = pkgutil.resolve_name(f"rcad.models.{NETWORKS[name]}")
    return network


def _check_width(network: str, width: int, make: Callable[[], Model]) -> None:
    check_parameters(network, 9 * width**2)  # of one of its 3x3 convolutions: more, and it cannot even be counted
    with torch.device("meta"):
        check_parameters(network, sum(parameter.numel() for parameter in make().parameters()))
