"""`RCADClassifier`: a perceptron that is asked to be unsure along its own adversarial directions."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from rcad.composition import Method
from rcad.errors import InputError
from rcad.integrations.sklearn.base import TableNetwork
from rcad.integrations.sklearn.columns import Array


class RCADClassifier(ClassifierMixin, TableNetwork):  # type: ignore[misc]
    """Classification of tables with RCAD or any of its rivals.

    Columns are standardised inside; a DataFrame's text, category and object columns become one-hot, gaps are filled
    with the mean and marked, a category not seen in training becomes zeros. Sparse matrices are made dense.

    Args:
        method: a name ("rcad", "erm", "label_smoothing", "rcad_random", ...), a text such as
            "rcad(alpha=0.3, lam=0.1)" or "mixup + rcad", or a value of `rcad.methods`.
        alpha: the distance of the method's step, in standard deviations of the columns; None measures it on the
            training examples (`rcad.suggest_alpha`).
        lam: the weight of the entropy; None is 0.1.
        hidden_layer_sizes: units of the hidden layers.
        max_iter: epochs.
        batch_size: examples in a step; "auto" is min(200, N).
        learning_rate, weight_decay: of AdamW.
        early_stopping: hold out `validation_fraction`, stop after `n_iter_no_change` epochs without a better
            likelihood there, and keep the best epoch's weights.
        class_weight: None, "balanced", or a dict of weights by class.
        warm_start: the next `fit` goes on from these weights, with the same columns and classes.
        random_state: of weights, batches and noise.
        device: where to train.
        verbose: print a line per epoch.

    Attributes:
        classes_, n_features_in_, feature_names_in_, n_iter_, loss_curve_: as in scikit-learn.
        validation_scores_: the held-out log-likelihood by epoch, with early stopping.
        method_, alpha_: the method as it was trained, and the distance of its step.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> x, y = load_wine(return_X_y=True)
        >>> RCADClassifier(max_iter=50, random_state=0).fit(x, y).predict_proba(x).shape
        (178, 3)
    """

    classes_: Array

    def __init__(
        self,
        method: str | Method = "rcad",
        *,
        alpha: float | None = None,
        lam: float | None = None,
        hidden_layer_sizes: tuple[int, ...] = (100,),
        max_iter: int = 200,
        batch_size: int | str = "auto",
        learning_rate: float = 1e-3,
        weight_decay: float = 0.01,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        class_weight: Any = None,
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
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Trains on (N, D) examples and their classes; `sample_weight` (N,) says how much each counts."""
        fresh = not self._continues()
        return self._fit(
            X, y, sample_weight, fresh=fresh, epochs=int(self.max_iter), hold_out=bool(self.early_stopping)
        )

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """One epoch on these examples; the first call needs all `classes`, and its examples set scales and alpha."""
        if not hasattr(self, "network_"):
            self.__dict__.pop("classes_", None)  # of a first call that failed
        first = _check_partial_fit_first_call(self, classes)
        return self._fit(X, y, sample_weight, fresh=first, epochs=1, known=self.classes_)

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, (N, K), in the order of `classes_`."""
        return self._output(X).double().softmax(1).numpy()

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of `predict_proba`, without its underflow."""
        return self._output(X).double().log_softmax(1).numpy()

    def predict(self, X: Any) -> Array:
        """The most probable class of each row, (N,)."""
        best = self._output(X).argmax(1).numpy()
        chosen: Array = self.classes_[best]
        return chosen

    @property
    def _classes(self) -> int:
        return len(self.classes_)

    def _target(self, y: Any) -> Array:
        check_classification_targets(y)
        values: Array = column_or_1d(y, warn=True)
        return values

    def _learn_target(self, y: Array, weight: Array | None, known: Array | None) -> None:
        self.classes_ = np.unique(y) if known is None else known
        if len(self.classes_) < 2:
            raise InputError(f"expected at least 2 classes, but got 1 class: {self.classes_.tolist()[0]!r}")

    def _encoded(self, y: Array, dtype: torch.dtype) -> Tensor:
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise InputError(
                f"expected labels among the {self._classes} classes known, but got {unknown.tolist()[0]!r}"
            )
        return torch.from_numpy(np.searchsorted(self.classes_, y).astype(np.int64))

    def _class_weight(self, y: Array) -> Array | None:
        if self.class_weight is None:
            return None
        weights: Array = compute_sample_weight(self.class_weight, y)
        return weights
