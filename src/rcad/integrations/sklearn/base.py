"""What both estimators share: parameters, encoding, training, and how they continue."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, is_classifier
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
from torch import Tensor

from rcad.composition import Method
from rcad.errors import InputError
from rcad.integrations.sklearn.columns import Array, Columns, Table, read
from rcad.integrations.sklearn.method import distance_of, method_for
from rcad.integrations.sklearn.network import Network
from rcad.integrations.sklearn.state import Savable
from rcad.integrations.sklearn.training import Examples, Schedule, train
from rcad.models.mlp import MLP
from rcad.validate import finite, fraction, whole

LARGEST_BATCH = 200
"""What batch_size="auto" takes at most, as in scikit-learn's own perceptron."""


class TableNetwork(Savable, BaseEstimator):  # type: ignore[misc]
    """A perceptron on a table; the subclasses know what its output means."""

    n_iter_: int
    loss_curve_: list[float]

    def __init__(
        self,
        method: str | Method,
        *,
        alpha: float | None,
        lam: float | None,
        hidden_layer_sizes: tuple[int, ...],
        max_iter: int,
        batch_size: int | str,
        learning_rate: float,
        weight_decay: float,
        early_stopping: bool,
        validation_fraction: float,
        n_iter_no_change: int,
        warm_start: bool,
        random_state: Any,
        device: str,
        verbose: bool,
    ) -> None:
        self.method = method
        self.alpha = alpha
        self.lam = lam
        self.hidden_layer_sizes = hidden_layer_sizes
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags

    @property
    def module_(self) -> MLP:
        """A copy of the network as a torch module on standardised features, e.g. for `rcad.evaluate`."""
        check_is_fitted(self)
        return self.network_.copy_of_module()

    def _target(self, y: Any) -> Array:
        """The target checked, (N,)."""
        raise NotImplementedError

    def _learn_target(self, y: Array, weight: Array | None, known: Array | None) -> None:
        """Takes from the training targets, or the classes already known, what `_encoded` needs."""
        raise NotImplementedError

    def _encoded(self, y: Array, dtype: torch.dtype) -> Tensor:
        """Labels from 0, or standardised targets."""
        raise NotImplementedError

    def _class_weight(self, y: Array) -> Array | None:
        """A weight per example from its class."""
        return None

    @property
    def _classes(self) -> int:
        return 0

    def _fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        fresh: bool,
        epochs: int,
        hold_out: bool = False,
        known: Array | None = None,
    ) -> Self:
        self._check_parameters()
        table, y = read(self, X, y, categorical=None if fresh else self.columns_.categorical)
        y = self._target(y)
        table, y, weight = self._weighed(table, y, sample_weight)
        if fresh:
            self.seed_ = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        rows, held = self._split(y) if hold_out else (np.arange(len(y)), None)
        if fresh:
            self._learn_target(y, weight, known)
            self.columns_ = Columns.fit(table.take(rows), None if weight is None else weight[rows])
        examples = self._tensors(table, y, weight)
        chosen = examples if held is None else examples.take(torch.as_tensor(rows, device=examples.x.device))
        if fresh:
            self._begin(chosen)
        self.network_.pace(float(self.learning_rate), float(self.weight_decay))
        course = train(
            self.network_,
            self.method_,
            chosen,
            self._schedule(len(chosen.y), epochs, hold_out),
            classes=self._classes,
            held_out=None if held is None else examples.take(torch.as_tensor(held, device=examples.x.device)),
            report=self._report if self.verbose else None,
        )
        self.loss_curve_ = self.loss_curve_ + course.losses
        self.n_iter_ += len(course.losses)
        if hold_out:
            self.validation_scores_ = course.scores
        return self

    def _begin(self, examples: Examples) -> None:
        """The method, measured on the examples, and the first weights."""
        self.method_ = method_for(self.method, self.alpha, self.lam, *examples)
        self.alpha_ = distance_of(self.method_)
        sizes = (examples.x.shape[1], *(int(units) for units in self.hidden_layer_sizes), self._classes or 2)
        self.network_ = Network.begun(sizes, self.seed_, examples.x.device, examples.x.dtype)
        self.loss_curve_ = []
        self.n_iter_ = 0
        self.__dict__.pop("validation_scores_", None)

    def _continues(self) -> bool:
        return bool(self.warm_start) and hasattr(self, "network_")

    def _schedule(self, count: int, epochs: int, hold_out: bool) -> Schedule:
        size = min(LARGEST_BATCH, count) if self.batch_size == "auto" else int(self.batch_size)
        return Schedule(epochs, size, self.seed_, self.n_iter_, int(self.n_iter_no_change) if hold_out else None)

    def _weighed(self, table: Table, y: Array, sample_weight: Any) -> tuple[Table, Array, Array | None]:
        """The examples that weigh something; equal weights are none."""
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, table.numbers, dtype=np.float64, ensure_non_negative=True)
            rows = np.flatnonzero(weight)
            if not len(rows):
                raise InputError("expected a sample weight above zero, but got only zeros")
            if len(rows) < len(y):
                table, y, weight = table.take(rows), y[rows], weight[rows]
        by_class = self._class_weight(y)
        if by_class is not None:
            weight = by_class if weight is None else weight * by_class
        return table, y, None if weight is None or (weight == weight[0]).all() else weight

    def _split(self, y: Array) -> tuple[Array, Array]:
        """Positions to train on and to hold out, each class in proportion."""
        stratify = y if is_classifier(self) else None
        rows, held = train_test_split(
            np.arange(len(y)), test_size=self.validation_fraction, random_state=self.seed_, stratify=stratify
        )
        return np.sort(rows), np.sort(held)

    def _tensors(self, table: Table, y: Array, weight: Array | None) -> Examples:
        device = torch.device(self.device)
        x = torch.from_numpy(np.ascontiguousarray(self.columns_.transform(table))).to(device)
        shares = None if weight is None else torch.from_numpy(weight / weight.mean()).to(x)
        return Examples(x, self._encoded(y, x.dtype).to(device), shares)

    def _output(self, X: Any) -> Tensor:
        """The network's output for new rows, (N, K)."""
        check_is_fitted(self)
        table = read(self, X, categorical=self.columns_.categorical)
        return self.network_.output(torch.from_numpy(self.columns_.transform(table)))

    def _report(self, epoch: int, loss: float, score: float | None) -> None:
        held = "" if score is None else f", held-out log-likelihood {score:.4f}"
        print(f"epoch {epoch}: loss {loss:.4f}{held}")

    def _check_parameters(self) -> None:
        units: Any = self.hidden_layer_sizes
        if isinstance(units, str) or not hasattr(units, "__iter__"):
            raise InputError(f"expected hidden_layer_sizes as a tuple such as (100,), but got {units!r}")
        counts: dict[str, Any] = {"max_iter": self.max_iter, "n_iter_no_change": self.n_iter_no_change}
        counts |= {} if self.batch_size == "auto" else {"batch_size": self.batch_size}
        for name, value in [*counts.items(), *(("hidden_layer_sizes", size) for size in units)]:
            whole(name, int(value) if isinstance(value, np.integer) else value, minimum=1)
        finite("learning_rate", self.learning_rate, above=0.0)
        finite("weight_decay", self.weight_decay, minimum=0.0)
        fraction("validation_fraction", self.validation_fraction)
        try:
            torch.empty(0, device=torch.device(self.device))
        except (RuntimeError, AssertionError, TypeError) as error:
            reason = str(error).split("\n")[0]
            raise InputError(f"expected a device such as 'cpu' or 'cuda', but got {self.device!r}: {reason}") from None
