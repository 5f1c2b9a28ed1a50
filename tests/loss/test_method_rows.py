"""Methods as they are written: rows of a config, text of a user, and rows from before a default changed."""

from inspect import signature

from one_line import refusals
from rcad import METHODS, Method, compose, method, methods
from rcad.loss.method_rows import (
    CHANGED,
    as_recorded,
    label,
    left_open,
    method_rows,
    method_text,
    parse_method,
    rows_to_plain,
    spelled,
    without_defaults,
)

SMOOTHED = (("label_smoothing", (("eps", 0.6),)), ("rcad", (("alpha", 1.0), ("lam", 0.1))))


test_bad_rows_are_named = refusals(
    ([], "expected method to be a list of at least one row, but got []"),
    (["rcad"], "expected method[0] to be a table with a name, but got 'rcad'"),
    ([{"alpha": 0.5}], "expected method[0].name, but it is missing"),
    ([(" ", ())], "expected method[0].name to be the name of a method, but got ' '"),
    ([("rcad", 3)], "expected the parameters of method[0] to be pairs, but got 3"),
    ([("rcad", [("a b", 1)])], "expected a parameter of method[0] to be a plain name, but got 'a b'"),
    ([("rcad", [("a", 1), ("a", 2)])], "expected each parameter of method[0] once, but got ['a', 'a']"),
    ([("rcad", {"alpha": float("inf")})], "expected method[0].alpha to be a finite number"),
    ([("rcad", {"bounds": [0.0, float("nan")]})], "expected method[0].bounds[1] to be a finite number"),
    of=method_rows,
)


def test_rows_have_one_form():
    wanted = (("rcad", (("alpha", 0.5), ("bounds", (0, 1)), ("lam", 0.02), ("norm", None))),)
    assert method_rows([("rcad", {"lam": 0.02, "alpha": 0.5, "bounds": [0, 1], "norm": "none"})]) == wanted
    assert method_rows([("rcad", (("norm", None), ("bounds", (0, 1)), ("alpha", 0.5), ("lam", 0.02)))]) == wanted
    assert parse_method("rcad(norm=none, bounds=(0, 1), alpha=0.5, lam=0.02)") == wanted
    assert method_rows({"name": "erm"}) == (("erm", ()),)


def test_plain_rows_and_text_go_both_ways():
    rows = method_rows([("mixup", {"alpha": 1.0}), ("gaussian", {"cap": [None, 1.0]})])
    assert rows_to_plain(rows) == [{"name": "mixup", "alpha": 1.0}, {"name": "gaussian", "cap": [None, 1.0]}]
    assert method_rows(rows_to_plain(rows)) == rows
    assert parse_method(method_text(rows)) == rows


def test_a_default_written_out_is_dropped_and_one_that_changed_is_said():
    defaults = {"mixup": {"alpha": 1.0, "every": 1, "bounds": None}}
    rows = method_rows([("mixup", {"alpha": 1.0, "every": True, "bounds": None, "p": 0.1}), ("erm", {"x": 1})])
    assert without_defaults(rows, defaults) == (("mixup", (("every", True), ("p", 0.1))), ("erm", (("x", 1),)))
    defaults = {"rcad": {"alpha": "auto", "lam": "auto"}}
    assert without_defaults(method_rows([("rcad", {"alpha": 0.5, "lam": 0.02})]), defaults) == (("rcad", ()),)
    today = (("rcad", (("alpha", "auto"), ("lam", "auto"))),)
    assert spelled([("rcad", ())]) == without_defaults(today, defaults) == today
    assert spelled([("rcad", ())], leave=("alpha", "lam")) == (("rcad", ()),)
    assert [label(rows) for rows in (today, [("rcad", ())])] == ["rcad", "rcad(alpha=0.5, lam=0.02)"]
    assert Method.from_dict({"methods": [{"name": "rcad"}]}) == methods.rcad(0.5, 0.02)
    assert Method.parse("rcad") == methods.rcad() == methods.rcad("auto", "auto")


def test_the_table_has_todays_defaults():
    for (name, key), changed in CHANGED.items():
        assert signature(METHODS[name]).parameters[key].default == changed.now


def test_rows_are_filled_where_it_makes_a_difference_alone():
    assert spelled(SMOOTHED)[1] == ("rcad", (("alpha", 1.0), ("direction", "plain"), ("lam", 0.1)))
    assert as_recorded(SMOOTHED)[1] == ("rcad", (("alpha", 1.0), ("direction", "training"), ("lam", 0.1)))
    assert label(SMOOTHED) == "label_smoothing(eps=0.6) + rcad(alpha=1.0, direction='training', lam=0.1)"
    assert spelled(SMOOTHED[1:]) == as_recorded(SMOOTHED[1:]) == SMOOTHED[1:]
    assert spelled([("rcad_released", ())]) == (("rcad_released", (("jitter", 0.0),)),)
    said = as_recorded(SMOOTHED)
    assert spelled(said) == as_recorded(said) == said, "what a row says stays"
    assert left_open(said) == []
    assert left_open(SMOOTHED)[0].startswith("rcad.direction, which is read as 'training', the default when such rows")


def test_a_method_written_before_is_read_as_it_was_meant():
    rows = [{"name": "label_smoothing", "eps": 0.6}, {"name": "rcad", "alpha": 1.0, "lam": 0.1}]
    old = Method.from_dict({"methods": rows})
    assert old == compose(methods.label_smoothing(0.6), methods.rcad(1.0, 0.1, direction="training"))
    assert compose(*(method(**row) for row in rows)).extra[0].where.loss == "plain"
    assert Method.from_dict({"methods": rows[1:]}) == methods.rcad(1.0, 0.1)
    assert Method.from_dict({"methods": [{"name": "rcad_released"}]}) == methods.rcad_released(jitter=0.01)
    # Text is written today.
    assert Method.parse("label_smoothing(eps=0.6) + rcad(alpha=1.0, lam=0.1)").extra[0].where.loss == "plain"
