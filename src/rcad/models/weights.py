"""Weights from a local file: safetensors, or a PyTorch state dict read without running any of its code."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rcad.errors import InputError, MissingExtraError, need, shown
from rcad.models.layers import Model

log = logging.getLogger("rcad")
# Wrappers that other programs leave in the names of the parameters.
_PREFIXES = ("module.", "_orig_mod.")


def load_weights(model: Model, path: str | Path) -> None:
    """Copy the weights in a file into `model`; on any error the model is left as it was.

    A last layer that the file has for other outputs starts anew, with a warning of the logger `rcad`. What a file may
    always lack: the means and deviations of `Normalize` (other programs keep them elsewhere) and BatchNorm's batch
    counters (old files have none).

    Args:
        path: a .safetensors file, or a state dict saved by torch.save, bare or under "state_dict" or "model".
    """
    path = Path(path)
    stored, own = _unwrap(_read(path), model), model.state_dict()
    head, weight = f"{model.head_name}.", f"{model.head_name}.weight"
    if weight in stored and stored[weight].ndim and len(stored[weight]) != len(own[weight]):
        outputs = len(stored[weight]), len(own[weight])
        log.warning("%s has %d outputs, but %d are needed: the last layer starts anew", path, *outputs)
        stored, own = ({k: v for k, v in state.items() if not k.startswith(head)} for state in (stored, own))
    for key in own:
        if key not in stored and not key.startswith("normalize.") and not key.endswith("num_batches_tracked"):
            raise InputError(
                f"expected {key!r} of a {type(model).__name__} in {path}, but it is missing; if the weights are of "
                "another network, name that one (--model)"
            )
    for key, tensor in stored.items():
        if key not in own:
            raise InputError(f"expected only the model's parameters in {path}, but got {key!r} as well")
        if tensor.shape != own[key].shape:
            raise InputError(
                f"expected {key!r} of shape {tuple(own[key].shape)} in {path}, "
                f"but got {tuple(tensor.shape)}{_first_layer(tensor, own[key])}"
            )
    model.load_state_dict(stored, strict=False)


def _first_layer(stored: Tensor, own: Tensor) -> str:
    """A hint, where a convolution sees images of another kind than the file's does."""
    if stored.ndim == 3:  # the positions of a transformer's patches
        return "; the file's network takes images of another size (--size)"
    if stored.ndim != 4 or stored.shape[0] != own.shape[0]:
        return ""
    if stored.shape[1] != own.shape[1]:
        return f"; the file's network takes images of {stored.shape[1]} channels"
    large = stored.shape[2] == 7 and own.shape[2] == 3
    return "; a ResNet has ImageNet's first layer for images above 64 pixels (--size 224)" if large else ""


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise InputError(f"expected a file of weights, but found none at {path}")
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
        kind, reason = "safetensors file" if is_safe else "PyTorch state dict", str(error).split("\n")[0]
        raise InputError(f"expected {path} to be a {kind}, but got: {reason or type(error).__name__}") from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping):
        raise InputError(f"expected {path} to hold a state dict, but got {type(content).__name__}")
    return content


def _unwrap(content: Mapping[str, Any], model: Model) -> dict[str, Tensor]:
    """The tensors by the model's own names."""
    tensors: dict[str, Tensor] = {}
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise InputError(f"expected tensors by name, but got {type(value).__name__} under {shown(key)}")
        if value.layout != torch.strided or value.is_quantized or value.is_complex() or value.is_meta:
            raise InputError(f"expected dense tensors of real numbers, but got another kind under {shown(key)}")
        name = key
        while name.startswith(_PREFIXES):
            name = name.split(".", 1)[1]
        tensors[name] = value
    # timm's own files do not know that this package keeps the network one level down.
    if isinstance(getattr(model, "net", None), nn.Module) and not any(k.startswith("net.") for k in tensors):
        tensors = {f"net.{key}": value for key, value in tensors.items()}
    return tensors
