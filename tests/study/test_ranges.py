"""The one table of searches, and how a trial becomes a config."""

from __future__ import annotations

import pytest

from rcad.errors import InputError
from rcad.loss.method_rows import SEARCHED, parse_method
from rcad.loss.methods import METHODS, method, method_defaults
from rcad.runs.configure import configure
from rcad.study.ranges import SEARCHES, applied, beginning, check_space, default_space, started
from rcad.study.space import Parameter, parse_space

DEFAULTS = method_defaults()


def test_every_method_has_a_search_that_it_can_take() -> None:
    assert set(SEARCHES) == set(METHODS) - {"gaussian", "bernoulli"}
    for name, own in SEARCHES.items():
        rows = parse_method(name)
        check_space(parse_space(own.space) if own.space else (), rows, DEFAULTS)
        for labels in (True, False):
            (row,) = started(rows, labels=labels, table=True)
            values = {key: 1.0 if value == "auto" else value for key, value in row[1]}
            method(name, **values)


def keys(method: object, *, images: bool = False, fixed: tuple[str, ...] = (), data: str = "digits") -> list[str]:
    config = configure(data, method, leave=SEARCHED)
    return [one.key for one in default_space(config, images=images, fixed=fixed)]


def test_weight_decay_is_searched_for_every_method_and_what_the_user_set_for_none() -> None:
    for name in SEARCHES:
        assert keys(parse_method(name))[0] == "optim.weight_decay", name
    assert keys([("rcad", {"alpha": 0.7})]) == ["optim.weight_decay", "lam"]
    assert keys([("rcad", {"alpha": 0.7, "lam": 0.1})]) == ["optim.weight_decay"]
    assert keys(parse_method("rcad"), fixed=("optim.weight_decay",)) == ["alpha", "lam"]
    assert keys(parse_method("erm"), fixed=("optim.weight_decay",)) == []


def test_parts_of_a_method_keep_their_own_numbers() -> None:
    rows = parse_method("mixup + rcad")
    assert keys(rows) == ["optim.weight_decay", "mixup.alpha", "rcad.alpha", "rcad.lam"]
    assert keys(parse_method("data_augmentation + label_smoothing")) == ["optim.weight_decay", "eps"]
    config = applied(configure("digits", rows, leave=SEARCHED), {"mixup.alpha": 0.3, "rcad.alpha": 2.0}, DEFAULTS)
    assert config.method == (("mixup", (("alpha", 0.3),)), ("rcad", (("alpha", 2.0),)))


def test_on_images_the_ranges_reach_what_was_best_on_cifar_100() -> None:
    """Weight decay 1e-3 to 3e-3 by SGD, alpha 30 where half the distance is about 4, lam 3."""
    images, tables = (configure(data, parse_method("rcad"), leave=SEARCHED) for data in ("cifar100[:2000]", "d.csv"))
    decay, alpha, lam = default_space(images, images=True)
    assert decay.low <= 5e-4 < 5e-3 <= decay.high
    assert alpha.high * 4 >= 60
    assert (lam.high, default_space(tables, images=False)[2].high) == (10, 1)


def test_tables_have_no_pixels() -> None:
    (row,) = started(parse_method("adversarial_training"), labels=True, table=True)
    assert row == ("adversarial_training", (("bounds", None),))
    assert started(parse_method("adversarial_training"), labels=True, table=False)[0][1] == ()


def test_a_trial_sets_parameters_and_fields() -> None:
    base = configure("digits", parse_method("rcad"), leave=SEARCHED)
    config = applied(base, {"alpha": 0.25, "norm": "linf", "optim.weight_decay": 0.3}, DEFAULTS)
    assert config.method == (("rcad", (("alpha", 0.25), ("norm", "linf"))),)
    assert config.optim.weight_decay == 0.3
    assert config.train == base.train


def test_the_beginning_is_where_the_config_stands() -> None:
    base = configure("digits", started(parse_method("rcad"), labels=True, table=False))
    space = parse_space("alpha=auto(0.25, 4), lam=log(0.01, 1), steps=int(1, 4), optim.weight_decay=log(0.001, 1)")
    point = beginning(base, space, DEFAULTS, 1.23456)
    assert point == {"alpha": 1.235, "lam": 0.1, "steps": 1, "optim.weight_decay": 0.01}
    both = configure("digits", parse_method("rcad + mixup"))
    assert beginning(both, parse_space("alpha=log(0.1, 1)"), DEFAULTS, None) == {"alpha": 1.0}


@pytest.mark.parametrize("key", ["seed", "method", "data.seed", "data.validation", "data.name"])
def test_trials_are_judged_alike(key: str) -> None:
    """Else the search would choose the luckiest rows to be judged by."""
    said = f"^expected a space whose trials share method, seed and validation split, but got '{key}'; tune a parameter"
    with pytest.raises(InputError, match=said):
        check_space(parse_space(f"{key}=choice(1, 2)"), parse_method("rcad"), DEFAULTS)
    check_space(parse_space("data.size=choice(8, 16)"), parse_method("rcad"), DEFAULTS)


@pytest.mark.parametrize("key", ["eps", "optim.speed", "mixup.alpha", "rcad.", "alphas"])
def test_an_unknown_key_is_refused(key: str) -> None:
    with pytest.raises(InputError, match=r"^expected a parameter of rcad \(alpha, lam"):
        check_space((Parameter(key, "log", 0.1, 1.0),), parse_method("rcad"), DEFAULTS)
