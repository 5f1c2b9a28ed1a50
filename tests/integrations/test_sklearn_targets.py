"""Several targets for each row: yes/no labels as MLPClassifier takes them, real ones as MLPRegressor does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

import torch
from scipy.sparse import csr_matrix
from sklearn.datasets import load_diabetes, make_multilabel_classification
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor

import rcad
from rcad import Bernoulli, InputError, suggest_alpha
from rcad.integrations.sklearn import RCADClassifier, RCADRegressor
from rcad.integrations.sklearn.tables import _table
from rcad.models.mlp import MLP
from rcad.train.task import derived

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
X, LABELS = make_multilabel_classification(200, 8, n_classes=3, random_state=0)
DIABETES = load_diabetes(return_X_y=True)
REALS = np.stack([DIABETES[1], 1000 - 3 * DIABETES[1], DIABETES[0][:, 2]], 1)
SHORT: dict[str, Any] = {"max_iter": 3, "batch_size": 50, "random_state": 0, "hidden_layer_sizes": (20, 10)}


def plain_loop(estimator: Any, x: Any, target: torch.Tensor, outputs: int, criterion: rcad.Criterion) -> MLP:
    """What a user would write: the core's criterion, torch's AdamW, one batch after the other."""
    features = torch.from_numpy(estimator.columns_.transform(_table(list(x.T), len(x)), x.dtype))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived(estimator.seed_, "weights"))
        net = MLP(num_outputs=outputs, in_shape=(x.shape[1],), hidden=(20, 10)).double()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    for epoch in range(3):
        order = torch.Generator().manual_seed(derived(estimator.seed_, "batches", epoch))
        for index in torch.randperm(len(x), generator=order).split(50):
            optimizer.zero_grad()
            criterion.backward(net, features[index], target[index])
            optimizer.step()
    return net


def differ(one: torch.nn.Module, other: torch.nn.Module) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


def test_several_labels_equal_a_plain_loop_with_bernoulli() -> None:
    model = RCADClassifier(alpha=1.0, lam=0.3, **SHORT).fit(X, LABELS)
    criterion = rcad.RCAD(1.0, 0.3, likelihood=Bernoulli(), units="input")
    net = plain_loop(model, X, torch.from_numpy(LABELS).double(), 3, criterion)
    assert differ(model.module_, net) < 1e-9
    assert differ(model.module_, RCADClassifier("erm", **SHORT).fit(X, LABELS).module_) > 1e-4


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


def test_several_reals_equal_a_plain_loop_and_have_their_own_units() -> None:
    x = DIABETES[0]
    model = RCADRegressor(**SHORT).fit(x, REALS)
    target = torch.from_numpy((REALS - REALS.mean(0)) / REALS.std(0))
    criterion = rcad.RCAD(0.3, 0.3, likelihood=rcad.Gaussian(), units="input")
    assert differ(model.module_, plain_loop(model, x, target, 6, criterion)) < 1e-9
    mean, deviation = model.predict(x, return_std=True)
    assert mean.shape == deviation.shape == REALS.shape
    intervals = model.predict_interval(x)
    assert intervals.shape == (*REALS.shape, 2)
    assert (intervals[..., 0] < mean).all()
    assert mean.mean(0) == pytest.approx(REALS.mean(0), rel=0.3, abs=0.02)
    assert np.array_equal(model.center_, REALS.mean(0))


def test_several_reals_predict_as_well_as_one_net_each() -> None:
    x, y = DIABETES[0], REALS[:, :2]
    together = cross_val_score(RCADRegressor(random_state=0), x, y, cv=3).mean()
    apart = cross_val_score(MultiOutputRegressor(RCADRegressor(random_state=0)), x, y, cv=3).mean()
    theirs = cross_val_score(MLPRegressor(random_state=0, max_iter=50), x, y, cv=3).mean()
    assert together > max(apart - 0.05, theirs)
    with pytest.raises(InputError, match=r"expected 2 targets for each row as before, but got a shape of \(442,\)"):
        RCADRegressor(**SHORT).fit(x, y).partial_fit(x, y[:, 0])
    with pytest.raises(InputError, match="expected one target for each row as before"):
        RCADRegressor(**SHORT).fit(x, y[:, 0]).partial_fit(x, y)
