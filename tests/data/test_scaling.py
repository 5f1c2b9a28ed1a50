from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from rcad.data.scaling import Standardizer, TargetScaler, beyond_float64, compact
from rcad.errors import InputError

GAP = np.nan
STAMPS = 1_700_000_000_000 + np.arange(50.0) * 1000  # a minute of milliseconds


def test_fills_marks_and_scales() -> None:
    train = np.asarray([[1.0, 5.0, 0.0], [2.0, 5.0, 1.0], [GAP, 5.0, 1.0], [9.0, 5.0, 0.0]], dtype=np.float32)
    scaler = Standardizer.fit(train)
    assert scaler.median == (2.0, 5.0, 0.5)
    assert scaler.indicators == (0,)
    out = scaler.transform(train)
    assert out.dtype == np.float32
    seen = np.asarray([1.0, 2.0, 9.0])
    assert out[:, 0] == pytest.approx((np.asarray([1, 2, 2, 9]) - seen.mean()) / seen.std(), rel=1e-6)
    assert out[:, 1].tolist() == [0, 0, 0, 0], "a constant column is zero"
    assert out[:, 2].tolist() == [0, 1, 1, 0], "levels stay levels"
    assert out[:, 3].tolist() == [0, 0, 1, 0], "the indicator"
    scaled = Standardizer.fit(train, keep_binary=False).transform(train)
    assert scaled[:, 2].tolist() == [-1, 1, 1, -1]


def test_other_rows_change_nothing() -> None:
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(2, 50, 3))
    test[0] = 1e6
    test[1] = GAP
    scaler = Standardizer.fit(train)
    out = scaler.transform(train)
    scaler.transform(test)
    assert np.array_equal(scaler.transform(train), out)
    assert out.mean(axis=0) == pytest.approx(np.zeros(3), abs=1e-6)
    assert out.std(axis=0) == pytest.approx(np.ones(3), abs=1e-6)
    assert scaler.transform(test)[1] == pytest.approx(
        (np.median(train, axis=0) - train.mean(axis=0)) / train.std(axis=0)
    ), "a gap that training never had is filled, without an indicator"


def test_a_column_without_any_value() -> None:
    train = np.asarray([[GAP, 1.0], [GAP, 3.0]])
    out = Standardizer.fit(train).transform(train)
    assert out.tolist() == [[0, -1, 1], [0, 1, 1]]


def test_survives_json() -> None:
    train = np.asarray([[1.0, GAP], [2.5, 3.1], [0.1, 7.0]])
    scaler = Standardizer.fit(train)
    assert Standardizer.from_dict(json.loads(json.dumps(scaler.to_dict()))) == scaler
    target = TargetScaler.fit(train[:, 0])
    assert TargetScaler(**json.loads(json.dumps(target.to_dict()))) == target


def test_targets_are_scaled() -> None:
    y = np.asarray([10.0, 20.0, 60.0], dtype=np.float32)
    scaler = TargetScaler.fit(y)
    z = scaler.transform(y)
    assert z.dtype == np.float32
    assert z.mean() == pytest.approx(0, abs=1e-6)
    assert z.std() == pytest.approx(1, rel=1e-6)
    # The change of variables that turns an NLL in scaled units into one in the target's.
    nll = 0.5 * (z**2 + np.log(2 * np.pi))
    own = 0.5 * (((y - scaler.mean) / scaler.scale) ** 2 + np.log(2 * np.pi * scaler.scale**2))
    assert nll + np.log(scaler.scale) == pytest.approx(own, rel=1e-6)


def test_errors() -> None:
    with pytest.raises(InputError, match="finite numbers or NaN"):
        Standardizer.fit(np.asarray([[np.inf], [1.0]]))
    with pytest.raises(InputError, match=r"rows of shape \(N, D\), but got shape \(0, 3\)"):
        Standardizer.fit(np.empty((0, 3)))
    with pytest.raises(InputError, match="expected 1 columns, but got 2"):
        Standardizer.fit(np.ones((2, 1))).transform(np.ones((2, 2)))
    with pytest.raises(InputError, match="targets that differ, but all are 3"):
        TargetScaler.fit(np.full(4, 3.0))
    with pytest.raises(InputError, match="finite targets"):
        TargetScaler.fit(np.asarray([1.0, GAP]))


def test_only_a_column_that_float32_would_blur_is_kept_wide() -> None:
    ordinary = np.random.default_rng(0).normal(1000.0, 1.0, size=(50, 2))
    assert compact(ordinary).dtype == np.float32
    mixed = np.column_stack([ordinary, STAMPS])
    assert compact(mixed).dtype == np.float64
    assert np.array_equal(compact(mixed), mixed)
    assert compact(STAMPS).dtype == np.float64, "targets have one dimension"
    # Half a thousandth of the deviation is where it turns: 2^24 + 1 has no float32.
    assert compact(np.asarray([2.0**24 + 1, 0.0])).dtype == np.float32
    assert compact(np.asarray([2.0**24 + 1, 2.0**24 + 3])).dtype == np.float64


def test_gaps_and_constants_blur_nothing() -> None:
    gaps = np.column_stack([np.full(50, np.nan), np.full(50, 0.1), np.where(STAMPS % 7 < 3, np.nan, 1.5)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compact(gaps).dtype == np.float32
        gaps[:, 2] = np.where(np.arange(50) % 7 == 0, np.nan, STAMPS)
        assert compact(gaps).dtype == np.float64


def test_numbers_beyond_float32_stay_finite() -> None:
    assert np.isfinite(compact(np.asarray([1e39, 2e39]))).all()


@pytest.mark.parametrize(
    ("column", "merged"),
    [
        (2.0**62 + np.arange(50.0), True),
        (np.asarray([1e18, 3e18, np.nan]), False),
        (STAMPS, False),
        (np.full(3, np.nan), False),
        (np.full(3, 5.0), False),
    ],
)
def test_long_identifiers_are_told_from_large_numbers(column: np.ndarray, merged: bool) -> None:
    assert beyond_float64(column) is merged
