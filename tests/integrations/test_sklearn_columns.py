"""Tables as people have them: text, categories, gaps, sparse matrices, columns that training did not see."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("pandas")

import pandas as pd
from scipy import sparse
from sklearn.datasets import load_wine

from integrations.people import people
from rcad import InputError
from rcad.integrations.sklearn import RCADClassifier, RCADRegressor
from rcad.integrations.sklearn.columns import MOST_LEVELS, Columns, Table, _level, read


def test_every_kind_of_column_is_used() -> None:
    x, y = people()
    model = RCADClassifier(max_iter=150, random_state=0).fit(x, y)
    assert model.score(x, y) > 0.95
    assert list(model.feature_names_in_) == list(x.columns)
    assert model.columns_.categorical == (2, 3, 5)
    # age, income, member, count; income and count have gaps; 3 colours, 3 sizes, 2 notes and their gap
    assert model.network_.stacked.layout.sizes == (4 + 2 + 3 + 3 + 3, 100, 2)
    target = x["age"].to_numpy() + 10 * (x["colour"] == "red").to_numpy()
    assert RCADRegressor(max_iter=200, random_state=0).fit(x, target).score(x, target) > 0.9


def test_unseen_categories_and_gaps_are_predicted() -> None:
    x, y = people()
    model = RCADClassifier(max_iter=50, random_state=0).fit(x, y)
    new = x.head(3).copy()
    new["colour"] = ["violet", None, np.nan]
    new["size"] = [9, 1, 2]
    new["age"] = np.nan
    p = model.predict_proba(new)
    assert np.isfinite(p).all()
    encoded = model.columns_.transform(read(model, new, categorical=model.columns_.categorical))
    assert (encoded[:, 6:9] == 0).all()  # no colour is any of those seen
    assert encoded[:, 0] == pytest.approx(0.0)  # a gap where training had none is the mean


def test_whole_numbers_are_one_category_whatever_gaps_make_of_them() -> None:
    assert _level(2) == _level(2.0) == _level(np.float64(2)) == "2"
    assert _level(2.5) == "2.5"
    assert _level(None) is _level(np.nan) is _level(pd.NA) is None
    assert _level(True) == "True"


def test_statistics_count_weights_as_rows() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(5, 3, (20, 3))
    x[::3, 1] = np.nan
    x[:, 2] = x[:, 2] > 5
    often = draw.integers(1, 4, 20)
    weighed = Columns.fit(Table(x), often.astype(float))
    repeated = Columns.fit(Table(np.repeat(x, often, axis=0)))
    for name in ("mean", "scale", "fill"):
        assert getattr(weighed, name) == pytest.approx(getattr(repeated, name))
    assert weighed.gaps == repeated.gaps == (1,)
    assert (weighed.mean[2], weighed.scale[2]) == (0.0, 1.0)  # zeros and ones stay as they are
    plain = Columns.fit(Table(x))
    assert plain.mean[0] == pytest.approx(x[:, 0].mean())
    assert plain.scale[0] == pytest.approx(x[:, 0].std())
    done = plain.transform(Table(x))
    assert done[:, 3].tolist() == np.isnan(x[:, 1]).tolist()
    assert done[::3, 1] == pytest.approx(0.0)


def test_constant_columns_become_zero() -> None:
    x = np.full((7, 2), 0.1)
    x[:, 1] = np.arange(7)
    encoded = Columns.fit(Table(x)).transform(Table(x))
    assert (encoded[:, 0] == 0).all()


def test_of_many_levels_the_frequent_ones_are_kept() -> None:
    names = [f"often {k}" for k in range(MOST_LEVELS)] * 2 + ["rare 1", "rare 2"]
    columns = Columns.fit(Table(np.zeros((len(names), 0)), (tuple(names),), (0,)))
    assert len(columns.levels[0]) == MOST_LEVELS
    assert not any(level is None or level.startswith("rare") for level in columns.levels[0])


def test_sparse_equals_dense_and_precision_is_kept() -> None:
    x, y = load_wine(return_X_y=True)
    model = RCADClassifier(max_iter=5, random_state=0)
    dense = model.fit(x, y).predict_proba(x)
    for container in (sparse.csr_array, sparse.coo_matrix):
        assert np.array_equal(model.fit(container(x), y).predict_proba(container(x)), dense)
    assert str(model.network_.flat.dtype) == "torch.float64"
    single = model.fit(x.astype(np.float32), y)
    assert str(single.network_.flat.dtype) == "torch.float32"
    assert single.predict_proba(x) == pytest.approx(dense, abs=1e-3)


def test_tables_that_do_not_fit_are_refused_in_one_line() -> None:
    x, y = people()
    model = RCADClassifier(max_iter=2).fit(x, y)
    cases = {
        "expected numbers in column 'age' as in training, but got text": x.assign(age="old"),
        "contains infinity": x.assign(age=np.inf),
        "feature names": x[list(x.columns[::-1])],
        "yet now missing": x.drop(columns="note"),
    }
    for words, table in cases.items():
        with pytest.raises(ValueError, match=words):
            model.predict(table)
    with pytest.raises(InputError, match=r"column 'when' holds datetime64.*turn times into numbers"):
        model.fit(x.assign(when=pd.Timestamp("2020-01-01")), y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(x, y[:-1])


def test_positions_will_do_for_names_at_prediction() -> None:
    x, y = people()
    model = RCADClassifier(max_iter=5, random_state=0).fit(x, y)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        assert np.array_equal(model.predict_proba(x.to_numpy(dtype=object)), model.predict_proba(x))
