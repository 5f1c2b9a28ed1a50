from __future__ import annotations

import warnings

import numpy as np
import pytest

from rcad.data.scaling import beyond_float64, compact

STAMPS = 1_700_000_000_000 + np.arange(50.0) * 1000  # a minute of milliseconds


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
