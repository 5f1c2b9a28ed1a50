"""scikit-learn's own checks of an estimator, all of them, without exemptions."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("sklearn")

from sklearn.utils.estimator_checks import parametrize_with_checks

from rcad.integrations.sklearn import RCADClassifier, RCADRegressor


@parametrize_with_checks(
    [RCADClassifier(max_iter=40, learning_rate=0.01), RCADRegressor(max_iter=20, learning_rate=0.01)]
)
def test_scikit_learn_accepts_the_estimators(estimator: Any, check: Any) -> None:
    check(estimator)
