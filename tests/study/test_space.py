"""Spaces: read, drawn, laid out."""

from __future__ import annotations

import sys

import pytest

from rcad.errors import InputError, MissingExtraError
from rcad.study.space import OptunaSearch, Parameter, Values, drawn, grid, parse_space, resolved

TWO = parse_space("alpha=log(0.05, 2), lam=log(0.01, 1)")


def test_a_space_is_read_and_written() -> None:
    text = "alpha=log(0.05, 2), steps=int(1, 4), optim.lr=uniform(0.1, 1), norm=choice(l2, linf, 3)"
    space = parse_space(text)
    assert [one.key for one in space] == ["alpha", "steps", "optim.lr", "norm"]
    assert space[3].choices == ("l2", "linf", 3)
    assert ", ".join(map(str, space)) == text
    assert parse_space("a=log(1,2),b=int(1,2)") == parse_space(" a = log( 1 , 2 ) , b=int(1,2) ")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "alpha",
        "alpha=log(0.05)",
        "alpha=log(0, 1)",
        "alpha=auto(0, 1)",
        "alpha=uniform(2, 1)",
        "alpha=uniform(0, inf)",
        "alpha=normal(0, 1)",
        "steps=int(1.5, 4)",
        "norm=choice()",
        "alpha=log(a, b)",
        "alpha=log(0.1, 1), alpha=log(0.1, 1)",
        "alpha=log(0.1, 1) lam=log(0.1, 1)",
    ],
)
def test_a_bad_space_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"^expected [^\n]*$"):
        parse_space(text)


def test_shares_of_a_range_reach_both_ends() -> None:
    log, whole = parse_space("a=log(0.01, 1), k=int(2, 5)")
    assert [log.at(share) for share in (0.0, 0.5, 1.0)] == [0.01, 0.1, 1.0]
    values = [whole.at((k + 0.5) / 400) for k in range(400)]
    assert {value: values.count(value) for value in values} == {2: 100, 3: 100, 4: 100, 5: 100}
    assert whole.at(1.0) == 5


def test_draws_stay_inside_and_a_smaller_budget_is_the_beginning_of_a_larger_one() -> None:
    first = {"alpha": 0.5, "lam": 0.02}
    points = drawn(TWO, 200, first=first)
    assert (points[0], len(points)) == (first, 200)
    assert points[:8] == drawn(TWO, 8, first=first)
    for point in points:
        assert 0.05 <= point["alpha"] <= 2
        assert 0.01 <= point["lam"] <= 1
        assert float(f"{point['alpha']:.4g}") == point["alpha"]
    assert sorted(point["k"] for point in drawn(parse_space("k=int(1, 3)"), 10)) == [1, 2, 3]  # no point twice


def test_a_grid_has_both_ends_and_fits_the_budget() -> None:
    points = grid(TWO, 20)
    assert len(points) == 16
    assert {point["alpha"] for point in points} >= {0.05, 2.0}
    assert len({tuple(point.values()) for point in points}) == 16
    assert len(grid(TWO, 25)) == 25
    assert len(grid(parse_space("k=int(1, 2), a=log(1, 2)"), 16)) == 8
    assert grid(parse_space("a=log(0.01, 1)"), 1) == [{"a": 0.1}]
    assert [p["n"] for p in grid(parse_space("n=choice(l2, linf)"), 3)] == ["l2", "linf"]


def test_auto_counts_in_distances() -> None:
    space = parse_space("alpha=auto(0.25, 4), lam=log(0.01, 1)")
    assert resolved(space, 2.0) == (Parameter("alpha", "log", 0.5, 8.0), space[1])
    assert resolved(space, None)[0] == Parameter("alpha", "log", 0.25, 4.0)


def test_the_budget_is_at_least_one() -> None:
    for make in (drawn, grid):
        with pytest.raises(InputError, match="expected the budget"):
            make(TWO, 0)


SPACE = parse_space("alpha=log(0.05, 2), steps=int(1, 3), norm=choice(l2, linf)")


def asked(count: int, at_a_time: int = 1) -> list[Values]:
    study = OptunaSearch(SPACE, {"alpha": 9.0}, side_by_side=at_a_time > 1)
    found: list[Values] = []
    while len(found) < count:
        points = [study.ask() for _ in range(at_a_time)]
        for k, point in enumerate(points, len(found)):
            study.tell(None if k == 2 else -abs(point["alpha"] - 0.5))
        found += points
    return found


@pytest.mark.parametrize("at_a_time", [1, 4])
def test_it_stays_in_the_space_and_repeats_itself(at_a_time: int) -> None:
    pytest.importorskip("optuna")
    points = asked(16, at_a_time)
    assert points == asked(16, at_a_time)
    assert points[0] == {"alpha": 9.0}
    assert len({tuple(point.items()) for point in points}) == 16
    for point in points[1:]:
        assert 0.05 <= point["alpha"] <= 2
        assert point["steps"] in (1, 2, 3)
        assert point["norm"] in ("l2", "linf")
        assert float(f"{point['alpha']:.4g}") == point["alpha"]


def test_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"'\.\[tune\]'"):
        OptunaSearch(SPACE, None)
