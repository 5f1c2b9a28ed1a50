"""An estimator as one safetensors file: tensors, and everything else as JSON in the header. No pickle anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from rcad.data.table_encoder import TableFeatures
from rcad.errors import InputError
from rcad.integrations.sklearn.network import Network
from rcad.loss.method import Method
from rcad.runs.files import replacing

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
