"""Passes through a model: which input may be perturbed, which output is the prediction; the model stays as it was."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.lazy import LazyModuleMixin

from rcad.errors import InputError

Model = Callable[..., Any]
Inputs = Tensor | Mapping[str, Any]

LOGIT_KEYS = ("logits", "out", "output")

Output = int | str | Callable[[Any], Tensor]
"""Which part of what a model returned is its prediction: an index, a key or attribute, or a function of it."""


def logits_of(output: Any, choice: Output | None = None) -> Tensor:
    """The prediction in what a model returned: a tensor, a tuple, a mapping, or an object with `.logits`.

    In a tuple it is the tensor of floats beside losses (which have no dimension) and other things. Several of one
    shape, such as those of auxiliary heads, leave the first; several of different shapes need a choice.
    """
    if choice is not None:
        return _chosen(output, choice)
    if isinstance(output, Tensor):
        return output
    logits = getattr(output, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    if isinstance(output, Mapping):
        for key in LOGIT_KEYS:
            if isinstance(output.get(key), Tensor):
                return output[key]  # type: ignore[no-any-return]
        raise InputError(
            f"expected the model's mapping to hold one of {', '.join(LOGIT_KEYS)}, but got {', '.join(output)}"
        )
    if isinstance(output, tuple | list):
        tensors = [item for item in output if isinstance(item, Tensor) and item.ndim > 0 and item.is_floating_point()]
        if len({item.shape for item in tensors}) > 1:
            shapes = ", ".join(str(tuple(item.shape)) for item in tensors)
            raise InputError(
                f"expected one prediction, but the model returned tensors of the shapes {shapes}; say which with "
                "output=, an index, a key or a function of what the model returns"
            )
        if tensors:
            return tensors[0]
    raise InputError(
        "expected the model to return a tensor, a tuple, a mapping or an object with .logits, "
        f"but got {type(output).__name__}"
    )


def _chosen(output: Any, choice: Output) -> Tensor:
    """The part that the user named; where there is none, the message says what the model returned."""
    part: Any
    if callable(choice):
        part = choice(output)
    else:
        try:
            by_name = isinstance(choice, str) and not isinstance(output, Mapping)
            part = getattr(output, str(choice)) if by_name else output[choice]
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            part = error
    if isinstance(part, Tensor):
        return part
    inside = f" with the keys {', '.join(map(str, output))}" if isinstance(output, Mapping) else ""
    inside = f" of {len(output)}" if isinstance(output, tuple | list) else inside
    raise InputError(
        f"expected output={choice!r} to name a tensor of what the model returns, "
        f"but got {type(part).__name__} from {type(output).__name__}{inside}"
    )


@dataclass(eq=False)
class Forward:
    """A model as a function of the one tensor that may be perturbed; the other inputs are filled in."""

    model: Any
    key: str | None = None  # by which the model is given x, where its inputs are a mapping
    others: Mapping[str, Any] = field(default_factory=dict)  # what it is given beside x
    output: Output | None = None
    behind: list[nn.Module] | None = field(default=None, init=False, repr=False)  # found once

    def __call__(self, x: Tensor, *, last: bool = False) -> Tensor:
        """The logits at x. A model that works in place gets copies, unless this is the `last` use of its inputs."""
        x = x if last else x.clone()
        if self.key is None:
            return logits_of(self.model(x), self.output)
        others = {k: v.clone() if isinstance(v, Tensor) and not last else v for k, v in self.others.items()}
        return logits_of(self.model(**others, **{self.key: x}), self.output)

    def inner(self) -> Forward:
        """The same function without a data-parallel wrapper, for the passes that follow the clean one."""
        wrapped = isinstance(self.model, nn.parallel.DistributedDataParallel)
        return replace(self, model=self.model.module) if wrapped else self


def as_module(model: Model | Forward) -> nn.Module | None:
    """The nn.Module behind a model, if there is one."""
    model = model.model if isinstance(model, Forward) else model
    return model if isinstance(model, nn.Module) else None


MANY = 500  # at so many things a callable is searched for modules
_MODULES_OWN = vars(nn.Module()).keys()  # where a module keeps its parameters, buffers, children and hooks
_unregistered: WeakKeyDictionary[nn.Module, WeakSet[nn.Module]] = WeakKeyDictionary()  # looked for once


def modules_behind(model: Model | Forward) -> list[nn.Module]:
    """The model if it is an nn.Module; else those that a method, partial, function or object holds, nearest first.

    After each come those that it holds unregistered: in a list, in its `__dict__`, or as a method of theirs.
    """
    if isinstance(model, Forward):
        if model.behind is None:
            model.behind = modules_behind(model.model)
        return model.behind
    if torch.compiler.is_compiling():  # which cannot look into functions
        return [model] if isinstance(model, nn.Module) else []
    if not isinstance(model, nn.Module):
        return [one for found in _found([model]) for one in modules_behind(found)]
    if model not in _unregistered:
        _unregistered[model] = WeakSet()  # for those that hold each other
        inside = list(model.modules())
        values = [value for module in inside for name, value in vars(module).items() if name not in _MODULES_OWN]
        hidden = _found([value for value in values if callable(value) or isinstance(value, list | tuple | dict)])
        _unregistered[model] |= {one for found in hidden for one in modules_behind(found)} - set(inside)
    return [model, *_unregistered[model]]


def _found(parts: list[Any]) -> list[nn.Module]:
    seen = {id(part) for part in parts}
    for part in parts:  # which grows
        new = [one for one in _held(part) if gc.is_tracked(one) and id(one) not in seen]
        parts += new[: max(MANY - len(parts), 0)]
        seen |= {id(one) for one in new}
    return [part for part in parts if issubclass(type(part), nn.Module)]  # and no proxy of one


def _held(part: Any) -> list[Any]:
    """What a callable may call: whatever it was made with, and of a function's globals those that it names."""
    data = isinstance(part, list | tuple | dict) and len(part) > MANY
    if data or isinstance(part, nn.Module | Tensor | type | ModuleType):
        return []
    if isinstance(part, FunctionType):
        torchs = str(part.__globals__.get("__name__")).startswith("torch.")  # such as what torch.compile gives
        codes = [] if torchs else [part.__code__]
        for code in codes:  # which grows by the functions inside
            codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
        names = [name for code in codes for name in code.co_names]
        named = [part.__globals__.get(name) for name in names]
        named += [vars(one).get(name) for one in named if isinstance(one, ModuleType | type) for name in names]
        return [part.__closure__, part.__defaults__, part.__kwdefaults__, part.__dict__, *named]
    return [*gc.get_referents(part), vars(type(part)).get("__call__")]


