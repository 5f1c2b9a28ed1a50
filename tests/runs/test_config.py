from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from one_line import one_line
from rcad.errors import InputError
from rcad.runs.config import SECTIONS, OptimConfig, RunConfig, Section, TrainConfig

GOOD: dict[str, dict[str, Any]] = {
    "data": {"name": "digits"},
    "model": {},
    "optim": {"lr": 0.1},
    "train": {"epochs": 10, "batch_size": 32},
}


def build(**changes: Any) -> RunConfig:
    """A small config; `optim={"lr": 1}` changes fields of a section, other keys the config's own."""
    parts = {
        name: section(**{**GOOD[name], **changes.pop(name, {})})  # type: ignore[arg-type]
        for name, section in SECTIONS.items()
    }
    return RunConfig(**{"method": (("erm", ()),), **parts, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"name": ""}}, "expected data.name to be a text, but got ''"),
        ({"data": {"name": 3}}, "expected data.name to be a text, but got 3"),
        ({"data": {"name": "a\udcff"}}, "expected data.name to be valid Unicode"),
        ({"data": {"target": " "}}, "expected data.target to be a text, but got ' '"),
        ({"data": {"task": "regresion"}}, "but got 'regresion'; did you mean 'regression'?"),
        ({"data": {"balanced": 1}}, "expected data.balanced to be true or false, but got 1"),
        ({"data": {"validation": 1.0}}, "expected data.validation to be a number in [0, 1), but got 1.0"),
        ({"data": {"validation": float("nan")}}, "expected data.validation to be a finite number, but got nan"),
        ({"data": {"split": -1}}, "expected data.split to be a whole number >= 0, but got -1"),
        ({"data": {"seed": -1}}, "expected data.seed to be a whole number >= 0, but got -1"),
        ({"data": {"test_fraction": 1}}, "expected data.test_fraction to be a number in [0, 1), but got 1.0"),
        ({"data": {"size": 0}}, "expected data.size to be a whole number >= 1, but got 0"),
        ({"model": {"norm": "batchnorm"}}, "expected model.norm to be one of batch, group, none"),
        ({"model": {"width": 1.5}}, "expected model.width to be a whole number (or none), but got 1.5"),
        (
            {"model": {"hidden": 64}},
            "expected model.hidden to be a list, each item a whole number (or none), but got 64",
        ),
        ({"model": {"hidden": [64, "x"]}}, "expected model.hidden[1] to be a whole number, but got 'x'"),
        ({"model": {"hidden": [64, 0]}}, "expected model.hidden to be a whole number >= 1, but got 0"),
        ({"model": {"dropout": 1}}, "expected model.dropout to be a number in [0, 1), but got 1.0"),
        ({"optim": {"name": "adam"}}, "but got 'adam'; did you mean 'adamw'?"),
        ({"optim": {"lr": 0}}, "expected optim.lr to be a finite number > 0, but got 0.0"),
        ({"optim": {"lr": "0.1"}}, "expected optim.lr to be a finite number, but got '0.1'"),
        ({"optim": {"lr": True}}, "expected optim.lr to be a finite number, but got True"),
        ({"optim": {"lr": 10**400}}, "expected optim.lr to be a finite number, but got 1000"),
        ({"optim": {"momentum": -0.1}}, "expected optim.momentum to be a number in [0, 1)"),
        ({"optim": {"momentum": 0}}, "expected optim.momentum > 0 with Nesterov, but got 0.0; set optim.nesterov"),
        ({"optim": {"weight_decay": -1}}, "expected optim.weight_decay to be a finite number >= 0, but got -1.0"),
        ({"optim": {"clip": 0}}, "expected optim.clip to be a finite number > 0, but got 0.0"),
        ({"optim": {"schedule": "multistep"}}, "expected optim.milestones for the multistep schedule, but got none"),
        ({"optim": {"milestones": [20, 10]}}, "expected optim.milestones to be ascending epochs, but got [20, 10]"),
        ({"optim": {"milestones": [10, 10]}}, "expected optim.milestones to be ascending epochs, but got [10, 10]"),
        ({"optim": {"gamma": None}}, "expected optim.gamma to be a finite number, but got None"),
        ({"optim": {"warmup": 10}}, "expected optim.warmup to be less than train.epochs (10), but got 10"),
        ({"train": {"epochs": 0}}, "expected train.epochs to be a whole number >= 1, but got 0"),
        ({"train": {"epochs": 0, "selection": "last"}}, "expected train.epochs to be a whole number >= 1, but got 0"),
        ({"train": {"epochs": 0}, "model": {"weights": "a.pt"}}, "train.epochs to be a whole number >= 1, but got 0"),
        ({"train": {"epochs": True}}, "expected train.epochs to be a whole number, but got True"),
        ({"train": {"precision": "fp16"}}, "but got 'fp16'; did you mean 'bf16'?"),
        ({"train": {"ema": 0.0}}, "expected train.ema to be a finite number > 0, but got 0.0"),
        ({"train": {"patience": 0}}, "expected train.patience to be a whole number >= 1, but got 0"),
        ({"data": {"validation": 0}}, "expected data.validation > 0 to select the best epoch, but got 0.0; hold some"),
        (
            {"data": {"validation": 0}, "train": {"selection": "last", "patience": 3}},
            "expected data.validation > 0 for train.patience, but got 0.0",
        ),
        ({"seed": -1}, "expected seed to be a whole number >= 0, but got -1"),
        ({"seed": 2**63}, "expected seed to be at most 9223372036854775807"),
        ({"seed": "1"}, "expected seed to be a whole number >= 0, but got '1'"),
        ({"method": ()}, "expected method to be a list of at least one row, but got ()"),
        ({"method": "rcad"}, "expected method to be a list of at least one row, but got 'rcad'"),
    ],
)
def test_bad_values_are_named(changes: dict[str, Any], message: str) -> None:
    with one_line(message):
        build(**changes)


