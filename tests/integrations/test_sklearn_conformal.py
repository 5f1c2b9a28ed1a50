"""Estimators that were calibrated: sets and intervals that hold what they promise over splits."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.datasets import load_digits, make_friedman1, make_multilabel_classification
from sklearn.exceptions import NotFittedError

from rcad import InputError
from rcad.integrations.sklearn import RCADClassifier, RCADRegressor

DIGITS, FRIEDMAN = load_digits(return_X_y=True), make_friedman1(600, noise=1.0, random_state=0)


def parts(data: Any, seed: int, sizes: tuple[int, int]) -> list[tuple[Any, Any]]:
    """Training, held-out and test rows."""
    order = np.random.default_rng(seed).permutation(len(data[1]))
    return [(data[0][rows], data[1][rows]) for rows in np.split(order, np.cumsum(sizes))]


def test_sets_hold_the_class_as_often_as_they_promise_over_seeds() -> None:
    covered, sizes, right = [], [], []
    for seed in range(6):
        train, held, test = parts(DIGITS, seed, (60, 100))
        model = RCADClassifier(max_iter=30, random_state=0).fit(*train).calibrate(*held)
        sets = model.predict_set(test[0], coverage=0.95)
        assert sets.shape == (len(test[1]), 10)
        assert sets[np.arange(len(sets)), np.searchsorted(model.classes_, model.predict(test[0]))].all()
        covered.append(sets[np.arange(len(sets)), test[1]].mean())
        sizes.append(sets.sum(1).mean())
        right.append(model.score(*test))
    assert np.mean(right) < 0.9, "one class alone would not do"
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)
    assert 1 < np.mean(sizes) < 5


def test_intervals_hold_the_target_where_the_model_s_own_do_not() -> None:
    own, calibrated = [], []
    for seed in range(6):
        train, held, test = parts(FRIEDMAN, seed, (150, 150))
        model = RCADRegressor(max_iter=200, random_state=0).fit(*train)
        for found in (own, calibrated):
            low, high = model.predict_interval(test[0], coverage=0.9).T
            found.append(((low <= test[1]) & (test[1] <= high)).mean())
            model.calibrate(*held)
    assert np.mean(own) < 0.7
    assert np.mean(calibrated) == pytest.approx(0.9, abs=0.03)


def test_several_targets_have_an_interval_each() -> None:
    x, y = FRIEDMAN
    model = RCADRegressor(max_iter=20, random_state=0).fit(x[:200], np.stack([y, -(y**2)], 1)[:200])
    before = model.predict_interval(x[400:])
    after = model.calibrate(x[200:400], np.stack([y, -(y**2)], 1)[200:400]).predict_interval(x[400:])
    assert after.shape == before.shape == (200, 2, 2)
    truth = np.stack([y, -(y**2)], 1)[400:]
    inside = ((after[..., 0] <= truth) & (truth <= after[..., 1])).mean(0)
    assert inside == pytest.approx([0.9, 0.9], abs=0.08)


def test_what_was_calibrated_is_kept_and_dropped(tmp_path: Path) -> None:
    train, held, test = parts(DIGITS, 0, (60, 100))
    model = RCADClassifier(max_iter=5, random_state=0).fit(*train).calibrate(*held)
    sets = model.predict_set(test[0])
    model.save(tmp_path / "m.safetensors")
    for twin in (RCADClassifier.load(tmp_path / "m.safetensors"), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(twin.predict_set(test[0]), sets)
    model.partial_fit(*train)
    with pytest.raises(InputError, match=r"expected calibrate\(X, y\) with rows that fit has not seen first"):
        model.predict_set(test[0])


def test_what_cannot_be_calibrated_is_refused_in_one_line() -> None:
    train, held, _ = parts(DIGITS, 0, (60, 100))
    with pytest.raises(NotFittedError):
        RCADClassifier().calibrate(*held)
    model = RCADClassifier(max_iter=2, random_state=0).fit(*train)
    few = [part[:8] for part in held]
    with pytest.raises(InputError, match=r"at least 9 rows to calibrate a coverage of 0\.9, but got 8; calibrate with"):
        model.calibrate(*few).predict_set(held[0])
    with pytest.raises(InputError, match="expected coverage to be a number between 0 and 1, but got 90"):
        model.predict_set(held[0], coverage=90)
    with pytest.raises(InputError, match="labels among the 10 classes known, but got 11"):
        model.calibrate(held[0], held[1] + 11)
    several = make_multilabel_classification(60, 8, n_classes=3, random_state=0)
    with pytest.raises(InputError, match="expected one class for each row to calibrate sets"):
        RCADClassifier(max_iter=2).fit(*several).calibrate(*several)
