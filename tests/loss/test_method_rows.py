from __future__ import annotations

from typing import Any

import pytest

from rcad.errors import InputError
from rcad.loss.method_rows import label, method_rows, rows_from_names, rows_from_plain, rows_to_plain, without_defaults
from rcad.loss.methods import METHODS, Method, compose


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["rcad"], "expected method[0] to be a name and its parameters, but got 'rcad'"),
        ([(1, ())], "expected method[0].name to be the name of a method, but got 1"),
        ([(" ", ())], "expected method[0].name to be the name of a method, but got ' '"),
        ([("rcad", 3)], "expected the parameters of method[0] to be pairs, but got 3"),
        ([("rcad", [("a b", 1)])], "expected a parameter of method[0] to be a plain name, but got 'a b'"),
        ([("rcad", [("name", 1)])], "expected a parameter of method[0] to be a plain name, but got 'name'"),
        ([("rcad", [("a", 1), ("a", 2)])], "expected each parameter of method[0] once, but got ['a', 'a']"),
        ([("rcad", {"alpha": float("inf")})], "expected method[0].alpha to be a finite number"),
        ([("rcad", {"alpha": object})], "expected method[0].alpha to be a finite number"),
        ([("rcad", {"bounds": [0.0, float("nan")]})], "expected method[0].bounds[1] to be a finite number"),
    ],
)
def test_bad_rows_are_named(rows: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        method_rows(rows)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ("rcad", "expected method to be a list of tables with a name each, but got 'rcad'"),
        ([{"alpha": 0.5}], "expected method[0].name, but it is missing"),
        ([], "expected method to be a list of at least one row, but got []"),
    ],
)
def test_bad_plain_rows_are_named(plain: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        rows_from_plain(plain)
    assert message in str(caught.value)


def test_rows_have_one_form() -> None:
    first = method_rows([("rcad", {"lam": 0.02, "alpha": 0.5, "bounds": [0, 1], "norm": "none"})])
    second = method_rows([("rcad", (("norm", None), ("bounds", (0, 1)), ("alpha", 0.5), ("lam", 0.02)))])
    assert first == second == (("rcad", (("alpha", 0.5), ("bounds", (0, 1)), ("lam", 0.02), ("norm", None))),)


def test_plain_rows_go_both_ways() -> None:
    rows = method_rows([("mixup", {"alpha": 1.0}), ("gaussian", {"cap": [None, 1.0]})])
    assert rows_to_plain(rows) == [{"name": "mixup", "alpha": 1.0}, {"name": "gaussian", "cap": [None, 1.0]}]
    assert rows_from_plain(rows_to_plain(rows)) == rows
    assert rows_from_plain({"name": "erm"}) == (("erm", ()),)


def test_plain_rows_build_a_method() -> None:
    rows = method_rows([("data_augmentation", ()), ("rcad", {"alpha": 1, "bounds": (0.0, 1.0)})])
    method = Method.from_dict({"methods": rows_to_plain(rows)})
    assert method == compose(METHODS["data_augmentation"](), METHODS["rcad"](alpha=1, bounds=(0.0, 1.0)))


def test_a_default_written_out_is_dropped() -> None:
    defaults = {"rcad": {"alpha": 0.5, "every": 1, "bounds": None}}
    rows = method_rows([("rcad", {"alpha": 0.5, "every": True, "bounds": None, "lam": 0.1}), ("erm", {"x": 1})])
    assert without_defaults(rows, defaults) == (("rcad", (("every", True), ("lam", 0.1))), ("erm", (("x", 1),)))


def test_label_and_names() -> None:
    assert rows_from_names("mixup + rcad") == (("mixup", ()), ("rcad", ()))
    assert label((("mixup", ()), ("rcad", (("alpha", 0.7),)))) == "mixup + rcad(alpha=0.7)"
    with pytest.raises(InputError, match=r"expected method\[1\].name"):
        rows_from_names("mixup+")
