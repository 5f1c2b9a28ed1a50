"""From a name and a few options to a model; its weights from a local file, read without running any of its code."""

from __future__ import annotations

import logging
import pickle
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rcad.errors import InputError, MissingExtraError, check_parameters, need, one_of, shown
from rcad.models.layers import Model, Normalize

log = logging.getLogger("rcad")

NETWORKS = {
    **{name: f"convnets:{name}" for name in ("resnet18", "resnet34", "resnet50", "wrn28_10", "wrn16_8")},
    "small_cnn": "convnets:SmallCNN",
    "mlp": "layers:MLP",
}
"""Each network by its module, imported when it is used, and its class; its signature says which options it has."""
TIMM = "timm:"
MODELS: tuple[str, ...] = (*NETWORKS, f"{TIMM}NAME")  # the names that `build` knows; NAME is any of timm's

PRETRAINED = "pretrained"
WRAPPERS = ("state_dict", "model", "model_state_dict", "net")
"""Where a checkpoint keeps its state dict, one inside the other up to `MOST_WRAPPED` times."""
MOST_WRAPPED = 3
OF_RUN = "model.safetensors"  # the weights in a run's folder
WIDE = 512  # a wider convnet is counted before memory is taken for it
LARGEST_SMALL_IMAGE = 64  # up to this many pixels a side, a ResNet takes the CIFAR stem unless told otherwise


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
        norm: "batch", "group" or "none" (a factor and biases instead, started as Fixup does) for the convnets of this
            package.
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
    network: Callable[..., Model]
    if of_timm:
        from rcad.models.timm_model import TimmModel

        network = partial(TimmModel, name.removeprefix(TIMM))
    else:
        one_of("the model", name, MODELS)
        network = pkgutil.resolve_name(f"rcad.models.{NETWORKS[name]}")
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
    width = options.get("width", 0)
    if width > WIDE:
        described = f"{name} of width {shown(width)}"
        check_parameters(described, 9 * width**2)  # of one of its 3x3 convolutions: more, and it cannot be counted
        with torch.device("meta"):
            check_parameters(described, sum(parameter.numel() for parameter in make().parameters()))
    model = make()
    if isinstance(model.normalize, Normalize):
        for key, value in statistics.items():
            model.normalize.get_buffer(key).copy_(value)
    if weights is not None and weights != PRETRAINED:
        load_weights(model, weights)
    return model


@cache
def _warn_once(text: str) -> None:
    """Many runs of one command begin from the same file."""
    log.warning(text)


def load_weights(model: Model, path: str | Path) -> None:
    """Copy the weights in a file into `model`; on any error the model is left as it was.

    A last layer that the file has for other outputs starts anew, and for grey images the first layer of a file for
    colour ones is summed over the colours, both with a warning of the logger `rcad`. A file may always lack the means
    and deviations of `Normalize` and BatchNorm's batch counters.

    Args:
        path: a .safetensors file, or a state dict saved by torch.save, bare or in a checkpoint under one of `WRAPPERS`;
            or the folder of a run.
    """
    path = Path(path)
    if (path / OF_RUN).is_file():
        path /= OF_RUN
    stored, own, changed = _unwrap(_read(path), model, path), model.state_dict(), []
    head, weight = f"{model.head_name}.", f"{model.head_name}.weight"
    if weight in stored and stored[weight].ndim and len(stored[weight]) != len(own[weight]):
        needed = f"{len(stored[weight])} outputs, but {len(own[weight])} are needed"
        changed.append(f"{path} has {needed}: the last layer starts anew")
        stored, own = ({k: v for k, v in state.items() if not k.startswith(head)} for state in (stored, own))
    for key in own:
        if key not in stored and not key.startswith("normalize.") and not key.endswith("num_batches_tracked"):
            raise InputError(f"expected {key!r} of a {type(model).__name__} in {path}, but {_instead(key, stored)}")
    summed = {key: _for_grey(key, tensor, own[key]) for key, tensor in stored.items() if key in own}
    if any(summed[key].shape != stored[key].shape for key in summed):
        changed.append(f"{path} is for images in colour: its first layer is summed over the colours for grey ones")
    stored |= summed
    for key, tensor in stored.items():
        if key not in own:
            raise InputError(f"expected only the model's parameters in {path}, but got {key!r} as well")
        if tensor.is_floating_point() and not bool(tensor.float().isfinite().all()):  # of eight bits torch cannot ask
            raise InputError(f"expected finite numbers in {path}, but {key!r} has others; name another file")
        if tensor.shape != own[key].shape:
            raise InputError(
                f"expected {key!r} of shape {tuple(own[key].shape)} in {path}, "
                f"but got {tuple(tensor.shape)}{_first_layer(tensor, own[key])}"
            )
    model.load_state_dict(stored, strict=False)
    for sentence in changed:
        _warn_once(sentence)


