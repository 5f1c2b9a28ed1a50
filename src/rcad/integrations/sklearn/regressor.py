"""`RCADRegressor`: a perceptron that predicts a mean and a deviation, unsure along its own adversarial directions."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, column_or_1d
from torch import Tensor

from rcad.errors import InputError, is_number
from rcad.integrations.sklearn.base import TableNetwork
from rcad.integrations.sklearn.tables import LARGEST, Array
from rcad.loss.likelihoods import Gaussian
from rcad.loss.methods import Method


class RCADRegressor(RegressorMixin, TableNetwork):  # type: ignore[misc]
    """Regression on tables with RCAD or any of its rivals: a Gaussian for each row.

    The target is standardised inside, and the entropy is capped at that of the training targets. y of shape (N, T) is T
    targets for each row, each with a mean and a deviation. Columns, `save` and `load`, and the parameters and
    attributes that are not named here are as in `RCADClassifier`. Fewer epochs by default, since a predicted deviation
    overfits sooner than a mean.

    Args:
        alpha: as there, but where rcad, rcad_random and rcad_released say nothing it is 0.3, since there are no classes
            to measure a distance between.
        lam: as there, but 0.3 where the method says nothing, and 0.02 for rcad_text.
        max_iter: epochs; see `predict_interval` before raising it.

    Attributes:
        center_, scale_: mean and deviation of the targets trained on; of several targets one number each.
        validation_scores_: the held-out log-likelihood by epoch of the last fit, of the standardised target.
        module_: gives mean and log-variance of the standardised target.
        conformal_scores_: distances of targets from means, in deviations, of the rows given to `calibrate`.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> x, y = load_diabetes(return_X_y=True)
        >>> mean, deviation = RCADRegressor(max_iter=5, random_state=0).fit(x, y).predict(x, return_std=True)
        >>> mean.shape, deviation.shape
        ((442,), (442,))
    """

    center_: Any
    scale_: Any

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
        captured: bool = False,
        verbose: bool = False,
    ) -> None:
        self._keep(locals())

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """One epoch on these examples; those of the first call set the scales of columns and target.

        The scales stay, so begin with a batch that shows them: fewer than 10 rows, or a column with one value, are
        warned of. Weights are divided by their mean in the batch.
        """
        return self._fit(X, y, sample_weight, streaming=True)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The predicted means, (N,) or (N, T); with `return_std` the deviations as well, a pair.

        Far outside the training data both are straight lines drawn on: a deviation may shrink to nothing there.
        """
        mean, deviation = self._moments(X)
        return (mean, deviation) if return_std else mean

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """The central interval that holds the target with probability `coverage`: (N, 2), or (N, T, 2).

        After `calibrate(X, y)` that is so over new rows of the same kind, for each target, however good the model is;
        before, if the model is right.

        A deviation overfits sooner than a mean: with more epochs than the default the intervals become too narrow. On
        300 rows of friedman1 those of 90% held 91% of the held-out targets after 50 epochs and 57% after 200; with
        early_stopping=True and max_iter=400 they held 90%.
        """
        if not (is_number(coverage) and 0 < coverage < 1):
            raise InputError(f"expected coverage to be a number between 0 and 1, but got {coverage!r}")
        mean, deviation = self._moments(X)
        calibrated = hasattr(self, "conformal_scores_")
        half = (self._limit(coverage) if calibrated else NormalDist().inv_cdf(0.5 + coverage / 2)) * deviation
        return np.stack([mean - half, mean + half], axis=-1)

    def _moments(self, X: Any) -> tuple[Array, Array]:
        mean, deviation = self._standardised(self._output(X).double())
        return self.center_ + self.scale_ * mean.numpy(), self.scale_ * deviation.numpy()

    def _standardised(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Means and deviations of the standardised targets."""
        likelihood = self.method_.likelihood
        mean, log_variance = output.chunk(2, dim=1)
        if not np.ndim(self.center_):
            mean, log_variance = mean[:, 0], log_variance[:, 0]
        floor = likelihood.floor if isinstance(likelihood, Gaussian) else -float("inf")
        return mean, (0.5 * log_variance.clamp(min=floor)).exp()

    def _scores(self, output: Tensor, y: Tensor) -> Tensor:
        mean, deviation = self._standardised(output)
        return (y - mean).abs() / deviation

    def _target(self, y: Any) -> Array:
        values: Array = check_array(y, ensure_2d=False, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] == 1:
            values = column_or_1d(values, warn=True)
        if np.abs(values).max() >= LARGEST:
            raise InputError(
                f"expected targets below {LARGEST:g}, so that their squares are finite, but got "
                f"{np.abs(values).max():g}; change their unit"
            )
        return values

    def _learn_target(self, y: Array, weight: Array | None, classes: Array | None, *, dropped: bool) -> None:
        self.center_ = np.average(y, axis=0, weights=weight)
        spread = np.sqrt(np.average((y - self.center_) ** 2, axis=0, weights=weight))
        self.scale_ = np.where((y.min(0) < y.max(0)) & (spread > 0), spread, 1.0)[()]

    @property
    def _outputs(self) -> int:
        return 2 * np.size(self.center_)

    def _encoded(self, y: Array, dtype: torch.dtype) -> Tensor:
        if y.shape[1:] != np.shape(self.center_):
            before = f"{np.size(self.center_)} targets" if np.ndim(self.center_) else "one target"
            raise InputError(
                f"expected {before} for each row as before, but got a shape of {y.shape}; begin anew with fit"
            )
        return torch.from_numpy((y - self.center_) / self.scale_).to(dtype)
