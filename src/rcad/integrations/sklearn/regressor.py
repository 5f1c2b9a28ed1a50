"""`RCADRegressor`: a perceptron that predicts a mean and a deviation, unsure along its own adversarial directions."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, column_or_1d
from torch import Tensor

from rcad.composition import Method
from rcad.errors import InputError
from rcad.integrations.sklearn.base import TableNetwork
from rcad.integrations.sklearn.columns import Array
from rcad.likelihoods import Gaussian
from rcad.validate import is_number


class RCADRegressor(RegressorMixin, TableNetwork):  # type: ignore[misc]
    """Regression on tables with RCAD or any of its rivals: a Gaussian for each row.

    The target is standardised inside, and the entropy is capped at that of the training targets. Columns are treated
    as in `RCADClassifier`, whose parameters these are but for class_weight. Where alpha and lam are None both are 0.3:
    there are no classes to measure a distance between. Fewer epochs, since a predicted deviation overfits sooner.

    Attributes:
        n_features_in_, feature_names_in_, n_iter_, loss_curve_: as in scikit-learn.
        center_, scale_: mean and deviation of the training targets.
        validation_scores_, method_, alpha_: as in `RCADClassifier`.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> x, y = load_diabetes(return_X_y=True)
        >>> mean, deviation = RCADRegressor(max_iter=5, random_state=0).fit(x, y).predict(x, return_std=True)
        >>> mean.shape, deviation.shape
        ((442,), (442,))
    """

    center_: float
    scale_: float

    def __init__(
        self,
        method: str | Method = "rcad",
        *,
        alpha: float | None = None,
        lam: float | None = None,
        hidden_layer_sizes: tuple[int, ...] = (100,),
        max_iter: int = 50,
        batch_size: int | str = "auto",
        learning_rate: float = 1e-3,
        weight_decay: float = 0.01,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        warm_start: bool = False,
        random_state: Any = None,
        device: str = "cpu",
        verbose: bool = False,
    ) -> None:
        super().__init__(
            method,
            alpha=alpha,
            lam=lam,
            hidden_layer_sizes=hidden_layer_sizes,
            max_iter=max_iter,
            batch_size=batch_size,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            warm_start=warm_start,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Trains on (N, D) examples and their targets (N,); `sample_weight` (N,) says how much each counts."""
        fresh = not self._continues()
        return self._fit(
            X, y, sample_weight, fresh=fresh, epochs=int(self.max_iter), hold_out=bool(self.early_stopping)
        )

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """One epoch on these examples; those of the first call set the scales of columns and target."""
        first = not hasattr(self, "network_")
        return self._fit(X, y, sample_weight, fresh=first, epochs=1)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The predicted means (N,); with `return_std` the deviations as well, a pair."""
        mean, deviation = self._moments(X)
        return (mean, deviation) if return_std else mean

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """The central interval that holds the target with probability `coverage`, if the model is right: (N, 2)."""
        if not (is_number(coverage) and 0 < coverage < 1):
            raise InputError(f"expected coverage to be a number between 0 and 1, but got {coverage!r}")
        mean, deviation = self._moments(X)
        half = NormalDist().inv_cdf(0.5 + coverage / 2) * deviation
        return np.stack([mean - half, mean + half], axis=1)

    def _moments(self, X: Any) -> tuple[Array, Array]:
        likelihood = self.method_.likelihood if hasattr(self, "method_") else None
        mean, log_variance = self._output(X).double().unbind(1)
        floor = likelihood.floor if isinstance(likelihood, Gaussian) else -float("inf")
        deviation = (0.5 * log_variance.clamp(min=floor)).exp()
        return self.center_ + self.scale_ * mean.numpy(), self.scale_ * deviation.numpy()

    def _target(self, y: Any) -> Array:
        values: Array = column_or_1d(check_array(y, ensure_2d=False, dtype=np.float64), warn=True)
        return values

    def _learn_target(self, y: Array, weight: Array | None, known: Array | None) -> None:
        self.center_ = float(np.average(y, weights=weight))
        spread = float(np.sqrt(np.average((y - self.center_) ** 2, weights=weight)))
        self.scale_ = spread if y.min() < y.max() and spread > 0 else 1.0

    def _encoded(self, y: Array, dtype: torch.dtype) -> Tensor:
        return torch.from_numpy((y - self.center_) / self.scale_).to(dtype)