REENTRANT = (
    "expected activation checkpointing with use_reentrant=False, but got the re-entrant kind, which loses gradients of "
    "passes whose input needs none, and refuses a backward to x alone; this loss takes such passes"
)
_reentrant: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def reenters(model: Model | Forward, output: Tensor) -> bool:
    """Whether the output of a model, at an input that needs a gradient, went through re-entrant checkpointing.

    Looked for once per model, in the graph of an output.
    """
    if torch.compiler.is_compiling() or output.grad_fn is None:
        return False
    module = as_module(model)
    if module is None:
        return _has_checkpoint(output.grad_fn)
    if module not in _reentrant:
        _reentrant[module] = _has_checkpoint(output.grad_fn)
    return _reentrant[module]


def _has_checkpoint(root: Any) -> bool:
    visited, waiting = {root}, [root]
    while waiting:
        node = waiting.pop()
        if node.name() == "CheckpointFunctionBackward":
            return True
        new = {following for following, _ in node.next_functions if following is not None} - visited
        visited |= new
        waiting.extend(new)
    return False


@contextmanager
def frozen_batch_stats(model: Model | Forward) -> Iterator[None]:
    """Inside, BatchNorm in train mode uses the batch's statistics but leaves its running averages alone.

    InstanceNorm's too; no other state is known here: spectral_norm's power iteration and running numbers of one's
    own move at every pass. Layers in eval mode stay as they are. Re-entrant, and restores on an exception.
    """
    training = [m for module in modules_behind(model) for m in module.modules() if m.training]
    layers = [m for m in training if isinstance(m, _NormBase) and m.track_running_stats]
    lazy: list[Any] = [m for m in layers if isinstance(m, LazyModuleMixin)]  # the first pass makes their averages
    layers = [m for m in layers if m not in lazy] if lazy else layers
    # A scripted or exported layer reads no flag, nor do InstanceNorm and many a forward of one's own: what they hold is
    # put back, unseen by autograd, which needs none.
    fixed = [m for m in training if type(m) is nn.Module or isinstance(m, torch.jit.ScriptModule)]
    fixed = [m for m in fixed if hasattr(m, "running_mean")] + [m for m in layers if not _reads_flag(m)]
    averages = [(m, name, b) for m in fixed for name, b in m.named_buffers(recurse=False)]
    before = [average.clone() for _, _, average in averages]
    momenta = [(m, m.momentum) for m in layers if isinstance(m, _InstanceNorm)]
    for layer in layers:
        layer.track_running_stats = False
    for layer, _ in momenta:
        layer.momentum = 0.0  # for averages that functional_call was given
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True
        for layer, momentum in momenta:
            layer.momentum = momentum
        for layer in lazy:
            if not isinstance(layer, LazyModuleMixin):
                layer.reset_running_stats()
        for (module, name, average), value in zip(averages, before, strict=True):
            average.data.copy_(value)
            setattr(module, name, average)


