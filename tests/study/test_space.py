"""Spaces: read, drawn, laid out; the one table of searches, and how a trial becomes a config."""

import pytest

from one_line import refusals
from rcad.loss.method_rows import SEARCHED, parse_method
from rcad.loss.methods import METHODS, method, method_defaults
from rcad.runs.configure import configure
from rcad.study import space as spaces
from rcad.study.space import Parameter, Values, parse_space

DEFAULTS = method_defaults()
TWO = parse_space("alpha=log(0.05, 2), lam=log(0.01, 1)")


def test_a_space_is_read_and_written() -> None:
    text = "alpha=log(0.05, 2), steps=int(1, 4), optim.lr=uniform(0.1, 1), norm=choice(l2, linf, 3)"
    space = parse_space(text)
    assert [one.key for one in space] == ["alpha", "steps", "optim.lr", "norm"]
    assert space[3].choices == ("l2", "linf", 3)
    assert ", ".join(map(str, space)) == text
    assert parse_space("a=log(1,2),b=int(1,2)") == parse_space(" a = log( 1 , 2 ) , b=int(1,2) ")


test_a_bad_space_is_one_line = refusals(
    ("alpha", "expected a space like alpha=log(0.05, 2)"),
    ("alpha=log(0.05)", "expected two numbers in alpha=log(...)"),
    ("alpha=auto(0, 1)", "expected alpha to go from a number above 0 to a larger one"),
    ("alpha=uniform(2, 1)", "expected alpha to go from a number to a larger one"),
    ("alpha=normal(0, 1)", "expected the kind of alpha to be one of"),
    ("steps=int(1.5, 4)", "expected whole ends for steps"),
    ("norm=choice()", "expected norm=choice(...) to name choices"),
    ("alpha=log(0.1, 1), alpha=log(0.1, 1)", "expected a space with each parameter once"),
    of=parse_space,
)


def test_shares_of_a_range_reach_both_ends() -> None:
    log, whole = parse_space("a=log(0.01, 1), k=int(2, 5)")
    assert [log.at(share) for share in (0.0, 0.5, 1.0)] == [0.01, 0.1, 1.0]
    values = [whole.at((k + 0.5) / 400) for k in range(400)]
    assert {value: values.count(value) for value in values} == {2: 100, 3: 100, 4: 100, 5: 100}
    assert whole.at(1.0) == 5


def test_draws_stay_inside_and_a_smaller_budget_is_the_beginning_of_a_larger_one() -> None:
    first = {"alpha": 0.5, "lam": 0.02}
    points = spaces.drawn(TWO, 200, first=first)
    assert (points[0], len(points)) == (first, 200)
    assert points[:8] == spaces.drawn(TWO, 8, first=first)
    assert all(0.05 <= point["alpha"] <= 2 and 0.01 <= point["lam"] <= 1 for point in points)
    assert all(float(f"{point['alpha']:.4g}") == point["alpha"] for point in points)
    assert sorted(point["k"] for point in spaces.drawn(parse_space("k=int(1, 3)"), 10)) == [1, 2, 3]  # no point twice


def test_a_grid_has_both_ends_and_fits_the_budget() -> None:
    points = spaces.grid(TWO, 20)
    assert len({tuple(point.values()) for point in points}) == len(points) == 16
    assert {point["alpha"] for point in points} >= {0.05, 2.0}
    assert len(spaces.grid(TWO, 25)) == 25
    assert len(spaces.grid(parse_space("k=int(1, 2), a=log(1, 2)"), 16)) == 8
    assert spaces.grid(parse_space("a=log(0.01, 1)"), 1) == [{"a": 0.1}]
    assert [p["n"] for p in spaces.grid(parse_space("n=choice(l2, linf)"), 3)] == ["l2", "linf"]


def test_auto_counts_in_distances() -> None:
    space = parse_space("alpha=auto(0.25, 4), lam=log(0.01, 1)")
    assert spaces.resolved(space, 2.0) == (Parameter("alpha", "log", 0.5, 8.0), space[1])
    assert spaces.resolved(space, None)[0] == Parameter("alpha", "log", 0.25, 4.0)


