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


def load_weights(
    model: nn.Module, path: str | Path, *, strict: bool = True, skip_head: bool | None = False
) -> tuple[str, ...]:
    """Copy the weights in a file into `model`; on any error the model is left as it was.

    What a file may always lack: the means and deviations of `Normalize` (other programs keep them elsewhere)
    and BatchNorm's batch counters (old files have none).

    Args:
        model: any module; `skip_head` needs one of this package.
        path: a .safetensors file, or a state dict saved by torch.save, bare or under "state_dict" or "model".
        strict: every parameter must be in the file and the other way round; otherwise what fits by name is
            loaded. A parameter of another shape is an error in both cases.
        skip_head: leave the model's last layer as it is, whatever the file has for it; None where the file's has other
            outputs, with a warning of the logger `rcad`.

    Returns:
        The names that were loaded.
    """
    path = Path(path)
    found = _unwrap(_read(path), model)
    wanted = model.state_dict()
    if skip_head is None:
        skip_head = _has_other_outputs(model, found, wanted, path)
    if skip_head:
        if not isinstance(model, Model):
            raise InputError(f"expected a model of rcad for skip_head, but got {type(model).__name__}")
        head = f"{model.head_name}."
        found = {k: v for k, v in found.items() if not k.startswith(head)}
        wanted = {k: v for k, v in wanted.items() if not k.startswith(head)}
    fit, kind = [k for k in wanted if k in found], type(model).__name__
    if strict:
        for key in wanted:
            if key not in found and not _may_lack(key):
                raise InputError(
                    f"expected {key!r} of a {kind} in {path}, but it is missing; if the weights are of another "
                    "network, name that one (--model)"
                )
        for key in found:
            if key not in wanted:
                raise InputError(f"expected only the model's parameters in {path}, but got {key!r} as well")
    elif not fit:
        raise InputError(f"expected some of the model's parameters in {path}, but got none")
    for key in fit:
        if found[key].shape != wanted[key].shape:
            is_head = isinstance(model, Model) and key.startswith(f"{model.head_name}.")
            hint = "; skip_head=True leaves it out" if is_head else _first_layer(found[key], wanted[key])
            raise InputError(
                f"expected {key!r} of shape {tuple(wanted[key].shape)} in {path}, "
                f"but got {tuple(found[key].shape)}{hint}"
            )
    model.load_state_dict({k: found[k] for k in fit}, strict=False)
    return tuple(fit)


def _first_layer(found: Tensor, wanted: Tensor) -> str:
    """A hint, where a convolution sees images of another kind than the file's does."""
    if found.ndim == 3:  # the positions of a transformer's patches
        return "; the file's network takes images of another size (--size)"
    if found.ndim != 4 or found.shape[0] != wanted.shape[0]:
        return ""
    if found.shape[1] != wanted.shape[1]:
        return f"; the file's network takes images of {found.shape[1]} channels"
    large = found.shape[2] == 7 and wanted.shape[2] == 3
    return "; a ResNet has ImageNet's first layer for images above 64 pixels (--size 224)" if large else ""


def _has_other_outputs(model: nn.Module, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], path: Path) -> bool:
    """Whether the last layer in the file is made for other classes."""
    if not isinstance(model, Model):
        return False
    key = f"{model.head_name}.weight"
    if key not in found or key not in wanted or found[key].ndim == 0 or len(found[key]) == len(wanted[key]):
        return False
    log.warning(
        "%s has %d outputs, but %d are needed: the last layer starts anew", path, len(found[key]), len(wanted[key])
    )
    return True


def _may_lack(key: str) -> bool:
    return key.startswith("normalize.") or key.endswith("num_batches_tracked")


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


def _unwrap(content: Mapping[str, Any], model: nn.Module) -> dict[str, Tensor]:
    """The tensors by the model's own names."""
    found: dict[str, Tensor] = {}
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise InputError(f"expected tensors by name, but got {type(value).__name__} under {shown(key)}")
        if value.layout != torch.strided or value.is_quantized or value.is_complex() or value.is_meta:
            raise InputError(f"expected dense tensors of real numbers, but got another kind under {shown(key)}")
        name = key
        while name.startswith(_PREFIXES):
            name = name.split(".", 1)[1]
        found[name] = value
    # timm's own files do not know that this package keeps the network one level down.
    if isinstance(getattr(model, "net", None), nn.Module) and not any(k.startswith("net.") for k in found):
        found = {f"net.{key}": value for key, value in found.items()}
    return found
