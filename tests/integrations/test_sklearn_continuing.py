"""Training that goes on: what may change from one call to the next, what stays, and what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

import torch
from sklearn.datasets import load_diabetes, load_wine
from sklearn.exceptions import NotFittedError

import rcad
from rcad import InputError, methods
from rcad.integrations.sklearn import RCADClassifier, RCADRegressor

WINE, DIABETES = load_wine(return_X_y=True), load_diabetes(return_X_y=True)
CLASSES = [0, 1, 2]


def warm(method: Any = "rcad", **options: Any) -> RCADClassifier:
    return RCADClassifier(method, **{"max_iter": 2, "random_state": 0, "warm_start": True, **options})


def go_on(model: Any, way: str) -> Any:
    return model.fit(*WINE) if way == "fit" else model.partial_fit(*WINE)


@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_a_changed_method_is_the_one_that_goes_on(way: str) -> None:
    model = warm().fit(*WINE)
    measured = model.alpha_
    changes: list[tuple[dict[str, Any], rcad.Method]] = [
        ({"method": "erm"}, methods.erm()),
        ({"method": "rcad", "lam": 0.7}, methods.rcad(measured, 0.7)),
        ({"alpha": 1.5, "lam": None}, methods.rcad(1.5, 0.1)),
        ({"alpha": None, "method": "rcad_random"}, methods.rcad_random(measured, 0.1)),
    ]
    for parameters, expected in changes:
        before = model.network_.flat.clone()
        go_on(model.set_params(**parameters), way)
        assert model.method_ == expected
        assert not torch.equal(model.network_.flat, before)
    assert model.n_iter_ == 2 + 4 * (2 if way == "fit" else 1)
    with pytest.raises(InputError, match="expected method to be one of"):
        go_on(model.set_params(method="nonsense"), way)


def test_the_new_method_s_numbers_are_those_of_its_steps() -> None:
    """Half the epochs with one method and half with another, against one that stays."""
    stayed = warm().fit(*WINE).fit(*WINE)
    changed = warm().fit(*WINE).set_params(method="erm").fit(*WINE)
    assert changed.loss_curve_[:2] == stayed.loss_curve_[:2]
    assert changed.loss_curve_[2:] != stayed.loss_curve_[2:]


def test_alpha_is_measured_once() -> None:
    x, y = WINE
    model = warm("erm").fit(x, y)
    assert (model.alpha_, model.measured_alpha_) == (None, None)
    model.set_params(method="rcad").fit(x, y)  # measured when it is first needed ...
    first = model.alpha_
    assert first == model.measured_alpha_ == warm().fit(x, y).alpha_
    model.fit(3 * x, y)  # ... and kept, as the scales of the columns are
    assert model.alpha_ == first
    assert model.set_params(warm_start=False).fit(3 * x[::2], y[::2]).alpha_ != first


def test_what_cannot_change_is_refused_in_one_line() -> None:
    model = warm(hidden_layer_sizes=[20]).fit(*WINE)
    weights = model.network_.flat.clone()
    model.set_params(hidden_layer_sizes=(20, 10))
    for way in ("fit", "partial_fit"):
        with pytest.raises(
            InputError, match=r"^expected hidden_layer_sizes=\(20,\) to go on .*, but got \(20, 10\); .*$"
        ):
            go_on(model, way)
    assert torch.equal(model.network_.flat, weights)
    assert go_on(model.set_params(hidden_layer_sizes=(20,)), "fit").n_iter_ == 4
    assert model.set_params(hidden_layer_sizes=(5,), warm_start=False).fit(*WINE).n_iter_ == 2


def test_other_precision_goes_on_in_the_network_s() -> None:
    x, y = WINE
    single = warm().fit(x.astype(np.float32), y).partial_fit(x, y)
    assert single.network_.flat.dtype == torch.float32
    assert warm().fit(x, y).partial_fit(x.astype(np.float32), y).network_.flat.dtype == torch.float64


def test_a_network_moves_with_its_memory() -> None:
    here = warm().fit(*WINE).network_
    there = here.on(torch.device("cpu:0"))  # another device by its name
    assert there is not here is here.on(torch.device("cpu"))
    assert there.optimizer.steps == here.optimizer.steps > 0
    for one, other in ((there.flat, here.flat), (there.optimizer.second, here.optimizer.second)):
        assert torch.equal(one, other)
        assert one.data_ptr() != other.data_ptr()


def test_a_failed_new_fit_leaves_nothing_half_fitted() -> None:
    model = RCADClassifier(max_iter=1).fit(*WINE)
    with pytest.raises(InputError):
        model.set_params(method="nonsense").fit(WINE[0][:, :4], WINE[1])
    with pytest.raises(NotFittedError):
        model.predict(WINE[0])
    assert model.set_params(method="rcad").partial_fit(*WINE, classes=CLASSES).n_iter_ == 1


def test_a_first_batch_of_one_class_names_the_cure() -> None:
    x, y = WINE
    one = x[y == 0], y[y == 0]
    with pytest.warns(UserWarning, match=r"^expected two or more classes .*; it is 0\.3 until a batch has sev") as told:
        model = RCADClassifier().partial_fit(*one, classes=CLASSES)
    assert told[0].filename == __file__
    assert (model.alpha_, model.measured_alpha_) == (0.3, None)
    assert model.predict_proba(x).shape == (len(x), 3)
    assert model.partial_fit(x, y).alpha_ == model.measured_alpha_ != 0.3
    measured = model.alpha_
    assert model.partial_fit(*one).alpha_ == measured, "what was measured once stays"
    assert RCADClassifier(alpha=1.0).partial_fit(*one, classes=CLASSES).alpha_ == 1.0
    assert RCADClassifier("erm").partial_fit(*one, classes=CLASSES).n_iter_ == 1


def test_a_first_batch_without_scales_is_warned_of() -> None:
    x, y = DIABETES
    with pytest.warns(UserWarning, match=r"^the first batch .* it has 9 rows; begin with more$") as told:
        model = RCADRegressor().partial_fit(x[:9], y[:9])
    assert told[0].filename == __file__
    flat = x[:50].copy()
    flat[:, 3] = 0.25
    flat[:, 4] = 0.0  # zeros and ones have no scale to miss
    with pytest.warns(UserWarning, match="it has 50 rows with one value only in column 3; begin"):
        RCADRegressor().partial_fit(flat, y[:50])
    with pytest.warns(UserWarning, match=r"1 rows with one value only in column 0, 1, 2, \.\.\.;"):
        RCADRegressor().partial_fit(x[:1], y[:1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(x[:1], y[:1])  # the scales are there
        RCADRegressor().partial_fit(x[:50], y[:50])
        RCADRegressor(max_iter=1).fit(flat, y[:50])


def test_what_a_stream_cannot_have_is_refused() -> None:
    with pytest.raises(InputError, match=r"^expected early_stopping=False with partial_fit"):
        RCADRegressor(early_stopping=True).partial_fit(*DIABETES)
    with pytest.raises(InputError, match=r"^expected class_weight=None or a dict with partial_fit, but got 'balanced'"):
        RCADClassifier(class_weight="balanced").partial_fit(*WINE, classes=CLASSES)
    weighted = RCADClassifier(class_weight={0: 2.0}, random_state=0).partial_fit(*WINE, classes=CLASSES)
    plain = RCADClassifier(random_state=0).partial_fit(*WINE, classes=CLASSES)
    assert not torch.equal(weighted.network_.flat, plain.network_.flat)
    rest = WINE[1] > 0
    assert (
        weighted.partial_fit(WINE[0][rest], WINE[1][rest]).n_iter_ == 2
    )  # a batch without the class that has a weight


def test_a_saved_estimator_remembers_what_was_measured(tmp_path: Path) -> None:
    model = warm().fit(*WINE)
    model.set_params(alpha=2.0).fit(*WINE).save(tmp_path / "m.safetensors")
    twin = RCADClassifier.load(tmp_path / "m.safetensors")
    assert twin.alpha_ == 2.0
    assert twin.set_params(alpha=None).partial_fit(3 * WINE[0], WINE[1]).alpha_ == model.measured_alpha_