SPACE = parse_space("alpha=log(0.05, 2), steps=int(1, 3), norm=choice(l2, linf)")


def asked(count: int, at_a_time: int = 1) -> list[Values]:
    study = spaces.OptunaSearch(SPACE, {"alpha": 9.0}, side_by_side=at_a_time > 1)
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
        assert (point["steps"] in (1, 2, 3), point["norm"] in ("l2", "linf")) == (True, True)
        assert float(f"{point['alpha']:.4g}") == point["alpha"]


def test_every_method_has_a_search_that_it_can_take() -> None:
    assert set(spaces.SEARCHES) == set(METHODS) - {"gaussian", "bernoulli"}
    for name, own in spaces.SEARCHES.items():
        rows = parse_method(name)
        spaces.check_space(parse_space(own.space) if own.space else (), rows, DEFAULTS)
        for labels in (True, False):
            (row,) = spaces.started(rows, labels=labels, table=True)
            method(name, **{key: 1.0 if value == "auto" else value for key, value in row[1]})
    tables, images = (
        spaces.started(parse_method("adversarial_training"), labels=True, table=k)[0][1] for k in (True, False)
    )
    assert (tables, images) == ((("bounds", None),), ())  # tables have no pixels


def keys(method: object, *, fixed: tuple[str, ...] = ()) -> list[str]:
    config = configure("digits", method, leave=SEARCHED)
    return [one.key for one in spaces.default_space(config, images=False, fixed=fixed)]


def test_weight_decay_is_searched_for_every_method_and_what_the_user_set_for_none() -> None:
    for name in spaces.SEARCHES:
        assert keys(parse_method(name))[0] == "optim.weight_decay", name
    assert keys([("rcad", {"alpha": 0.7})]) == ["optim.weight_decay", "lam"]
    assert keys([("rcad", {"alpha": 0.7, "lam": 0.1})]) == ["optim.weight_decay"]
    assert keys(parse_method("rcad"), fixed=("optim.weight_decay",)) == ["alpha", "lam"]
    assert keys(parse_method("erm"), fixed=("optim.weight_decay",)) == []


def test_parts_of_a_method_keep_their_own_numbers() -> None:
    rows = parse_method("mixup + rcad")
    assert keys(rows) == ["optim.weight_decay", "mixup.alpha", "rcad.alpha", "rcad.lam"]
    assert keys(parse_method("data_augmentation + label_smoothing")) == ["optim.weight_decay", "eps"]
    values = {"mixup.alpha": 0.3, "rcad.alpha": 2.0, "norm": "linf", "optim.weight_decay": 0.3}
    config = spaces.applied(configure("digits", rows, leave=SEARCHED), values, DEFAULTS)
    assert config.method == (("mixup", (("alpha", 0.3),)), ("rcad", (("alpha", 2.0), ("norm", "linf"))))
    assert config.optim.weight_decay == 0.3


def test_the_beginning_is_where_the_config_stands() -> None:
    base = configure("digits", spaces.started(parse_method("rcad"), labels=True, table=False))
    space = parse_space("alpha=auto(0.25, 4), lam=log(0.01, 1), steps=int(1, 4), optim.weight_decay=log(0.001, 1)")
    point = spaces.beginning(base, space, DEFAULTS, 1.23456)
    assert point == {"alpha": 1.235, "lam": 0.1, "steps": 1, "optim.weight_decay": 0.01}
    both = configure("digits", parse_method("rcad + mixup"))
    assert spaces.beginning(both, parse_space("alpha=log(0.1, 1)"), DEFAULTS, None) == {"alpha": 1.0}


# Else the search would choose the luckiest rows to be judged by.
ALIKE = "expected a space whose trials share method, seed and validation split, but got '{}'; tune a parameter"
test_a_key_that_no_search_can_have_is_refused = refusals(
    *((key, ALIKE.format(key)) for key in ("seed", "method", "data.seed", "data.validation", "data.name")),
    *((key, "expected a parameter of rcad or a field") for key in ("eps", "optim.speed", "mixup.alpha", "rcad.")),
    of=lambda key: spaces.check_space((Parameter(key, "log", 0.1, 1.0),), parse_method("rcad"), DEFAULTS),
)
