"""The network of an estimator, a stack of one, and its files.

It pickles and copies as the bytes of a safetensors file. A saved estimator is one such file too, with all that is no
tensor as JSON in the header: no pickle anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from rcad.data.table_encoder import TableFeatures
from rcad.errors import InputError, shaped
from rcad.loss.methods import Method
from rcad.runs.config import OptimConfig
from rcad.runs.files import replacing
from rcad.stacked.model import Layout, StackedMLP, StackedOptimizer

ROWS = 2**14
"""Rows that are predicted at a time."""
MEMORY = ("0.step", "0.exp_avg", "0.exp_avg_sq")
_DRAWING = RLock()
"""First weights come from torch's global generator, which fits in several threads must not share."""


class Network:
    """A perceptron, a model of one replica, and its optimizer: AdamW over `flat`, which holds all parameters."""

    def __init__(self, model: StackedMLP) -> None:
        self.model, self.flat = model, model.flat
        self.pace(1.0, 0.0)

    @classmethod
    def begun(cls, sizes: Sequence[int], seed: int, device: torch.device, dtype: torch.dtype) -> Network:
        """A network with the initial weights of a seed, the same as in `rcad train` with this seed."""
        with _DRAWING:
            return cls(StackedMLP.initial([seed], sizes, device=device, dtype=dtype))

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.model.layout.sizes

    def pace(self, rate: float, decay: float) -> None:
        """Sets learning rate and weight decay of the steps to come."""
        self.rate, self.decay, before = rate, decay, getattr(self, "optimizer", None)
        config = OptimConfig(name="adamw", lr=rate, weight_decay=decay)
        self.optimizer = StackedOptimizer([config], self.model.layout, self.flat, epochs=1)
        if before is not None:
            self._recall(before.steps, before.first, before.second)

    def _recall(self, steps: int, first: Tensor | None, second: Tensor | None) -> None:
        self.optimizer.steps, self.optimizer.first, self.optimizer.second = steps, first, second

    @torch.no_grad()
    def output(self, x: Tensor) -> Tensor:
        """(N, D) -> (N, K), on the CPU."""
        return torch.cat([self.model(part.to(self.flat)[None])[0] for part in torch.split(x, ROWS)]).cpu()

    def on(self, device: torch.device) -> Network:
        """This network if it is there, else a copy."""
        return self if self.flat.device == device else Network.of(self.tensors(), self.sizes, str(device))

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and the optimizer's memory, on the CPU, under the names that torch.optim.AdamW gives it."""
        memory = self.optimizer
        values = (self.flat, torch.tensor(float(memory.steps)), memory.first, memory.second)
        return {
            name: value.detach().to("cpu", copy=True).contiguous()
            for name, value in zip(("weights", *MEMORY), values, strict=True)
            if value is not None
        }

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], sizes: Sequence[int], device: str) -> Network:
        """The network from its `tensors`; on the CPU if it was on a GPU and there is none here."""
        gone = torch.device(device).type == "cuda" and not torch.cuda.is_available()
        place = torch.device("cpu" if gone else device)
        # Copied: safetensors gives views of the bytes it has read.
        network = cls(StackedMLP(Layout(1, tuple(sizes)), tensors["weights"].to(place, copy=True)))
        if MEMORY[0] in tensors:
            first, second = (tensors[name].to(place, copy=True) for name in MEMORY[1:])
            network._recall(int(tensors[MEMORY[0]]), first, second)
        return network

    def __getstate__(self) -> dict[str, Any]:
        """Bytes and plain values, which skops knows as well as pickle does."""
        return {"data": save(self.tensors()), "sizes": list(self.sizes), "device": str(self.flat.device)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(vars(Network.of(load(state["data"]), state["sizes"], state["device"])))


VERSION = 2
ARRAYS = ("classes_", "feature_names_in_", "center_", "scale_", "conformal_scores_")
PLAIN = {
    "n_features_in_": int,
    "n_iter_": int,
    "seed_": int,
    "loss_curve_": [float],
    "validation_scores_": ([float], None),
    **dict.fromkeys(("alpha_", "measured_alpha_"), (float, None)),
    "multilabel_": (bool, None),
}
"""Fitted attributes that are JSON as they are, and their kinds."""
FORMER = dict.fromkeys(("center_", "scale_"), (float, None))
"""The same of estimators with one target, in files of before there could be several."""
_META = {
    "parameters": dict,
    "sizes": [int],
    "columns": dict,
    "method": dict,
    "fitted": {**PLAIN, **FORMER},
    "arrays": {str: [object]},
}


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
            "sizes": list(self.network_.sizes),
            "columns": self.columns_.to_dict(),
            "method": _rows(self.method_),
            "fitted": {name: getattr(self, name) for name in PLAIN if hasattr(self, name)},
            "arrays": {name: _array(getattr(self, name)) for name in ARRAYS if hasattr(self, name)},
        }
        data = save(self.network_.tensors(), metadata={"rcad": json.dumps(meta, default=_json)})
        with replacing(Path(path)) as temporary:
            temporary.write_bytes(data)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimator that `save` wrote, on the device it was trained on if that is here."""
        tensors, header = _read(path)
        message = f"expected a {cls.__name__} saved by rcad in {path}"
        if header.get("estimator") != cls.__name__ or header.get("version") != VERSION:
            raise InputError(f"{message}, but got {header.get('estimator')} of version {header.get('version')}")
        try:
            meta = shaped("the state", header, _META)
            self = cls(**{name: _value(name, value) for name, value in meta["parameters"].items()})
            for name in {*PLAIN, *FORMER} & header["fitted"].keys():
                setattr(self, name, meta["fitted"][name])
            for name in {*ARRAYS} & meta["arrays"].keys():
                values, dtype = meta["arrays"][name]
                setattr(self, name, np.array(values, dtype=dtype)[()])  # a number where it was one
            self.columns_ = TableFeatures.from_dict(meta["columns"])
            self.method_ = Method.from_dict(meta["method"])
            self.network_ = Network.of(tensors, meta["sizes"], str(self.device))  # type: ignore[attr-defined]
            self._check_sizes()
        except Exception as error:  # what wrong parts of a file end in has no end
            raise InputError(f"{message}, but got: {error}") from None
        return self

    def _check_sizes(self) -> None:
        """Raises unless columns, network and classes fit together."""
        scales = self.columns_.scales
        columns, features = len(self.columns_.encoder.codes), len(scales.mean) + len(scales.indicators)
        outputs = len(self.classes_) if hasattr(self, "classes_") else 2 * np.size(self.center_)  # type: ignore[attr-defined]
        sizes = self.network_.sizes
        if (self.n_features_in_, sizes[0], sizes[-1]) != (columns, features, outputs):  # type: ignore[attr-defined]
            raise InputError(f"expected a network for {features} features, but got one of sizes {sizes}")


def _read(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    message = f"expected an estimator saved by rcad in {path}"
    try:
        with safe_open(str(path), framework="pt") as file:
            header = (file.metadata() or {}).get("rcad")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        meta = json.loads(header or "null")
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise InputError(f"{message}, but got: {error}") from None
    if not isinstance(meta, dict) or "weights" not in tensors:
        raise InputError(f"{message}, but got other tensors")
    return tensors, meta


def _plain(name: str, value: Any) -> Any:
    """A parameter for JSON."""
    if name == "random_state" and not isinstance(value, int | np.integer):
        return None
    return list(value.items()) if name == "class_weight" and isinstance(value, dict) else value


def _json(value: Any) -> Any:
    """What JSON does not know: methods, numpy's numbers, devices, other sequences."""
    if isinstance(value, Method):
        return _rows(value)
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, torch.device) else list(value)


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


def _array(values: Any) -> tuple[Any, str]:
    values = np.asarray(values)
    return values.tolist(), "object" if values.dtype == object else values.dtype.str
