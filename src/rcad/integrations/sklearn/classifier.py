"""`RCADClassifier`: a perceptron that is asked to be unsure along its own adversarial directions."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d
from torch import Tensor
from torch.nn.functional import logsigmoid

from rcad.errors import InputError, finite
from rcad.evaluate.conformal import class_scores, prediction_sets
from rcad.integrations.sklearn.base import TableNetwork
from rcad.integrations.sklearn.tables import Array
from rcad.loss.methods import Method


class RCADClassifier(ClassifierMixin, TableNetwork):  # type: ignore[misc]
    """Classification of tables with RCAD or any of its rivals.

    Columns are standardised inside; a DataFrame's text, category and object columns become one-hot, gaps are filled
    with the mean and marked, a category not seen in training becomes zeros. Sparse matrices are made dense.

    y of shape (N, L) with zeros and ones is L yes/no labels for each row, as MLPClassifier takes them: each is a
    Bernoulli of its own, the entropy is their mean, and alpha is measured between rows with different labels.

    `save(path)` writes a fitted estimator as one safetensors file, and the class method `load(path)` reads it; nothing
    in it is executed.

    Args:
        method: a name ("rcad", "erm", "label_smoothing", "rcad_random", ...), a text such as
            "rcad(alpha=0.3, lam=0.1)" or "mixup + rcad", or a value of `rcad.methods`.
        alpha: the distance of the method's step, in standard deviations of the columns. None keeps what the method
            says; where rcad, rcad_random and rcad_released say nothing it is measured on the training examples
            (`rcad.suggest_alpha`), and every other method has its default: 0.5 for rcad_text, 0.05 for
            adversarial_training, 0.02 for ls_on_adv. Given here and in a text it must be the same; it replaces that
            of a value. A method without a step refuses it.
        lam: the weight of the entropy. None keeps what the method says; where it says nothing it is 0.1, and 0.02 for
            rcad_text. Given twice as alpha; a method without an entropy refuses it.
        hidden_layer_sizes: units of the hidden layers.
        max_iter: epochs.
        batch_size: examples in a step; "auto" is min(200, N).
        learning_rate, weight_decay: of AdamW.
        early_stopping: hold out `validation_fraction`, stop after `n_iter_no_change` epochs without a better
            likelihood there, and keep the best epoch's weights.
        validation_fraction: the share of rows that early stopping holds out, each class in proportion.
        n_iter_no_change: the epochs that early stopping waits for a gain of more than 0.0001.
        class_weight: None, "balanced", or a dict of weights by class; a class of weight zero is left out.
        warm_start: the next `fit` goes on from these weights, with the same columns, classes, seed and measured alpha.
            Every parameter may change but hidden_layer_sizes and random_state, of which the latter is not read again.
        random_state: of weights, batches and noise.
        device: where to train.
        captured: on a GPU take every step in one CUDA graph (`rcad.capture`): the same up to rounding, and faster for
            nets this small; elsewhere it changes nothing.
        verbose: print a line per epoch.

    Attributes:
        classes_: the labels, sorted; of several labels their positions.
        multilabel_: whether each row has several yes/no labels.
        method_: the method as it was trained last.
        alpha_: the distance of its step; None for a method without one.
        measured_alpha_: the distance measured between classes; None as long as no method has asked for it.
        n_iter_: epochs trained in all.
        loss_curve_: the mean training loss by epoch.
        validation_scores_: the held-out log-likelihood by epoch of the last fit; only with early stopping.
        n_features_in_, feature_names_in_: of the table; names only for a DataFrame.
        module_: a copy of the network as a torch module on standardised features, e.g. for `rcad.evaluate`.
        conformal_scores_: 1 - p of the true class of the rows given to `calibrate`.
        columns_, network_, seed_: internal.

    Example:
        >>> from sklearn.datasets import load_wine
        >>> x, y = load_wine(return_X_y=True)
        >>> RCADClassifier(max_iter=50, random_state=0).fit(x, y).predict_proba(x).shape
        (178, 3)
    """

    classes_: Array
    multilabel_: bool = False

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
        captured: bool = False,
        verbose: bool = False,
    ) -> None:
        self._keep(locals())

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """One epoch on these examples; the first call needs all `classes`, and its examples set scales and alpha.

        The scales stay, so begin with a batch that shows them: fewer than 10 rows, or a column with one value, are
        warned of. Where alpha is to be measured it is 0.3, with a warning, until a batch holds several classes. Weights
        are divided by their mean in the batch: `class_weight` does nothing in one of a single class.
        """
        if not hasattr(self, "network_"):
            self.__dict__.pop("classes_", None)  # of a first call that failed
        _check_partial_fit_first_call(self, classes)
        return self._fit(X, y, sample_weight, streaming=True, classes=self.classes_)

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, (N, K), in the order of `classes_`; of several labels that of each being 1."""
        output = self._output(X).double()
        return (output.sigmoid() if self.multilabel_ else output.softmax(1)).numpy()

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of `predict_proba`, without its underflow."""
        output = self._output(X).double()
        return (logsigmoid(output) if self.multilabel_ else output.log_softmax(1)).numpy()

    def predict(self, X: Any) -> Array:
        """The most probable class of each row, (N,); of several labels zeros and ones, (N, L)."""
        output = self._output(X)
        chosen: Array = (output > 0).long().numpy() if self.multilabel_ else self.classes_[output.argmax(1).numpy()]
        return chosen

    def predict_set(self, X: Any, coverage: float = 0.9) -> Array:
        """Which classes the answer is among, bool (N, K) in the order of `classes_`, after `calibrate(X, y)`.

        Over new rows of the same kind as those, the sets hold the true class with probability `coverage` or more,
        however good the model is. Each holds the most probable class; a better model has smaller ones.
        """
        return prediction_sets(self._output(X), float(self._limit(coverage))).numpy()

    def _scores(self, output: Tensor, y: Tensor) -> Tensor:
        if self.multilabel_:
            raise InputError("expected one class for each row to calibrate sets, but got several labels")
        return class_scores(output, y)

    @property
    def _classes(self) -> int:
        return 0 if self.multilabel_ else len(self.classes_)

    @property
    def _outputs(self) -> int:
        return len(self.classes_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _target(self, y: Any) -> Array:
        check_classification_targets(y)
        if type_of_target(y) == "multilabel-indicator":
            return np.asarray(y.toarray() if hasattr(y, "toarray") else y, dtype=np.float64)
        values: Array = column_or_1d(y, warn=True)
        return values

    def _learn_target(self, y: Array, weight: Array | None, classes: Array | None, *, dropped: bool) -> None:
        self.multilabel_ = y.ndim == 2
        if self.multilabel_:
            self.classes_ = np.arange(y.shape[1])
            return
        self.classes_ = np.unique(y) if classes is None else classes
        if len(self.classes_) < 2:
            left = " in the rows of weight above zero" if dropped else ""
            raise InputError(f"expected at least 2 classes{left}, but got 1 class: {self.classes_.tolist()[0]!r}")

    def _encoded(self, y: Array, dtype: torch.dtype) -> Tensor:
        if self.multilabel_ != (y.ndim == 2) or (self.multilabel_ and y.shape[1] != self._outputs):
            before = f"{self._outputs} yes/no labels for each row" if self.multilabel_ else "one class for each row"
            raise InputError(f"expected {before} as before, but got a target of shape {y.shape}; begin anew with fit")
        if self.multilabel_:
            return torch.from_numpy(y).to(dtype)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise InputError(
                f"expected labels among the {self._classes} classes known, but got {unknown.tolist()[0]!r}"
            )
        return torch.from_numpy(np.searchsorted(self.classes_, y).astype(np.int64))

    def _class_weight(self, y: Array, classes: Array | None) -> Array | None:
        weights = self.class_weight
        if weights is None:
            return None
        if y.ndim == 2:
            raise InputError("expected class_weight=None for several labels, but got weights; weigh rows instead")
        if isinstance(weights, str) and weights == "balanced":
            balanced: Array = compute_sample_weight(weights, y)
            return balanced
        if not isinstance(weights, dict):
            got = repr(weights) if isinstance(weights, str) else type(weights).__name__
            raise InputError(
                f"expected class_weight to be None, 'balanced' or a dict of weights by class, but got {got}"
            )
        for label, value in weights.items():
            finite(f"class_weight of {label!r}", value, minimum=0.0)
        labels = (np.unique(y) if classes is None else classes).tolist()
        foreign = [label for label in weights if label not in labels]
        if foreign and not set(labels) <= set(weights):  # not all classes need one
            raise InputError(f"expected class_weight for classes among {labels}, but got one for {foreign[0]!r}")
        return np.array([weights.get(label, 1.0) for label in y.tolist()], dtype=np.float64)