def _reads_flag(layer: nn.Module) -> bool:
    return "track_running_stats" in getattr(getattr(layer.forward, "__code__", None), "co_names", ())


def keep_passes_whole() -> None:
    """From now on torch compiles no backward that gives away the memory of its pass, which will be run twice.

    For the whole process, with what was compiled before: torch reads the setting again at every backward.
    """
    from torch._functorch import config

    if config.donated_buffer and not torch.compiler.is_compiling():  # there it is too late
        config.donated_buffer = False
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()


@contextmanager
def preserved_rng(device: torch.device) -> Iterator[None]:
    """Inside, dropout and the like may draw; outside, the generators stand where they stood."""
    capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    if torch.compiler.is_compiling() or capturing:  # neither can read or set a generator's state
        yield
        return
    devices = [] if device.type == "cpu" else [device.index if device.index is not None else 0]
    with torch.random.fork_rng(devices=devices, device_type=device.type if devices else "cuda"):
        yield


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside, every layer is in eval mode; afterwards each is as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def whole_steps(model: Model, inputs: Inputs) -> Iterator[bool]:
    """Whatever interrupts the passes inside, `.grad` is then what it was: gradients of earlier batches are copied.

    Gives whether a parameter has a hook that is called with its gradient, to clip it or to step.
    """
    if torch.compiler.is_compiling() or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        yield False
        return
    learned: list[Tensor] = [parameter for module in modules_behind(model) for parameter in module.parameters()]
    learned += [x for x in (inputs.values() if isinstance(inputs, Mapping) else [inputs]) if isinstance(x, Tensor)]
    before = [(leaf, leaf.grad) for leaf in learned if leaf.is_leaf and leaf.requires_grad]
    values = [None if gradient is None else gradient.clone() for _, gradient in before]
    try:
        yield any(leaf._backward_hooks or getattr(leaf, "_post_accumulate_grad_hooks", None) for leaf, _ in before)
    except BaseException:
        for (leaf, gradient), value in zip(before, values, strict=True):
            if gradient is not None and value is not None:
                gradient.copy_(value)
            leaf.grad = gradient
        raise


