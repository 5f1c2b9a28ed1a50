"""Tables as people have them: text, categories, gaps, sparse matrices, columns that training did not see."""

import datetime
from decimal import Decimal

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("pandas")

import pandas as pd
from scipy import sparse

from one_line import fails_in_one_line, refusals
from people import WINE, people
from rcad import InputError
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


def test_constant_columns_become_zero():
    table = _table([np.full(7, 0.1), np.arange(7.0)], 7)
    for weight in (None, np.arange(1.0, 8)):
        assert (learn(table, weight).transform(table)[:, 0] == 0).all()


def test_of_many_levels_the_frequent_ones_are_kept():
    names = [f"often {k}" for k in range(MOST_LEVELS)] * 2 + ["rare 1", "rare 2"]
    levels = learn(_table([Text(names)], len(names))).encoder.codes[0].levels
    assert levels is not None
    assert set(levels) == set(names[:MOST_LEVELS])


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
        (PEOPLE.assign(age=np.inf), "contains infinity"),
        (PEOPLE[list(PEOPLE.columns[::-1])], "feature names"),
        (PEOPLE.drop(columns="note"), "yet now missing"),
        (PEOPLE.head(0), "expected at least one row, but got a table of shape"),
    ],
)
def test_tables_that_do_not_fit_are_refused(table, words):
    with pytest.raises(ValueError, match=words):
        RCADClassifier(max_iter=1).fit(*people()).predict(table)


def test_decimals_are_numbers():
    x, y = people()
    prices = x.assign(age=[Decimal(f"{age:.6f}") for age in x["age"]])
    prices.loc[1, "age"] = Decimal("nan")
    model = RCADClassifier(max_iter=2, random_state=0).fit(prices, y)
    assert categorical_of(model.columns_) == (2, 3, 5)
    alone = prices[["age"]].astype(object)
    assert RCADClassifier(max_iter=2).fit(alone, y).columns_.scales.mean[0] == pytest.approx(x["age"].drop(1).mean())


DAY = datetime.date(2020, 2, 29)


@pytest.mark.parametrize("value", [[1, 2], np.zeros(2), DAY, datetime.timedelta(1), pd.Period("2020-02")])
def test_columns_of_objects_must_hold_text_or_numbers(value):
    x, y = people()
    column = pd.Series([None, *[value] * (len(x) - 1)], dtype=object)
    words = f"expected numbers or categories, but column 'new' holds a {type(value).__name__}; extract"
    with pytest.raises(InputError, match=words):
        RCADClassifier().fit(x.assign(new=column), y)
    model = RCADClassifier(max_iter=1).fit(x.assign(new="text"), y)
    with pytest.raises(InputError, match=words):
        model.predict(x.assign(new=column))


test_what_is_no_column_is_refused_in_one_line = refusals(
    ({"new": pd.Timestamp("2020-01-01")}, "column 'new' holds datetime64 .. extract numbers from it"),
    ({"new": pd.period_range("2020-01", periods=60, freq="M")}, "column 'new' holds period[M]; extract numbers"),
    ({"count": 1e200}, "expected numbers below 1e+150, .. but column 'count' holds 1e+200; change its unit"),
    of=lambda columns: RCADClassifier().fit(people()[0].assign(**columns), people()[1]),
)


def test_what_was_declared_a_category_is_one():
    x, y = people()
    days = pd.Categorical([DAY, datetime.date(2020, 3, 1)] * (len(x) // 2))
    codes = RCADClassifier(max_iter=1).fit(x.assign(new=days), y).columns_.encoder.codes
    assert codes[-1].levels == ("2020-02-29", "2020-03-01")


@pytest.mark.filterwarnings("error")
def test_a_column_that_names_the_rows_is_warned_of():
    names = pd.DataFrame({"id": [f"row {k}" for k in range(MOST_LEVELS + 1)], "x": np.arange(MOST_LEVELS + 1.0)})
    y = np.arange(len(names)) % 2
    model = RCADClassifier(max_iter=1, alpha=0.5)
    with pytest.warns(UserWarning, match=r"^column 'id' holds 101 different texts in 101 rows") as told:
        model.fit(names, y)
    assert len(told) == 1
    assert told[0].filename == __file__
    model.predict(names)
    model.fit(pd.concat([names] * 2), np.tile(y, 2))  # half of the rows: each category twice
    model.fit(names.head(MOST_LEVELS), y[:MOST_LEVELS])


@pytest.mark.filterwarnings("error")
def test_a_large_sparse_matrix_is_not_made_dense_without_a_word(monkeypatch):
    x, y = WINE
    model = RCADClassifier(max_iter=1)
    monkeypatch.setattr(tables, "LARGE", x.nbytes - 1)
    with pytest.warns(UserWarning, match=r"^a sparse matrix of shape \(178, 13\) becomes 1.85e-05 GB") as told:
        model.fit(sparse.csr_array(x), y)
    assert told[0].filename == __file__
    monkeypatch.setattr(tables, "LARGE", x.nbytes)
    model.fit(sparse.csr_array(x), y)
    monkeypatch.setattr(tables, "LARGE", np.inf)
    with pytest.raises(InputError, match=r"fits into memory, but a sparse matrix of shape .* becomes 8e\+05 GB"):
        model.fit(sparse.csr_array((10, 10**13)), np.arange(10) % 2)


def test_numbers_whose_squares_overflow_are_refused():
    x, y = WINE[0].copy(), WINE[1]
    x[3, 4], x[5, 4] = -1e150, np.nan
    with fails_in_one_line("but column 4 holds 1e+150; change its unit"):
        RCADClassifier().fit(x, y)
    with fails_in_one_line("expected targets below 1e+150, so that their squares are finite, but got 2e+200"):
        RCADRegressor().fit(x[:, :3], 1e200 * y)


def test_positions_will_do_for_names_at_prediction():
    x, y = people()
    model = RCADClassifier(max_iter=5, random_state=0).fit(x, y)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        assert np.array_equal(model.predict_proba(x.to_numpy(dtype=object)), model.predict_proba(x))
