"""The network of an estimator, one flat tensor seen as a module by the core and as a stack by its twin; and its files.

It pickles and copies as the bytes of a safetensors file. A saved estimator is one such file too, with all that is no
tensor as JSON in the header: no pickle anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from threading import RLock
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor, nn

from rcad.data.table_encoder import TableFeatures
from rcad.errors import InputError
from rcad.loss.method import Method
from rcad.models.mlp import MLP
from rcad.runs.files import replacing
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


VERSION = 2
PLAIN = (
    *("n_features_in_", "n_iter_", "loss_curve_", "validation_scores_", "seed_"),
    *("alpha_", "measured_alpha_", "center_", "scale_"),
)
"""Fitted attributes that are JSON as they are."""
ARRAYS = ("classes_", "feature_names_in_")


class Savable:
    """`save` and `load` for the estimators."""

    network_: Network
    columns_: TableFeatures
    method_: Method

    def save(self, path: str | Path) -> None:
        """Writes the fitted estimator whole or not at all. A random_state that is a generator is not kept."""
        if not hasattr(self, "network_"):
            raise InputError(f"expected a fitted {type(self).__name__} to save, but fit was not called")
        meta = {
            "version": VERSION,
            "estimator": type(self).__name__,
            "parameters": {name: _plain(name, value) for name, value in self.get_params().items()},  # type: ignore[attr-defined]
            "sizes": list(self.network_.stacked.layout.sizes),
            "columns": self.columns_.to_dict(),
            "method": _rows(self.method_),
            "fitted": {name: getattr(self, name) for name in PLAIN if hasattr(self, name)},
            "arrays": {name: _array(getattr(self, name)) for name in ARRAYS if hasattr(self, name)},
        }
        data = save(self.network_.tensors(), metadata={"rcad": json.dumps(meta)})
        with replacing(Path(path)) as temporary:
            temporary.write_bytes(data)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimator that `save` wrote, on the device it was trained on if that is here."""
        tensors, meta = _read(path)
        wanted = f"expected a {cls.__name__} saved by rcad in {path}"
        if meta.get("estimator") != cls.__name__ or meta.get("version") != VERSION:
            raise InputError(f"{wanted}, but got {meta.get('estimator')} of version {meta.get('version')}")
        try:
            self = cls(**{name: _value(name, value) for name, value in meta["parameters"].items()})
            for name, value in meta["fitted"].items():
                setattr(self, name, value)
            for name, (values, dtype) in meta["arrays"].items():
                setattr(self, name, np.array(values, dtype=dtype))
            self.columns_ = TableFeatures.from_dict(meta["columns"])
            self.method_ = Method.from_dict(meta["method"])
            self.network_ = Network.of(tensors, meta["sizes"], str(self.device))  # type: ignore[attr-defined]
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise InputError(f"{wanted}, but got: {' '.join(str(error).split())}") from None
        return self


def _read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    wanted = f"expected an estimator saved by rcad in {path}"
    try:
        with safe_open(str(path), framework="pt") as file:
            header = (file.metadata() or {}).get("rcad")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        meta = json.loads(header or "null")
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{wanted}, but got: {' '.join(str(error).split())}") from None
    if not isinstance(meta, dict) or "weights" not in tensors:
        raise InputError(f"{wanted}, but got other tensors")
    return tensors, meta


def _plain(name: str, value: Any) -> Any:
    """A parameter for JSON."""
    if isinstance(value, Method):
        return _rows(value)
    if name == "class_weight" and isinstance(value, dict):
        return [[_number(key), _number(weight)] for key, weight in value.items()]
    if name == "random_state" and not isinstance(value, int | np.integer):
        return None
    if isinstance(value, tuple | list):
        return [_number(item) for item in value]
    return str(value) if isinstance(value, torch.device) else _number(value)


def _value(name: str, plain: Any) -> Any:
    """A parameter from JSON."""
    if isinstance(plain, dict):
        return Method.from_dict(plain)
    if name == "class_weight" and isinstance(plain, list):
        return dict(plain)
    return tuple(plain) if isinstance(plain, list) else plain


def _rows(method: Method) -> dict[str, Any]:
    if not method.recipe:
        raise InputError("expected a method of rcad.methods to save, but got one built from terms; pickle it instead")
    return method.to_dict()


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _array(values: Any) -> tuple[list[Any], str]:
    return values.tolist(), "object" if values.dtype == object else values.dtype.str