@contextmanager
def undisturbed(model: Model | Forward, device: torch.device) -> Iterator[None]:
    """`frozen_batch_stats` and `preserved_rng` together: for passes that only look."""
    with frozen_batch_stats(model), preserved_rng(device):
        yield


MASK_KEY = "attention_mask"


class View(NamedTuple):
    """One batch as the terms see it."""

    forward: Forward  # x -> logits
    x: Tensor  # the floating-point tensor that terms may perturb, (B, ...)
    target: Tensor  # hard, soft or real-valued
    mask: Tensor | None  # which positions of x may move, (B, T); None for all
    weight: Tensor | None  # what each example counts, (B,); None for 1 each
    check_always: bool  # whether values are read at every batch on the CPU, or at a model's first only


def bind(
    model: Model, inputs: Inputs, input_key: str | None, mask_key: str | None, output: Output | None
) -> tuple[Forward, Tensor, Tensor | None]:
    """The model as a function of the tensor to perturb, which is found in `inputs`; that tensor, and its mask."""
    if not callable(model):
        raise InputError(
            f"expected the model itself, not its output, but got {type(model).__name__}; call criterion(model, x, y)"
        )
    if isinstance(inputs, Mapping):
        key = _input_key(inputs, input_key)
        others = {name: value for name, value in inputs.items() if name != key}
        return Forward(model, key, others, output), inputs[key], _mask(inputs, mask_key, inputs[key])
    if not isinstance(inputs, Tensor):
        raise InputError(
            f"expected x to be a tensor or a mapping, but got {type(inputs).__name__}; pass several inputs as a "
            "mapping by the names that forward gives them, and input_key= for the one to perturb"
        )
    for key_name in (input_key, mask_key):
        if key_name is not None:
            raise InputError(f"expected a mapping with the key {key_name!r}, but got a tensor")
    return Forward(model, output=output), inputs, None


def check_view(view: View, *, one_pass: bool) -> None:
    """Refuses what no step could be made of, of `one_pass` or several; reads no values."""
    x, target, weight = view.x, view.target, view.weight
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
    if weight is not None and not (isinstance(weight, Tensor) and weight.shape == (len(x),)):
        got = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise InputError(f"expected sample weights of shape ({len(x)},), but got {got}")
    given = [("an input", x), ("a target", target), ("a weight", weight)]
    given += [("an input", value) for value in view.forward.others.values()]
    for name, tensor in [] if torch.compiler.is_compiling() else given if torch.is_grad_enabled() else given[:1]:
        if isinstance(tensor, Tensor) and tensor.is_inference():
            told = f"expected {name} made outside torch.inference_mode(), but got an inference tensor"
            raise InputError(f"{told}; pass its clone()")
    module = as_module(view.forward)
    parameter = None if module is None else next(module.parameters(), None)
    for name, tensor in (("inputs", x), ("a model", parameter)):
        if tensor is not None and tensor.device.type == "meta":
            raise InputError(
                f"expected {name} with values, but got the meta device, which holds shapes alone; move it to a real "
                "one, e.g. model.to_empty(device='cpu'), and load its weights"
            )
    for outer in [] if one_pass else modules_behind(view.forward):
        outer = getattr(outer, "_orig_mod", outer)
        if isinstance(outer, nn.parallel.DistributedDataParallel) and outer.static_graph:
            raise InputError(
                "expected DistributedDataParallel without static_graph, which takes one pass a step, but got "
                "static_graph=True; set it to False, or wrap the Objective: DistributedDataParallel(Objective(...))"
            )


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
        got = f"the keys {', '.join(inputs)}" if mask is None else f"{tuple(getattr(mask, 'shape', ()))}"
        raise InputError(f"expected a mask under the key {key!r} that fits {tuple(x.shape)}, but got {got}")
    # A text's mask (B, T) and an image (B, C, H, W) may agree by accident; embeddings have three dimensions.
    return mask if fits and (key is not None or x.ndim <= 3) else None