def test_sections_must_be_sections() -> None:
    with pytest.raises(InputError, match="expected optim to be a OptimConfig, but got"):
        replace(build(), optim={"lr": 0.1})


def test_is_a_frozen_value_that_prints_what_was_chosen() -> None:
    config = build(optim={"lr": 1})
    assert config == build(optim={"lr": 1.0})
    assert hash(config) == hash(build(optim={"lr": 1.0}))
    assert repr(config.optim) == "OptimConfig(lr=1.0)"
    with pytest.raises(FrozenInstanceError):
        config.seed = 1  # type: ignore[misc]


def test_numbers_take_the_declared_type() -> None:
    optim = OptimConfig(lr=1, milestones=[10, 20], clip=-0.0 + 1, weight_decay=-0.0)  # type: ignore[arg-type]
    assert type(optim.lr) is float
    assert optim.milestones == (10, 20)
    assert str(optim.weight_decay) == "0.0"
    assert TrainConfig(epochs=2, batch_size=4, ema=None).ema is None


def test_milestones_past_the_end_and_no_validation_with_the_last_epoch_are_allowed() -> None:
    optim = {"schedule": "multistep", "milestones": (100, 150)}
    config = build(optim=optim, data={"validation": 0}, train={"epochs": 2, "selection": "last"})
    assert (config.optim.milestones, config.data.validation) == ((100, 150), 0.0)


@pytest.mark.parametrize("section", SECTIONS.values())
def test_optional_fields_default_to_none(section: type[Section]) -> None:
    """A TOML file leaves None out, so left out must mean None."""
    assert all(field.default is None for field in fields(section) if section.kinds[field.name].optional)  # type: ignore[arg-type]


def test_weights_may_be_measured_as_they_are() -> None:
    assert build(train={"epochs": 0, "selection": "last"}, model={"weights": "a.pt"}).train.epochs == 0
