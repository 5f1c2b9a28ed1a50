"""Tables as people have them: text, categories, gaps, sparse matrices, columns that training did not see."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from one_line import fails_in_one_line, refusals
from people import WINE, people
from rcad.data.scaling import Standardizer
from rcad.data.table_files import Text
from rcad.integrations.sklearn import RCADClassifier, RCADRegressor, tables
from rcad.integrations.sklearn.tables import MOST_LEVELS, _level, _table, categorical_of, learn, read


def test_every_kind_of_column_is_used():
    x, y = people()
    model = RCADClassifier(max_iter=150, random_state=0).fit(x, y)
    assert model.score(x, y) > 0.95
    assert list(model.feature_names_in_) == list(x.columns)
    assert categorical_of(model.columns_) == (2, 3, 5)
    # age, income, member, count; income and count have gaps; 3 colours, 3 sizes, 2 notes and their gap
    assert model.network_.sizes == (4 + 2 + 3 + 3 + 3, 100, 2)
    target = x["age"].to_numpy() + 10 * (x["colour"] == "red").to_numpy()
    assert RCADRegressor(max_iter=200, random_state=0).fit(x, target).score(x, target) > 0.9


def test_unseen_categories_and_gaps_are_predicted():
    x, y = people()
    model = RCADClassifier(max_iter=50, random_state=0).fit(x, y)
    new = x.head(3).copy()
    new["colour"] = ["violet", None, np.nan]
    new["size"] = [9, 1, 2]
    new["age"] = np.nan
    p = model.predict_proba(new)
    assert np.isfinite(p).all()
    encoded = model.columns_.transform(read(model, new, categorical=categorical_of(model.columns_))[0])
    colours = [name.startswith("2=") for name in model.columns_.encoder.features]
    assert sum(colours) == 3
    assert (encoded[:, : len(colours)][:, colours] == 0).all()  # no colour is any of those seen
    middle = (x["age"].median() - x["age"].mean()) / x["age"].std(ddof=0)
    assert encoded[:, 0] == pytest.approx(middle)  # a gap where training had none is the median


def test_whole_numbers_are_one_category_whatever_gaps_make_of_them():
    values = [2, 2.0, np.float64(2), 2.5, None, np.nan, pd.NA, True]
    assert [_level(value) for value in values] == ["2", "2", "2", "2.5", None, None, None, "True"]


def test_of_many_levels_the_frequent_ones_are_kept():
    names = [f"often {k}" for k in range(MOST_LEVELS)] * 2 + ["rare 1", "rare 2"]
    assert set(learn(_table([Text(names)], len(names))).encoder.codes[0].levels) == set(names[:MOST_LEVELS])


def test_decimals_are_numbers():
    x, y = people()
    prices = x[["age"]].map(lambda age: Decimal(f"{age:.6f}"))
    assert RCADClassifier(max_iter=2).fit(prices, y).columns_.scales.mean[0] == pytest.approx(x["age"].mean())


def test_statistics_count_weights_as_rows():
    draw = np.random.default_rng(0)
    x, often = draw.normal(5, 3, (20, 3)), draw.integers(1, 4, 20)
    x[::3, 1] = np.nan
    x[:, 2] = x[:, 2] > 5  # zeros and ones stay as they are
    repeated = Standardizer.fit(np.repeat(x, often, axis=0))
    for weight in (often.astype(float), often / 7, 1e-9 * often):
        weighed = Standardizer.fit(x, weight)
        for name in ("median", "mean", "scale", "indicators"):
            assert getattr(weighed, name) == pytest.approx(getattr(repeated, name))


def test_sparse_equals_dense_and_precision_is_kept():
    x, y = WINE
    model = RCADClassifier(max_iter=5, random_state=0)
    dense = model.fit(x, y).predict_proba(x)
    for container in (sparse.csr_array, sparse.coo_matrix):
        assert np.array_equal(model.fit(container(x), y).predict_proba(container(x)), dense)
    assert str(model.network_.flat.dtype) == "torch.float64"
    single = model.fit(x.astype(np.float32), y)
    assert str(single.network_.flat.dtype) == "torch.float32"
    assert single.predict_proba(x) == pytest.approx(dense, abs=1e-3)


PEOPLE = people()[0]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (PEOPLE.assign(age="old"), "expected numbers in column 'age' as in training, but got text"),
        (PEOPLE[list(PEOPLE.columns[::-1])], "feature names"),
        (PEOPLE.drop(columns="note"), "yet now missing"),
        (PEOPLE.head(0), "expected at least one row, but got a table of shape"),
    ],
)
def test_tables_that_do_not_fit_are_refused(table, words):
    with pytest.raises(ValueError, match=words):
        RCADClassifier(max_iter=1).fit(*people()).predict(table)


test_what_is_no_column_is_refused_in_one_line = refusals(
    ({"new": [None, *[[1, 2]] * 59]}, "expected numbers or categories, but column 'new' holds a list; extract"),
    ({"new": pd.Timestamp("2020-01-01")}, "column 'new' holds datetime64 .. extract numbers from it"),
    ({"count": 1e200}, "expected numbers below 1e+150, .. but column 'count' holds 1e+200; change its unit"),
    of=lambda columns: RCADClassifier().fit(people()[0].assign(**columns), people()[1]),
)


@pytest.mark.filterwarnings("error")
def test_a_large_sparse_matrix_is_not_made_dense_without_a_word(monkeypatch):
    x, y = WINE
    model = RCADClassifier(max_iter=1)
    monkeypatch.setattr(tables, "LARGE", x.nbytes - 1)
    with pytest.warns(UserWarning, match=r"^a sparse matrix of shape \(178, 13\) becomes 1.85e-05 GB"):
        model.fit(sparse.csr_array(x), y)
    monkeypatch.setattr(tables, "LARGE", np.inf)
    with fails_in_one_line("fits into memory, but a sparse matrix of shape", "becomes 8e+05 GB"):
        model.fit(sparse.csr_array((10, 10**13)), np.arange(10) % 2)
