"""Methods as values: printing, saving, composing, conflicts."""

from __future__ import annotations

import importlib
import itertools
import json

import pytest

from rcad import METHODS, Categorical, InputError, Method, compose, method, methods
from rcad.loss.method import SLOTS

PAIRS = list(itertools.combinations(sorted(METHODS), 2))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_prints_compares_hashes_and_saves_itself(name: str) -> None:
    value = METHODS[name]()
    assert value == METHODS[name]()
    assert hash(value) == hash(METHODS[name]())
    assert eval(repr(value), vars(methods)) == value
    plain = json.loads(json.dumps(value.to_dict()))
    assert Method.from_dict(plain) == value
    assert Method.parse(str(value)) == Method.parse(name) == value
    assert value.name == name


def test_a_method_is_a_table_of_its_parts_in_a_notebook() -> None:
    shown = compose(methods.mixup(alpha=0.3), methods.rcad(alpha=1.0, lam=0.1))._repr_html_()
    assert shown.startswith(
        "<table><tr><th>mixup</th><td>alpha = 0.3</td></tr><tr><th>rcad</th><td>alpha = 1.0, lam = "
    )
    assert "norm = &#x27;l2&#x27;" in shown
    assert "<td>no parameters</td>" in methods.erm()._repr_html_()


def test_parameters_are_part_of_the_value() -> None:
    assert methods.rcad(0.5) != methods.rcad(1.0)
    assert methods.rcad(alpha="auto", lam="auto") == methods.rcad() != methods.rcad("auto", 0.1)
    assert method("rcad", alpha=1.0, lam=0.1) == methods.rcad(1.0, 0.1)
    assert repr(methods.rcad_text(1.0, 0.1)) == "rcad_text(alpha=1.0, lam=0.1, direction='plain')"


def test_the_methods_are_one_module_under_both_names() -> None:
    module = importlib.import_module("rcad.methods")
    assert module is methods is importlib.import_module("rcad.loss.methods")
    assert sorted(module.__all__) == sorted([*METHODS, "METHODS", "Method", "compose", "method"])
    assert all(getattr(module, name) is METHODS[name] for name in METHODS)


REGRESSION = {"gaussian", "bernoulli"}


def conflict(first: str, second: str) -> bool:
    """Whether two methods fill one slot, re-derived from their fields."""
    one, two = METHODS[first](), METHODS[second]()
    fields = any(None not in (getattr(one, slot), getattr(two, slot)) for slot in SLOTS)
    steps = {step.slot for step in one.augment} & {step.slot for step in two.augment}
    terms = {term.name for term in one.extra} & {term.name for term in two.extra}
    return fields or bool(steps or terms) or ("ls_on_adv" in (first, second) and bool({first, second} & REGRESSION))


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[" + ".join(pair) for pair in PAIRS])
def test_every_pair_composes_or_says_why_not(first: str, second: str) -> None:
    one, two = METHODS[first](), METHODS[second]()
    if conflict(first, second):
        with pytest.raises(InputError) as error:
            compose(one, two)
        assert "expected" in str(error.value)
        return
    both = compose(one, two)
    assert set(both.terms) >= set(one.extra) | set(two.extra)
    assert len(both.augment) == len(one.augment) + len(two.augment)
    assert {both.growth, both.likelihood} >= {v for v in (one.growth, two.growth, one.likelihood, two.likelihood) if v}
    assert Method.from_dict(both.to_dict()) == both
    assert both.criterion().asked.terms == both.terms


def test_mixup_smoothing_and_rcad_together() -> None:
    value = compose(methods.mixup(), methods.label_smoothing(0.2), methods.rcad(1.0, 0.1))
    assert value.name == "mixup + label_smoothing + rcad"
    assert value.likelihood == Categorical(smoothing=0.2)
    assert [term.name for term in value.terms] == ["nll", "rcad"]
    assert [step.slot for step in value.augment] == ["mix"]


def test_augmentations_stand_in_a_sensible_order() -> None:
    value = compose(methods.mixup(), methods.cutout(), methods.data_augmentation())
    assert [step.slot for step in value.augment] == ["crop", "flip", "cutout", "mix"]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: compose(methods.label_smoothing(), methods.gaussian()),
            "expected one method to set the likelihood, but got 'label_smoothing' and 'gaussian'",
        ),
        (
            lambda: compose(methods.erm(), methods.mixup(), methods.rcad(), methods.cutmix()),
            "expected one method to set the mix augmentation, but got 'mixup' and 'cutmix'",
        ),
        (
            lambda: compose(methods.adversarial_training(), methods.rcad_released()),
            "expected one method to set the clean loss, but got 'adversarial_training' and 'rcad_released'",
        ),
        (lambda: compose(methods.ada(), methods.me_ada()), "growth of the training set, but got 'ada' and 'me_ada'"),
        (lambda: compose(methods.rcad(), methods.rcad(1.0)), "distinct names, but got 'rcad' twice"),
        (
            lambda: compose(compose(methods.rcad(), methods.mixup()), compose(methods.erm(), methods.cutmix())),
            "expected one method to set the mix augmentation, but got 'mixup' and 'cutmix'",
        ),
        (
            lambda: compose(methods.ls_on_adv(), methods.gaussian()),
            "expected one method to set the likelihood, but got 'gaussian' and 'ls_on_adv'",
        ),
        (lambda: compose(), "at least one method"),
        (lambda: method("rcda"), "but got 'rcda'; did you mean 'rcad'?"),
        (lambda: method("rcad", alfa=1.0), "expected a parameter of rcad to be one of alpha, lam"),
        (lambda: method("rcad", alpha=-1), "expected alpha to be a finite number >= 0, but got -1"),
        (lambda: method("rcad", alpha="big"), "expected alpha to be a finite number >= 0, but got 'big'"),
        (lambda: Method.from_dict({}), "a list under 'methods'"),
        (lambda: Method.from_dict({"methods": []}), "a list under 'methods'"),
        (lambda: Method.from_dict({"methods": [{"alpha": 1.0}]}), "expected method to be one of"),
    ],
)
def test_conflicts_and_wrong_names_are_named(make, says: str) -> None:
    with pytest.raises(InputError) as error:
        make()
    assert says in str(error.value)