def _instead(key: str, stored: Iterable[str]) -> str:
    """What a file has in the place of a parameter, and what to do: perhaps all of its names begin with a prefix."""
    bare, names = key.removeprefix("net."), [name.removeprefix("net.") for name in stored]
    prefix = next((name.removesuffix(bare) for name in names if name.endswith(f".{bare}")), "")
    if prefix and all(name.startswith(prefix) for name in names):
        anew = f"{{k.removeprefix({prefix!r}): v for k, v in state.items()}}"
        return f"every name begins with {prefix!r} there; save it without: {anew}"
    return "it is missing; if the weights are of another network, name that one (--model)"


def _for_grey(key: str, stored: Tensor, own: Tensor) -> Tensor:
    """What a file has for three colours, for one grey channel: a convolution is summed, statistics averaged."""
    if stored.ndim == own.ndim == 4 and stored.shape[1] == 3 and own.shape == (stored.shape[0], 1, *stored.shape[2:]):
        return stored.float().sum(1, keepdim=True)
    if key.startswith("normalize.") and len(own) == 1:
        return stored.float().mean(0, keepdim=True)
    return stored


def _first_layer(stored: Tensor, own: Tensor) -> str:
    """A hint, where a convolution sees images of another kind than the file's does."""
    if stored.ndim == 3:  # the positions of a transformer's patches
        return "; the file's network takes images of another size (--size)"
    if stored.ndim != 4 or stored.shape[0] != own.shape[0]:
        return ""
    if stored.shape[2] == 7 and own.shape[2] == 3:
        return "; a ResNet has ImageNet's first layer for images above 64 pixels (--size 224)"
    return f"; the file's network takes images of {stored.shape[1]} channels" if stored.shape[1] != own.shape[1] else ""


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise InputError(f"expected a file of weights, but found none at {path}; that of a run is runs/ID/{OF_RUN}")
    is_safe = path.suffix == ".safetensors"
    try:
        if is_safe:
            content = need("safetensors.torch", "safetensors", "cli").load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except MissingExtraError:
        raise
    except pickle.UnpicklingError as error:
        raise InputError(
            f"expected {path} to hold tensors only, but it is no state dict or would run code when opened; "
            "save it anew with torch.save(model.state_dict(), ...) or as safetensors"
        ) from error
    except Exception as error:  # neither library has a common base for what a damaged file raises
        kind = "safetensors file" if is_safe else "PyTorch state dict"
        how = "is cut off, damaged or something else" if path.stat().st_size else "is empty"
        raise InputError(f"expected {path} to be a {kind}, but it {how}; save it again, or name another") from error
    for _ in range(MOST_WRAPPED):
        inner = (content[key] for key in WRAPPERS if isinstance(content, Mapping) and key in content)
        content = next((value for value in inner if isinstance(value, Mapping)), content)
    if not isinstance(content, Mapping):
        raise InputError(f"expected {path} to hold a state dict, but got {type(content).__name__}")
    return content


def _unwrap(content: Mapping[str, Any], model: Model, path: Path) -> dict[str, Tensor]:
    """The tensors by the model's own names."""
    tensors: dict[str, Tensor] = {}
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise InputError(f"expected tensors by name in {path}, but got {type(value).__name__} under {shown(key)}")
        if value.layout != torch.strided or value.is_quantized or value.is_complex() or value.is_meta:
            raise InputError(
                f"expected dense tensors of real numbers in {path}, but got another kind under {shown(key)}"
            )
        name = key
        while name.startswith(("module.", "_orig_mod.")):  # wrappers of other programs
            name = name.split(".", 1)[1]
        tensors[name] = value
    # timm's own files do not know that this package keeps the network one level down.
    if isinstance(getattr(model, "net", None), nn.Module) and not any(k.startswith("net.") for k in tensors):
        tensors = {f"net.{key}": value for key, value in tensors.items()}
    return tensors
