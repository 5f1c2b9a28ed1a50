from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from one_line import one_line
from rcad.errors import InputError
from rcad.runs.config import RunConfig
from rcad.runs.configure import override
from rcad.runs.plain import to_plain

METHODS = {"data_augmentation": {"padding": 4}, "rcad": {"alpha": 0.5, "lam": 0.02, "bounds": None}}


@pytest.mark.parametrize(
    ("setting", "section", "key", "value"),
    [
        ("train.epochs=5", "train", "epochs", 5),
        (" train.epochs = 5 ", "train", "epochs", 5),
        ("train.deterministic=yes", "train", "deterministic", True),
        ("data.balanced=False", "data", "balanced", False),
        ("optim.lr=1e-3", "optim", "lr", 0.001),
        ("optim.clip=none", "optim", "clip", None),
        ("optim.clip=", "optim", "clip", None),
        ("optim.milestones=10,20", "optim", "milestones", (10, 20)),
        ("optim.milestones=[10, 20]", "optim", "milestones", (10, 20)),
        ("model.hidden=[]", "model", "hidden", ()),
        ("model.hidden=none", "model", "hidden", None),
        ("model.norm=none", "model", "norm", "none"),
        ("model.norm=", "model", "norm", None),
        ("data.target=none", "data", "target", None),
        ("data.name=a=b.csv", "data", "name", "a=b.csv"),
        ("data.target=1", "data", "target", "1"),
    ],
)
def test_text_becomes_the_declared_type(config: RunConfig, setting: str, section: str, key: str, value: Any) -> None:
    result = getattr(getattr(override(config, [setting]), section), key)
    assert result == value
    assert type(result) is type(value)


def test_nothing_else_changes(config: RunConfig) -> None:
    expected = to_plain(config)
    expected["train"]["epochs"] = 7
    expected["seed"] = 9
    assert to_plain(override(config, ["train.epochs=5", "seed=9", "train.epochs=7"])) == expected
    assert override(config, []) == config


@pytest.mark.parametrize(
    ("setting", "row", "parameters"),
    [
        ("method.alpha=0.7", "rcad", {"alpha": 0.7, "lam": 0.02}),
        ("method.padding=2", "data_augmentation", {"padding": 2}),
        ("method.bounds=0,1", "rcad", {"alpha": 0.5, "bounds": (0, 1), "lam": 0.02}),
        ("method.bounds=(0.0, 1.0)", "rcad", {"alpha": 0.5, "bounds": (0.0, 1.0), "lam": 0.02}),
        ("method.rcad.bounds=none", "rcad", {"alpha": 0.5, "bounds": None, "lam": 0.02}),
        ("method.rcad.lam=true", "rcad", {"alpha": 0.5, "lam": True}),
        ("method.lam=all", "rcad", {"alpha": 0.5, "lam": "all"}),
    ],
)
def test_parameters_go_to_the_method_that_has_them(
    config: RunConfig, setting: str, row: str, parameters: dict[str, Any]
) -> None:
    method = dict(override(config, [setting], methods=METHODS).method)
    assert dict(method[row]) == parameters


def test_method_as_a_whole_and_without_the_table(config: RunConfig) -> None:
    assert dict(override(config, ["method.steps=3"]).method[-1][1])["steps"] == 3  # a new one goes to the last row
    assert override(config, ["method=mixup + rcad", "method.mixup.alpha=2"]).method == (
        ("mixup", (("alpha", 2),)),
        ("rcad", (("alpha", "auto"), ("lam", "auto"))),
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.epochs", "expected a setting like train.epochs=5, but got 'train.epochs'; write key=value"),
        ("=5", "expected a setting like train.epochs=5, but got '=5'"),
        ("train.epoch=5", "but got 'train.epoch'; did you mean 'train.epochs'?"),
        ("epochs=5", "but got 'epochs'; did you mean 'train.epochs'?"),
        ("optim.learning_rate=1", "but got 'optim.learning_rate'; known: optim.name, optim.lr, "),
        ("optm.name=sgd", "but got 'optm.name'; did you mean 'optim.name'?"),
        ("zzz=1", "but got 'zzz'; known: seed, method, data.name"),
        ("train.epochs=five", "expected train.epochs to be a whole number, but got 'five'"),
        ("train.epochs=5.0", "expected train.epochs to be a whole number, but got '5.0'"),
        ("train.epochs=none", "expected train.epochs to be a whole number, but got 'none'"),
        ("train.epochs=", "expected train.epochs to be a whole number, but got ''"),
        ("train.deterministic=maybe", "expected train.deterministic to be true or false, but got 'maybe'"),
        ("optim.lr=fast", "expected optim.lr to be a finite number, but got 'fast'"),
        ("optim.milestones=10,x", "expected optim.milestones[1] to be a whole number"),
        ("data.validation=0", "expected data.validation > 0 to select the best epoch"),
        ("seed=x", "expected seed to be a whole number >= 0, but got 'x'"),
        ("method=", "expected a method like rcad, mixup + rcad or rcad(alpha=1.0, lam=0.1), but got ''"),
        ("method.alhpa=1", "but got 'method.alhpa'; did you mean 'alpha'?"),
        ("method.mixup.alpha=1", "expected a method of the config, but got 'mixup'"),
        ("method.=1", "but got 'method.'"),
    ],
)
def test_bad_settings_are_named(config: RunConfig, setting: str, message: str) -> None:
    with one_line(message):
        override(config, [setting], methods=METHODS)


def test_a_parameter_that_cannot_be(config: RunConfig) -> None:
    with pytest.raises(InputError, match=r"but got 'method\.alpha'; there is none$"):
        override(replace(config, method=(("erm", ()),)), ["method.alpha=1"], methods={"erm": {}})
    for key in ("method.name", "method.a b"):
        with pytest.raises(InputError, match=r"expected a parameter like method\.alpha"):
            override(config, [f"{key}=1"])
