"""mCE and its kin, by hand."""

from __future__ import annotations

import pytest

from rcad.data.corrupted import CORRUPTIONS
from rcad.errors import InputError
from rcad.evaluate.corruption_error import (
    ALEXNET_IMAGENET,
    ALEXNET_IMAGENET_C,
    corruption_errors,
    mce,
    mean_error,
    relative_corruption_errors,
    relative_mce,
    severity_curve,
)

ERRORS = {"fog": (10.0, 30.0), "snow": (20.0, 40.0)}
BASELINE = {"fog": (30.0, 50.0), "snow": (50.0, 70.0), "frost": (1.0, 2.0)}


def test_by_hand():
    assert mean_error(ERRORS) == 25
    assert corruption_errors(ERRORS, BASELINE) == pytest.approx({"fog": 50.0, "snow": 50.0})
    assert mce({**ERRORS, "snow": (50.0, 70.0)}, BASELINE) == pytest.approx(75)
    # fog adds 20 - 5 = 15 to the clean error and 40 - 10 = 30 to the baseline's; snow 25 and 50.
    assert relative_corruption_errors(ERRORS, 5, BASELINE, 10) == pytest.approx({"fog": 50.0, "snow": 50.0})
    assert relative_mce(ERRORS, 0, BASELINE, 10) == pytest.approx(100 * (20 / 30 + 30 / 50) / 2)
    assert severity_curve(ERRORS) == (15, 35)


def test_it_is_the_ratio_of_sums_and_not_the_mean_of_ratios():
    assert corruption_errors({"fog": (10.0, 10.0)}, {"fog": (10.0, 90.0)}) == pytest.approx({"fog": 20.0})


def test_a_mean_will_do_in_place_of_severities():
    assert mce({"fog": 20.0, "snow": 30.0}, {"fog": 40.0, "snow": 60.0}) == pytest.approx(50)
    assert mce(ERRORS, {"fog": 40, "snow": 60}) == pytest.approx(50)


def test_a_model_is_as_good_as_itself():
    assert mce(ALEXNET_IMAGENET_C, ALEXNET_IMAGENET_C) == pytest.approx(100)
    assert relative_mce(ERRORS, 5, ERRORS, 5) == pytest.approx(100)


def test_alexnet_has_all_corruptions():
    assert tuple(ALEXNET_IMAGENET_C) == CORRUPTIONS
    assert mean_error(ALEXNET_IMAGENET_C) > ALEXNET_IMAGENET


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (lambda: mean_error({}), "expected the errors of at least one corruption"),
        (lambda: mean_error({"fog": ()}), "expected an error per severity for fog"),
        (lambda: mean_error({"fog": (101.0,)}), "expected the error of fog to be a percentage from 0 to 100"),
        (lambda: mean_error({"fog": (float("nan"),)}), "to be a percentage from 0 to 100, but got nan"),
        (lambda: mce(ERRORS, {"fog": 10.0}), "but snow is missing"),
        (lambda: mce(ERRORS, {"fog": 0.0, "snow": 1.0}), "expected a baseline that fog makes worse"),
        (
            lambda: mce({"fog": (1.0,)}, BASELINE),
            "expected as many severities as the baseline for fog, but got 1 and 2",
        ),
        (lambda: relative_mce(ERRORS, -1, BASELINE, 10), "expected clean to be a percentage"),
        (lambda: relative_mce(ERRORS, 5, BASELINE, 40), "expected a baseline that fog makes worse"),
        (
            lambda: severity_curve({"fog": (1.0,), "snow": (1.0, 2.0)}),
            "expected as many severities for every corruption",
        ),
    ],
)
def test_wrong_values_are_named(job, says):
    with pytest.raises(InputError) as error:
        job()
    assert says in str(error.value)
