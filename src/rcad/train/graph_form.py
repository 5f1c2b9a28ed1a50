"""What is the user's, as CUDA graphs can use it: batches in memory that stays, an optimizer whose rates are tensors.

The optimizer has that form only inside the step; outside it is as its owner made it, and learning rates are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

Batch = dict[str, Any]  # what a step is called with, by the names of its arguments
FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
"""Optimizers with a form that can be captured, however they were made."""
SETTINGS = ("lr", "fused", "foreach", "capturable")
MARKS = ("_warned_capturable_if_run_uncaptured", "_step_supports_amp_scaling")


class GraphForm:
    """The form of an optimizer that can be captured; `scaled` where a GradScaler may skip its steps."""

    def __init__(self, optimizer: torch.optim.Optimizer, *, scaled: bool) -> None:
        self.optimizer, self.scaled = optimizer, scaled
        self._rates: list[Tensor] = []
        self._sent: list[Any] = []

    def obstacle(self) -> str | None:
        """Why there is no such form."""
        name = type(self.optimizer).__name__
        if type(self.optimizer) not in FUSED:
            if not all(group.get("capturable") for group in self.optimizer.param_groups):
                return f"{name} is not torch's SGD, Adam or AdamW, and was not made with capturable=True"
            if self.scaled:
                return f"a GradScaler has to ask the device before {name} may step"
        if self.optimizer._optimizer_step_pre_hooks or self.optimizer._optimizer_step_post_hooks:
            return f"{name} has hooks, which a graph would not call"
        return None

    def prepare(self, device: torch.device) -> None:
        """Brings to the device what the step counts and what it reads."""
        for parameter, memory in self.optimizer.state.items():
            if isinstance(count := memory.get("step"), Tensor):
                memory["step"] = count.to(parameter.device, torch.float32)
        self._rates = [torch.zeros((), device=device) for _ in self.optimizer.param_groups]
        self._sent = [None] * len(self._rates)

    def send_rates(self) -> None:
        """Learning rates to where graphs read them, in float32; waits for nothing."""
        for place, group in enumerate(self.optimizer.param_groups):
            rate = group["lr"]
            if isinstance(rate, Tensor):
                self._rates[place].copy_(rate.reshape(()), non_blocking=True)
            elif rate != self._sent[place]:
                self._rates[place].fill_(rate)
            self._sent[place] = None if isinstance(rate, Tensor) else rate

    @contextmanager
    def worn(self) -> Iterator[None]:
        """Inside, the optimizer has this form."""
        own, groups = vars(self.optimizer), self.optimizer.param_groups
        before = [{name: group[name] for name in SETTINGS if name in group} for group in groups]
        marks = {name: own[name] for name in MARKS if name in own}
        own[MARKS[0]] = True  # warm-up steps are not captured, and nobody need be told
        for group, rate in zip(groups, self._rates, strict=True):
            group["lr"] = rate
            # Only fused kernels find out by themselves that a scaled step is to be skipped.
            if type(self.optimizer) in FUSED and (self.scaled or not group.get("capturable")):
                group.update({"fused": True, "foreach": False})
                if "capturable" in group:
                    group["capturable"] = True
                own[MARKS[1]] = True
        try:
            yield
        finally:
            for group, settings in zip(groups, before, strict=True):
                group.update(settings)
            for name in (*MARKS, "grad_scale", "found_inf"):  # the last two are left by a step that was broken off
                own.pop(name, None)
            own.update(marks)

    def fixed(self) -> tuple[Any, ...]:
        """The settings that a graph holds fixed: all but learning rates."""
        names = [name for name in self.optimizer.defaults if name != "lr"]
        return tuple(tuple(str(group.get(name)) for name in names) for group in self.optimizer.param_groups)

    def addresses(self) -> list[int]:
        """Where the tensors lie that it reads and writes."""
        places = []
        for group in self.optimizer.param_groups:
            places.append(len(group["params"]))
            for parameter in group["params"]:
                memory = self.optimizer.state.get(parameter, {})
                places += [address(value) for value in (parameter, *memory.values()) if isinstance(value, Tensor)]
        return places


def address(tensor: Tensor) -> int:
    """Where a tensor's numbers lie; for one that has none of its own yet, which tensor it is."""
    try:
        return tensor.data_ptr()
    except (RuntimeError, ValueError, NotImplementedError):
        return id(tensor)


def leaves_of(batch: Batch) -> dict[str, Any]:
    """The values of a batch by their names, those of mappings too."""
    leaves: dict[str, Any] = {}
    for name, value in batch.items():
        if isinstance(value, Mapping):
            leaves.update({f"{name}.{key}": item for key, item in value.items()})
        else:
            leaves[name] = value
    return leaves


def mapped(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    def changed(value: Any) -> Any:
        return change(value) if isinstance(value, Tensor) else value

    return {
        name: {key: changed(item) for key, item in value.items()} if isinstance(value, Mapping) else changed(value)
        for name, value in batch.items()
    }


def facts(leaf: Any) -> tuple[Any, ...]:
    """What a graph holds fixed of a value in a batch."""
    return (leaf.shape, leaf.dtype, channels_last(leaf)) if isinstance(leaf, Tensor) else (repr(leaf),)


def channels_last(tensor: Tensor) -> bool:
    """Whether an image or a convolution's weight lies in memory pixel by pixel."""
    rows = tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return rows and not tensor.is_contiguous()


def room_for(tensor: Tensor, device: torch.device, in_rows: bool) -> Tensor:
    """Memory for such a tensor, in its own order, or in the one that the model's convolutions prefer."""
    rows = channels_last(tensor) or (in_rows and tensor.ndim == 4)
    order = torch.channels_last if rows else torch.contiguous_format
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device, memory_format=order)
