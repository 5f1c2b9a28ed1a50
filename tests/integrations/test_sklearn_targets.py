"""Several targets for each row: yes/no labels as MLPClassifier takes them, real ones as MLPRegressor does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from scipy.sparse import csr_matrix
from sklearn.datasets import load_diabetes, make_multilabel_classification
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier

from rcad import InputError, suggest_alpha
from rcad.integrations.sklearn import RCADClassifier, RCADRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
X, LABELS = make_multilabel_classification(200, 8, n_classes=3, random_state=0)
DIABETES = load_diabetes(return_X_y=True)
REALS = np.stack([DIABETES[1], 1000 - 3 * DIABETES[1], DIABETES[0][:, 2]], 1)
SHORT: dict[str, Any] = {"max_iter": 3, "batch_size": 50, "random_state": 0, "hidden_layer_sizes": (20, 10)}


def test_several_labels_come_back_as_from_scikit_learns_own() -> None:
    ours, theirs = RCADClassifier(random_state=0), MLPClassifier(random_state=0, max_iter=200)
    for model in (ours, theirs):
        model.fit(X, LABELS)
    for name in ("predict", "predict_proba", "classes_"):
        pair = [
            getattr(model, name)(X) if callable(getattr(model, name)) else model.classes_ for model in (ours, theirs)
        ]
        assert pair[0].shape == pair[1].shape
        assert pair[0].dtype.kind == pair[1].dtype.kind
    p = ours.predict_proba(X)
    assert np.array_equal(ours.predict(X), (p > 0.5).astype(int))
    assert np.exp(ours.predict_log_proba(X)) == pytest.approx(p)
    assert ours.score(X, LABELS) > 0.6  # all three labels right
    guessed = [np.tile(LABELS.mean(0), (len(X), 1))[:, k] for k in range(3)]
    for k in range(3):
        assert log_loss(LABELS[:, k], p[:, k]) < log_loss(LABELS[:, k], guessed[k])
    sparse = RCADClassifier(random_state=0).fit(X, csr_matrix(LABELS))
    assert np.array_equal(sparse.predict_proba(X), p)


def test_alpha_is_measured_between_rows_with_different_labels() -> None:
    model = RCADClassifier(**SHORT).fit(X, LABELS)
    z = (X - X.mean(0)) / X.std(0)
    sets = np.unique(LABELS, axis=0, return_inverse=True)[1].reshape(-1)
    assert model.alpha_ == pytest.approx(suggest_alpha(z, sets), abs=1e-4)


def test_several_labels_stream_stop_early_and_weigh() -> None:
    stream = RCADClassifier(random_state=0)
    for part in range(4):
        stream.partial_fit(X[part::4], LABELS[part::4], classes=[0, 1, 2])
    assert stream.predict(X).shape == LABELS.shape
    with pytest.raises(InputError, match=r"expected 3 yes/no labels for each row as before, but got .* \(200, 2\)"):
        stream.partial_fit(X, LABELS[:, :2])
    with pytest.raises(InputError, match="expected 3 yes/no labels for each row as before"):
        stream.partial_fit(X, LABELS[:, 0])
    stopped = RCADClassifier(early_stopping=True, random_state=0).fit(X, LABELS)
    assert len(stopped.validation_scores_) == stopped.n_iter_
    twice = np.concatenate([X, X[:50]]), np.concatenate([LABELS, LABELS[:50]])
    weight = np.where(np.arange(200) < 50, 2.0, 1.0)
    weighed = RCADClassifier("erm", **{**SHORT, "batch_size": 250}).fit(X, LABELS, weight)
    doubled = RCADClassifier("erm", **{**SHORT, "batch_size": 250}).fit(*twice)
    assert weighed.predict_proba(X) == pytest.approx(doubled.predict_proba(X), abs=1e-6)
    for options, says in (
        ({"class_weight": "balanced"}, "expected class_weight=None for several labels"),
        ({"method": "label_smoothing + rcad"}, "expected a method for several yes/no labels each, but got 'label_smoo"),
    ):
        with pytest.raises(InputError, match=says):
            RCADClassifier(**options).fit(X, LABELS)


def test_several_reals_have_their_own_units() -> None:
    x = DIABETES[0]
    model = RCADRegressor(random_state=0).fit(x, REALS)
    mean, deviation = model.predict(x, return_std=True)
    assert mean.shape == deviation.shape == REALS.shape
    intervals = model.predict_interval(x)
    assert intervals.shape == (*REALS.shape, 2)
    assert (intervals[..., 0] < mean).all()
    assert mean.mean(0) == pytest.approx(REALS.mean(0), rel=0.3, abs=0.02)
    assert np.array_equal(model.center_, REALS.mean(0))
    assert model.score(x, REALS) > 0.5
    with pytest.raises(InputError, match=r"expected 3 targets for each row as before, but got a shape of \(442,\)"):
        model.partial_fit(x, REALS[:, 0])
    with pytest.raises(InputError, match="expected one target for each row as before"):
        RCADRegressor(**SHORT).fit(x, REALS[:, 0]).partial_fit(x, REALS)
