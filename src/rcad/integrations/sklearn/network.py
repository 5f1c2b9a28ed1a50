"""The network of an estimator: one flat tensor of parameters, seen as a module by the core and as a stack by its twin.

It pickles and copies as the bytes of a safetensors file.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from rcad.models.mlp import MLP
from rcad.stacked.model import Layout, StackedMLP
from rcad.train.optim import optimizer_tensors, restore_optimizer

ROWS = 2**14
"""Rows that are predicted at a time."""
_DRAWING = RLock()
"""First weights come from torch's global generator, which fits in several threads must not share."""


class Network:
    """A perceptron, its gradient and its optimizer.

    Args:
        stacked: the parameters, of one replica.

    Attributes:
        flat, gradient: all parameters and their gradients, one tensor each.
        module: the same parameters as an `MLP`, whose gradients arrive in `gradient`.
        optimizer: AdamW over `flat`.
    """

    def __init__(self, stacked: StackedMLP) -> None:
        self.stacked, self.flat = stacked, stacked.flat
        self.gradient = torch.zeros_like(self.flat)
        layout = stacked.layout
        self.module = self.copy_of_module()
        parts = zip(layout.views(self.flat), layout.views(self.gradient), self.module.parameters(), strict=True)
        for value, gradient, parameter in parts:
            parameter.data, parameter.grad = value[0], gradient[0]
        weights = nn.Parameter(self.flat)
        weights.grad = self.gradient
        self.optimizer = torch.optim.AdamW([weights], fused=True)

    @classmethod
    def begun(cls, sizes: Sequence[int], seed: int, device: torch.device, dtype: torch.dtype) -> Network:
        """With the first weights of a seed, those that a run of the engine with this seed begins with."""
        with _DRAWING:
            stacked = StackedMLP.initial([seed], sizes, device=device, dtype=dtype)
        return cls(stacked)

    def copy_of_module(self) -> MLP:
        """The network as an ordinary module with parameters of its own."""
        with _DRAWING, torch.random.fork_rng(devices=[]):  # what a new module draws is not used
            return self.stacked.module(0)

    def pace(self, rate: float, decay: float) -> None:
        """Sets learning rate and weight decay of the steps to come."""
        self.optimizer.param_groups[0].update(lr=rate, weight_decay=decay)

    @torch.no_grad()
    def output(self, x: Tensor) -> Tensor:
        """(N, D) -> (N, K), on the CPU."""
        parts = [self.module(part.to(self.flat)) for part in torch.split(x, ROWS)]
        return torch.cat(parts).cpu()

    def on(self, device: torch.device) -> Network:
        """This network if it is there, else a copy."""
        if self.flat.device == device:
            return self
        return Network.of(self.tensors(), self.stacked.layout.sizes, str(device))

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and the optimizer's memory, on the CPU."""
        found = {"weights": self.flat} | optimizer_tensors(self.optimizer)
        return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in found.items()}

    @classmethod
    def of(cls, tensors: dict[str, Tensor], sizes: Sequence[int], device: str) -> Network:
        """The network whose `tensors` these are; one from a GPU comes back on the CPU where there is none."""
        gone = torch.device(device).type == "cuda" and not torch.cuda.is_available()
        memory, place = dict(tensors), torch.device("cpu" if gone else device)
        weights = memory.pop("weights")  # copied: safetensors gives views of the bytes it has read
        network = cls(StackedMLP(Layout(1, tuple(sizes)), weights.to(place, copy=True)))
        if memory:
            restore_optimizer(network.optimizer, memory)
        return network

    def __reduce__(self) -> tuple[Any, ...]:
        sizes = list(self.stacked.layout.sizes)
        return _from_bytes, (save(self.tensors()), sizes, str(self.flat.device))


def _from_bytes(data: bytes, sizes: Sequence[int], device: str) -> Network:
    """A pickled network."""
    return Network.of(load(data), sizes, device)
