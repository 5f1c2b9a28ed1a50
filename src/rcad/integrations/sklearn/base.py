"""What both estimators share: parameters, encoding, training, how they continue, and their files.

A saved estimator is one safetensors file, with all that is no tensor as JSON in the header: no pickle anywhere.
"""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from sklearn.base import BaseEstimator, RegressorMixin, is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted
from torch import Tensor

from rcad.data.table_encoder import TableFeatures
from rcad.data.table_files import Table
from rcad.errors import InputError, finite, fraction, shaped, whole
from rcad.evaluate.conformal import threshold
from rcad.integrations.sklearn import tables
from rcad.integrations.sklearn.method import distance_of, measured_alpha, method_for
from rcad.integrations.sklearn.network import Examples, Network, OneNetwork, train
from rcad.integrations.sklearn.tables import Array
from rcad.loss.methods import Method
from rcad.models.layers import MLP
from rcad.runs.files import replacing

LARGEST_BATCH = 200
"""What batch_size="auto" takes at most, as in scikit-learn's own perceptron."""
UNMEASURED = 0.3
"""alpha on a stream that has shown one class only: what regression targets, which have none, begin with."""
VERSION = 2
ARRAYS = ("classes_", "feature_names_in_", "center_", "scale_", "conformal_scores_")
PLAIN = {
    **dict.fromkeys(("n_features_in_", "n_iter_", "seed_"), int),
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


class TableNetwork(BaseEstimator):  # type: ignore[misc]
    """A perceptron on a table. What its output means the subclasses know:

    _target(y): the checked target, (N,), or (N, T) for several.
    _learn_target(y, weight, classes, dropped): takes from the training targets, or from the classes where they are
        given, what `_encoded` needs; `dropped` says whether rows of weight zero were left out.
    _encoded(y, dtype): labels from 0, or standardised targets, as a tensor.
    _scores(output, y): how wrong each prediction is, (N,) or (N, T).
    _outputs: units of the last layer.
    _classes: their number; 0 for regression targets and for several yes/no labels.
    """

    network_: Network
    columns_: TableFeatures
    method_: Method
    n_iter_: int
    loss_curve_: list[float]
    measured_alpha_: float | None = None

    def _keep(self, parameters: dict[str, Any]) -> None:
        """Sets the parameters from the local names of `__init__`, unchanged."""
        del parameters["self"]
        self.__dict__.update(parameters)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = isinstance(self, RegressorMixin)
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "network_")

    @property
    def module_(self) -> MLP:
        """A copy of the network as a torch module on standardised features, e.g. for `rcad.evaluate`."""
        check_is_fitted(self)
        return self.network_.model.module(0)

    @property
    def _classes(self) -> int:
        return 0

    def _class_weight(self, y: Array, classes: Array | None) -> Array | None:
        """A weight per example from its class; of `classes`, where they are given, a batch need not hold all."""
        return None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Trains on (N, D) examples and their targets, (N,) or several each; `sample_weight` (N,): what each counts."""
        return self._fit(X, y, sample_weight)

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, *, streaming: bool = False, classes: Array | None = None
    ) -> Self:
        """Trains on these rows; streaming: one epoch on a batch. Classes that are not given are those of the rows."""
        check_parameters(self, streaming)
        fresh = not (hasattr(self, "network_") and (streaming or self.warm_start))
        if not fresh and self._hidden() != self.network_.sizes[1:-1]:
            raise InputError(
                f"expected hidden_layer_sizes={self.network_.sizes[1:-1]} to go on training, but got {self._hidden()}; "
                "begin anew with warm_start=False or a clone"
            )
        table, y = tables.read(self, X, y, categorical=None if fresh else tables.categorical_of(self.columns_))
        y = self._target(y)
        count = len(y)
        table, y, weight = self._weighed(table, y, sample_weight, classes if fresh else getattr(self, "classes_", None))
        if fresh:
            self.__dict__.pop("network_", None)  # from here on a failure leaves an estimator that is not fitted
            self.seed_ = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
            self.measured_alpha_ = None
        self.__dict__.pop("conformal_scores_", None)  # of other weights
        rows, held = np.arange(len(y)), None
        if self.early_stopping:
            stratified = is_classifier(self) and y.ndim == 1
            rows, held = tables.split(y, float(self.validation_fraction), self.seed_, stratified=stratified)
        if fresh:
            counted = None if weight is None else weight[rows]
            # A class that is held out is one all the same; a target that is has no part in the scales.
            self._learn_target(y if is_classifier(self) else y[rows], counted, classes, dropped=len(y) < count)
            self.columns_ = tables.learn(table.take(rows), counted)
            if streaming:
                tables.warn_of_scales(table, getattr(self, "feature_names_in_", range(self.n_features_in_)))
        examples = self._tensors(table, y, weight, None if fresh else self.network_.flat.dtype)
        chosen = examples if held is None else examples.take(rows)
        if not self._choose_method(chosen, streaming):
            warnings.warn(
                f"expected two or more classes to measure alpha, but the rows so far have one; it is {UNMEASURED} "
                "until a batch has several",
                stacklevel=tables.CALLER - 1,
            )
        if fresh:
            sizes = (chosen.x.shape[1], *self._hidden(), self._outputs)
            self.network_ = Network.begun(sizes, self.seed_, chosen.x.device, chosen.x.dtype)
            self.loss_curve_, self.n_iter_ = [], 0
            self.__dict__.pop("validation_scores_", None)
        else:
            self.network_ = self.network_.on(chosen.x.device)
        self.network_.pace(float(self.learning_rate), float(self.weight_decay))
        options: dict[str, Any] = {"seed": self.seed_, "classes": self._classes, "captured": bool(self.captured)}
        losses, scores = train(
            OneNetwork(self.network_, self.method_, chosen, **options),
            start=self.n_iter_,
            epochs=1 if streaming else int(self.max_iter),
            batch_size=min(LARGEST_BATCH, len(chosen.y)) if self.batch_size == "auto" else int(self.batch_size),
            patience=int(self.n_iter_no_change),
            held_out=None if held is None else examples.take(held),
            verbose=bool(self.verbose),
        )
        self.loss_curve_ = self.loss_curve_ + losses
        self.n_iter_ += len(losses)
        if held is not None:
            self.validation_scores_ = scores
        return self

    def _choose_method(self, examples: Examples, streaming: bool) -> bool:
        """Sets the method, with an alpha that is measured once; False where a stream has shown one class only."""
        several, is_needed = is_classifier(self) and examples.y.ndim == 2, False

        def measure() -> float:
            nonlocal is_needed
            is_needed = True
            labels = torch.unique(examples.y, dim=0, return_inverse=True)[1] if several else examples.y
            if self.measured_alpha_ is None and streaming and bool((labels == labels[0]).all()):
                return UNMEASURED
            if self.measured_alpha_ is None:
                self.measured_alpha_ = measured_alpha(examples.x, labels, examples.weight)
            return self.measured_alpha_

        given = {name: getattr(self, name) for name in ("alpha", "lam") if getattr(self, name) is not None}
        self.method_ = method_for(self.method, given, classes=self._classes, several=several, measure=measure)
        self.alpha_ = distance_of(self.method_)
        return not is_needed or self.measured_alpha_ is not None

    def _hidden(self) -> tuple[int, ...]:
        return tuple(int(units) for units in self.hidden_layer_sizes)

    def _weighed(
        self, table: Table, y: Array, sample_weight: Any, classes: Array | None
    ) -> tuple[Table, Array, Array | None]:
        """The examples of weight above zero and their weights; None for equal weights."""
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, table, dtype=np.float64, ensure_non_negative=True)
            table, y, weight = tables.heavy(table, y, weight, "sample weight")
        by_class = self._class_weight(y, classes)
        if by_class is not None:
            weight = by_class if weight is None else weight * by_class
            table, y, weight = tables.heavy(table, y, weight, "class weight")
        return table, y, None if weight is None or (weight == weight[0]).all() else weight

    def _tensors(self, table: Table, y: Array, weight: Array | None, dtype: torch.dtype | None) -> Examples:
        """The examples on the training device; `dtype` None keeps the table's precision."""
        device = torch.device(self.device)
        x = torch.from_numpy(self.columns_.transform(table, tables.precision_of(table))).to(device, dtype)
        shares = None if weight is None else torch.from_numpy(weight / weight.mean()).to(x)
        return Examples(x, self._encoded(y, x.dtype).to(device), shares)

    def calibrate(self, X: Any, y: Any) -> Self:
        """Takes rows that `fit` has not seen, so that sets and intervals hold what they promise (split conformal).

        `rcad.evaluate.conformal` says how. Training on drops what was calibrated.
        """
        output = self._output(X).double()
        check_consistent_length(output, y)
        self.conformal_scores_ = self._scores(output, self._encoded(self._target(y), torch.float64)).numpy()
        return self

    def _limit(self, coverage: Any) -> Array:
        """The largest score inside a set or an interval of that coverage."""
        if not hasattr(self, "conformal_scores_"):
            raise InputError("expected calibrate(X, y) with rows that fit has not seen first, but it was not called")
        limit = threshold(torch.from_numpy(self.conformal_scores_), coverage).numpy()
        if not np.isfinite(limit).all():
            raise InputError(
                f"expected at least {math.ceil(coverage / (1 - coverage) - 1e-9)} rows to calibrate a coverage of "
                f"{coverage:g}, but got {len(self.conformal_scores_)}; calibrate with more, or ask for less"
            )
        return limit

    def _output(self, X: Any) -> Tensor:
        """The network's output for new rows, (N, K)."""
        check_is_fitted(self)
        table, _ = tables.read(self, X, categorical=tables.categorical_of(self.columns_))
        return self.network_.output(torch.from_numpy(self.columns_.transform(table, tables.precision_of(table))))

    def save(self, path: str | Path) -> None:
        """Writes the fitted estimator whole or not at all. A random_state that is a generator is not kept."""
        if not hasattr(self, "network_"):
            raise InputError(f"expected a fitted {type(self).__name__} to save, but fit was not called")
        parameters = self.get_params()
        if not isinstance(parameters.get("random_state", 0), int | np.integer):
            parameters["random_state"] = None
        if isinstance(parameters.get("class_weight"), dict):  # whose keys need not be texts
            parameters["class_weight"] = list(parameters["class_weight"].items())
        meta = {
            "version": VERSION,
            "estimator": type(self).__name__,
            "parameters": parameters,
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
            self.network_ = Network.of(tensors, meta["sizes"], str(self.device))
            scales, sizes = self.columns_.scales, self.network_.sizes
            columns, features = len(self.columns_.encoder.codes), len(scales.mean) + len(scales.indicators)
            if (self.n_features_in_, sizes[0], sizes[-1]) != (columns, features, self._outputs):
                raise InputError(f"expected a network for {features} features, but got one of sizes {sizes}")
        except Exception as error:  # what wrong parts of a file end in has no end
            raise InputError(f"{message}, but got: {error}") from None
        return self


def check_parameters(estimator: Any, streaming: bool) -> None:
    """Raises for a bad parameter, or one that `partial_fit` cannot follow; `method_for` checks those of the method."""
    units = estimator.hidden_layer_sizes
    if isinstance(units, str | dict | set) or not hasattr(units, "__iter__"):
        raise InputError(f"expected hidden_layer_sizes as a tuple such as (100,), but got {units!r}")
    counts = {name: getattr(estimator, name) for name in ("max_iter", "n_iter_no_change")}
    if not (isinstance(estimator.batch_size, str) and estimator.batch_size == "auto"):
        counts["batch_size"] = estimator.batch_size
    for name, value in [*counts.items(), *(("hidden_layer_sizes", size) for size in units)]:
        whole(name, int(value) if isinstance(value, np.integer) else value, minimum=1)
    finite("learning_rate", estimator.learning_rate, above=0.0)
    finite("weight_decay", estimator.weight_decay, minimum=0.0)
    for name in ("early_stopping", "warm_start", "captured"):
        value = getattr(estimator, name)
        if not isinstance(value, bool | np.bool_):
            raise InputError(f"expected {name} to be True or False, but got {value!r}")
    if not isinstance(estimator.verbose, bool | int | np.bool_ | np.integer):
        raise InputError(f"expected verbose to be True, False or a whole number, but got {estimator.verbose!r}")
    fraction("validation_fraction", estimator.validation_fraction)
    if estimator.early_stopping and estimator.validation_fraction == 0:
        raise InputError("expected validation_fraction above 0 beside early_stopping=True, but got 0; try 0.1")
    check_device(estimator.device)
    if streaming and estimator.early_stopping:
        raise InputError(
            "expected early_stopping=False with partial_fit, but got True; use fit, or hold rows out yourself"
        )
    if streaming and isinstance(getattr(estimator, "class_weight", None), str):
        raise InputError(
            "expected class_weight=None or a dict with partial_fit, but got 'balanced'; give the weights by class"
        )


def check_device(device: Any) -> None:
    """Raises unless torch can use the device here."""
    message = f"expected a device such as 'cpu' or 'cuda', but got {device!r}"
    if not isinstance(device, str | torch.device):
        raise InputError(message)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"{message}: {reason}") from None


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
