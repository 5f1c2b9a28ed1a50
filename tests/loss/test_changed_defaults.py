"""Rows written before a default changed keep their meaning; rows written now say what they mean."""

from __future__ import annotations

from inspect import signature

import pytest

from rcad import METHODS, Method, compose, method, methods
from rcad.loss.changed_defaults import CHANGED, as_first_written, as_recorded, left_open, spelled

SMOOTHED = (("label_smoothing", (("eps", 0.6),)), ("rcad", (("alpha", 1.0),)))


@pytest.mark.parametrize("name", sorted(CHANGED))
def test_the_table_has_todays_default(name: str) -> None:
    assert signature(METHODS[name]).parameters[CHANGED[name].name].default == CHANGED[name].now


def test_rows_are_filled_where_it_makes_a_difference_alone() -> None:
    assert spelled(SMOOTHED)[1] == ("rcad", (("alpha", 1.0), ("direction", "plain")))
    assert as_recorded(SMOOTHED)[1] == ("rcad", (("alpha", 1.0), ("direction", "training")))
    assert spelled(SMOOTHED[1:]) == as_recorded(SMOOTHED[1:]) == SMOOTHED[1:]
    assert spelled([("rcad_released", ())]) == (("rcad_released", (("jitter", 0.0),)),)


def test_what_a_row_says_stays() -> None:
    said = as_recorded(SMOOTHED)
    assert spelled(said) == as_recorded(said) == said
    assert left_open(said) == []
    assert left_open(SMOOTHED) == [
        "rcad.direction, which is read as 'training', the default when such rows were first written, not as today's "
        "'plain'"
    ]


def test_a_method_written_before_is_read_as_it_was_meant() -> None:
    rows = [{"name": "label_smoothing", "eps": 0.6}, {"name": "rcad", "alpha": 1.0, "lam": 0.1}]
    old = Method.from_dict({"methods": rows})
    assert old == compose(methods.label_smoothing(0.6), methods.rcad(1.0, 0.1, direction="training"))
    assert compose(*(method(**row) for row in rows)).extra[0].where.loss == "plain"
    assert Method.from_dict({"methods": rows[1:]}) == methods.rcad(1.0, 0.1)
    assert Method.from_dict({"methods": [{"name": "rcad_released"}]}) == methods.rcad_released(jitter=0.01)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_goes_both_ways(name: str) -> None:
    assert Method.from_dict(METHODS[name]().to_dict()) == METHODS[name]()


def test_the_program_at_its_last_commit_adds_no_noise() -> None:
    assert methods.rcad_released().extra[0].where.jitter == 0.0


def test_a_parameter_that_makes_no_difference_leaves_the_text_of_old_records() -> None:
    smooth = compose(methods.label_smoothing(), methods.rcad()).recipe
    ((name, values),) = as_first_written(methods.rcad().recipe)
    assert (name, dict(values).get("alpha"), "direction" in dict(values)) == ("rcad", 0.5, False)
    assert as_first_written(smooth) == smooth
