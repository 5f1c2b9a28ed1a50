"""Estimators survive: pickle, joblib, copies, and one safetensors file that needs no pickle."""

import copy
import json
import pickle

import joblib
import numpy as np
import pytest
import torch
from safetensors.torch import save, save_file
from sklearn.base import clone

from one_line import fails_in_one_line
from people import DIABETES, LABELS, REALS, WINE, people
from rcad import InputError, Method, methods
from rcad.integrations.sklearn import RCADClassifier, RCADRegressor
from rcad.integrations.sklearn.base import _read

DATA = {"labels": WINE, "reals": DIABETES, "frame": people(), "several labels": LABELS, "several reals": REALS}


def fitted(kind):
    x, y = DATA[kind]
    options = {"max_iter": 3, "random_state": 0}
    if "reals" in kind:
        return RCADRegressor(**options).fit(x, y), x, y
    if kind != "several labels":
        options |= {"method": methods.rcad(1.0, 0.3), "class_weight": dict.fromkeys(np.unique(y).tolist(), 2.0)}
        options["class_weight"][y[0]] = 1.0
    return RCADClassifier(**options).fit(x, y), x, y


@pytest.mark.parametrize("kind", DATA)
def test_copies_predict_and_go_on_as_the_original(kind, tmp_path):
    model, x, y = fitted(kind)
    joblib.dump(model, tmp_path / "model.joblib")
    model.save(tmp_path / "model.safetensors")
    copies = [
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model),
        joblib.load(tmp_path / "model.joblib"),
        type(model).load(tmp_path / "model.safetensors"),
    ]
    assert b"torch" not in pickle.dumps(model), "bytes of safetensors and no tensor"
    before = model.predict(x)
    for twin in copies:
        assert np.array_equal(twin.predict(x), before)
        assert twin.network_.flat.data_ptr() != model.network_.flat.data_ptr()
        assert clone(twin).get_params() == model.get_params()
        mine, its = ({k: v for k, v in vars(m).items() if k not in ("network_", "method")} for m in (model, twin))
        assert mine.keys() == its.keys()
        for name, value in mine.items():
            assert np.array_equal(its[name], value), name
            assert getattr(its[name], "dtype", None) == getattr(value, "dtype", None), name
        twin.partial_fit(x, y)
    model.partial_fit(x, y)
    assert not np.array_equal(model.network_.flat, fitted(kind)[0].network_.flat)
    for twin in copies:  # with the optimizer's memory: the next step is the same
        assert torch.equal(twin.network_.flat, model.network_.flat)


@pytest.mark.parametrize("kind", DATA)
def test_skops_dumps_and_loads(kind):
    io = pytest.importorskip("skops.io", reason="skops is not installed")
    model, x, y = fitted(kind)
    data = io.dumps(model)
    unknown = io.get_untrusted_types(data=data)
    assert unknown
    assert all(name.startswith("rcad.") for name in unknown), unknown
    twin = io.loads(data, trusted=unknown)
    assert np.array_equal(twin.predict(x), model.predict(x))
    assert twin.get_params() == model.get_params()
    assert torch.equal(twin.partial_fit(x, y).network_.flat, model.partial_fit(x, y).network_.flat)


def test_parameters_come_back_as_they_were(tmp_path):
    parameters = {"hidden_layer_sizes": (7, np.int64(5)), "random_state": np.random.RandomState(0)}
    model = RCADClassifier(methods.label_smoothing(0.1), max_iter=np.int64(2), **parameters).fit(*WINE)
    model.save(tmp_path / "m.safetensors")
    twin = RCADClassifier.load(tmp_path / "m.safetensors")
    assert twin.random_state is None
    assert twin.get_params() == {**model.get_params(), "random_state": None}


def test_what_is_no_file_of_the_estimator_is_refused_in_one_line(tmp_path):
    fitted("labels")[0].save(path := tmp_path / "x.safetensors")
    tensors, meta = _read(path)

    def changed(weights=tensors["weights"], **entries):
        return save({**tensors, "weights": weights}, metadata={"rcad": json.dumps({**meta, **entries})})

    for data, words in (
        (b"not a file of tensors", "expected an estimator saved by rcad"),
        (pickle.dumps({"a": 1}), "expected an estimator saved by rcad"),
        (path.read_bytes()[:1000], "expected an estimator saved by rcad"),
        (save(tensors), "but got other tensors"),
        (changed(estimator="RCADRegressor"), "but got RCADRegressor of version 2"),
        (changed(parameters=None), "a RCADClassifier saved by rcad .*, but got: expected the state.parameters"),
        (changed(tensors["weights"][:-1]), "expected a RCADClassifier .* parameters, but got a tensor"),
    ):
        (tmp_path / "x").write_bytes(data)
        with fails_in_one_line(match=words):
            RCADClassifier.load(tmp_path / "x")


def test_what_cannot_be_saved_is_said(tmp_path):
    with pytest.raises(InputError, match="expected a fitted RCADClassifier"):
        RCADClassifier().save(tmp_path / "x")
    bare = Method(extra=methods.rcad(1.0, 0.1).extra)
    model = RCADClassifier(bare, max_iter=2, random_state=0).fit(*WINE)
    with pytest.raises(InputError, match="pickle it instead"):
        model.save(tmp_path / "x")
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="writable"):
        fitted("labels")[0].save(tmp_path / "no folder" / "x")


def test_a_file_of_before_there_were_several_targets(tmp_path):
    """Centre and scale stood among the plain numbers."""
    model, x, _ = fitted("reals")
    model.save(path := tmp_path / "m.safetensors")
    tensors, meta = _read(path)
    arrays = {name: meta["arrays"].pop(name) for name in ("center_", "scale_")}
    meta["fitted"] |= {name: value for name, (value, _) in arrays.items()}
    save_file(tensors, path, {"rcad": json.dumps(meta)})
    assert np.array_equal(RCADRegressor.load(path).predict(x), model.predict(x))
