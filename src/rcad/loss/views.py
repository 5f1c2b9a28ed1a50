"""A view: the tensor that may be perturbed, the model as a function of it, and what should come out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from rcad.errors import InputError
from rcad.loss.model_calls import Forward, Inputs, Model, Output

MASK_KEY = "attention_mask"


class View(NamedTuple):
    """One batch as the terms see it.

    Attributes:
        forward: x -> logits.
        x: the floating-point tensor that terms may perturb, (B, ...).
        target: hard, soft or real-valued targets.
        mask: which positions of x may move, (B, T), or None for all.
        weight: what each example counts, (B,), or None for 1 each.
        check_always: whether values are read at every batch on the CPU, or at a model's first only.
    """

    forward: Forward
    x: Tensor
    target: Tensor
    mask: Tensor | None
    weight: Tensor | None
    check_always: bool = True


def make_view(
    model: Model,
    inputs: Inputs,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    input_key: str | None = None,
    mask_key: str | None = None,
    output: Output | None = None,
) -> View:
    """Finds the tensor to perturb in `inputs`, checks shapes and types, and binds the rest to the model."""
    if not callable(model):
        raise InputError(
            f"expected the model itself, not its output, but got {type(model).__name__}; call criterion(model, x, y)"
        )
    if isinstance(inputs, Mapping):
        key = _input_key(inputs, input_key)
        x, forward, mask = inputs[key], Forward(model, inputs, key, output), _mask(inputs, mask_key, inputs[key])
    else:
        if not isinstance(inputs, Tensor):
            raise InputError(
                f"expected x to be a tensor or a mapping, but got {type(inputs).__name__}; pass several inputs as a "
                "mapping by the names that forward gives them, and input_key= for the one to perturb"
            )
        for key_name in (input_key, mask_key):
            if key_name is not None:
                raise InputError(f"expected a mapping with the key {key_name!r}, but got a tensor")
        x, forward, mask = inputs, Forward(model, output=output), None
    _check(x, target, weight)
    return View(forward, x, target, mask, weight)


def _check(x: Tensor, target: Tensor, weight: Tensor | None) -> None:
    if not x.is_floating_point():
        raise InputError(
            f"expected a floating-point input to perturb, but got {x.dtype}; convert images with x.float() / 255, "
            "and pass token embeddings as inputs_embeds"
        )
    if x.ndim == 0 or x.numel() == 0:
        raise InputError(f"expected a batch with at least one example, but got x of shape {tuple(x.shape)}")
    if not isinstance(target, Tensor):
        raise InputError(f"expected the target to be a tensor, but got {type(target).__name__}")
    if target.ndim == 0 or len(target) != len(x):
        raise InputError(f"expected {len(x)} targets, one per example, but got shape {tuple(target.shape)}")
    if weight is not None and weight.shape != (len(x),):
        raise InputError(f"expected sample weights of shape ({len(x)},), but got {tuple(weight.shape)}")
    if x.is_inference():
        raise InputError("expected an input made outside torch.inference_mode(), but got an inference tensor")


def _input_key(inputs: Mapping[str, Any], key: str | None) -> str:
    if key is not None:
        if not isinstance(inputs.get(key), Tensor):
            raise InputError(f"expected a tensor under the key {key!r}, but got the keys {', '.join(inputs)}")
        return key
    floats = [k for k, v in inputs.items() if isinstance(v, Tensor) and v.is_floating_point() and k != MASK_KEY]
    if len(floats) == 1:
        return floats[0]
    if floats:
        raise InputError(f"expected input_key to name one of {', '.join(floats)}, but got None")
    raise InputError(
        f"expected a floating-point input to perturb, but got only {', '.join(inputs)}; embed tokens first and pass "
        "them as inputs_embeds"
    )


def _mask(inputs: Mapping[str, Any], key: str | None, x: Tensor) -> Tensor | None:
    """The mask that was named, else the attention mask where it fits x: one beside images belongs to a text."""
    mask = inputs.get(MASK_KEY if key is None else key)
    fits = isinstance(mask, Tensor) and mask.ndim <= x.ndim and mask.shape == x.shape[: mask.ndim]
    if key is not None and not fits:
        found = f"the keys {', '.join(inputs)}" if mask is None else f"{tuple(getattr(mask, 'shape', ()))}"
        raise InputError(f"expected a mask under the key {key!r} that fits {tuple(x.shape)}, but got {found}")
    # A text's mask (B, T) and an image (B, C, H, W) may agree by accident; embeddings have three dimensions.
    return mask if fits and (key is not None or x.ndim <= 3) else None
