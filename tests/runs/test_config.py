"""Configs: their values, as plain data and TOML, their ids; settings and recipes."""

import functools
import json
import operator
from dataclasses import FrozenInstanceError, fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from one_line import fails_in_one_line, refusals
from rcad.runs.config import SECTIONS, OptimConfig, RunConfig
from rcad.runs.configure import configure, override
from rcad.runs.plain import config_id, from_plain, from_toml, load_config, to_plain, to_toml
from rcad.runs.recipes import RECIPES
from rcad.train.one_gpu import can_join, can_share
from runs.conftest import CONFIG

GOOD = {"data": {"name": "digits"}, "model": {}, "optim": {"lr": 0.1}, "train": {"epochs": 10, "batch_size": 32}}


def build(**changes):
    """A small config; `optim={"lr": 1}` changes fields of a section, other keys the config's own."""
    parts = {name: section(**{**GOOD[name], **changes.pop(name, {})}) for name, section in SECTIONS.items()}
    return RunConfig(**{"method": (("erm", ()),), **parts, **changes})


test_bad_values_are_named = refusals(
    ({"data": {"name": ""}}, "expected data.name to be a text, but got ''"),
    ({"data": {"name": "a\udcff"}}, "expected data.name to be valid Unicode"),
    ({"data": {"task": "regresion"}}, "but got 'regresion'; did you mean 'regression'?"),
    ({"data": {"balanced": 1}}, "expected data.balanced to be true or false, but got 1"),
    ({"data": {"validation": 1.0}}, "expected data.validation to be a number in [0, 1), but got 1.0"),
    ({"data": {"validation": float("nan")}}, "expected data.validation to be a finite number, but got nan"),
    ({"model": {"norm": "batchnorm"}}, "expected model.norm to be one of batch, group, none"),
    ({"model": {"hidden": [64, 0]}}, "expected model.hidden to be a whole number >= 1, but got 0"),
    ({"optim": {"name": "adam"}}, "but got 'adam'; did you mean 'adamw'?"),
    ({"optim": {"lr": 0}}, "expected optim.lr to be a finite number > 0, but got 0.0"),
    ({"optim": {"lr": 10**400}}, "expected optim.lr to be a finite number, but got 1000"),
    ({"optim": {"momentum": 0}}, "expected optim.momentum > 0 with Nesterov, but got 0.0; set optim.nesterov"),
    ({"optim": {"schedule": "multistep"}}, "expected optim.milestones for the multistep schedule, but got none"),
    ({"optim": {"milestones": [20, 10]}}, "expected optim.milestones to be ascending epochs, but got [20, 10]"),
    ({"optim": {"warmup": 10}}, "expected optim.warmup to be less than train.epochs (10), but got 10"),
    ({"train": {"epochs": True}}, "expected train.epochs to be a whole number, but got True"),
    ({"data": {"validation": 0}}, "expected data.validation > 0 to select the best epoch, but got 0.0; hold some"),
    ({"data": {"validation": 0}, "train": {"selection": "last", "patience": 3}}, "validation > 0 for train.patience"),
    ({"seed": -1}, "expected seed to be a whole number >= 0, but got -1"),
    ({"seed": 2**63}, "expected seed to be at most 9223372036854775807"),
    ({"method": ()}, "expected method to be a list of at least one row, but got ()"),
    of=lambda changes: build(**changes),
)


def test_is_a_frozen_value_that_prints_what_was_chosen():
    config = build(optim={"lr": 1})
    assert config == build(optim={"lr": 1.0})
    assert hash(config) == hash(build(optim={"lr": 1.0}))
    assert repr(config.optim) == "OptimConfig(lr=1.0)"
    optim = OptimConfig(lr=1, milestones=[10, 20], weight_decay=-0.0)
    assert (optim.milestones, str(optim.weight_decay)) == ((10, 20), "0.0")
    with pytest.raises(FrozenInstanceError):
        config.seed = 1
    with fails_in_one_line("expected optim to be a OptimConfig, but got"):
        replace(config, optim={"lr": 0.1})


def test_what_is_allowed_together():
    late = {"schedule": "multistep", "milestones": (100, 150)}
    assert build(optim=late, data={"validation": 0}, train={"epochs": 2, "selection": "last"})
    assert build(train={"epochs": 0, "selection": "last"}, model={"weights": "a.pt"})
    for section in SECTIONS.values():  # a TOML file leaves None out, so left out must mean None
        assert all(field.default is None for field in fields(section) if section.kinds[field.name].optional)


def edited(*path, value):
    """The plain form of a good config with one entry changed."""
    plain, (*sections, key) = to_plain(build(method=(("rcad", (("alpha", 0.5),)),))), path
    functools.reduce(dict.get, sections, plain)[key] = value
    return plain


test_bad_plain_data_is_named_with_its_file = refusals(
    ([], "in my.toml: expected a config to be a table of sections, but got []"),
    (edited("trian", value={}), "expected a key of a config, but got 'trian'; did you mean 'train'?"),
    (edited("train", "epoch", value=5), "but got 'train.epoch'; did you mean 'train.epochs'?"),
    (edited("train", value=5), "expected train to be a section with epochs, batch_size"),
    (edited("train", value={"epochs": 5}), "expected train.batch_size to be given, but it is missing; add it"),
    (edited("recipe", value="papr"), "expected recipe to be one of paper"),
    of=lambda plain: from_plain(plain, source="my.toml"),
)


def test_a_recipe_fills_what_is_not_given():
    plain = {"recipe": "paper", "data": {"name": "cifar10"}, "method": {"name": "rcad"}, "optim": {"clip": "none"}}
    expected = RECIPES["paper"].config("cifar10", [("rcad", ())])
    assert from_plain(plain) == replace(expected, optim=replace(expected.optim, clip=None))


TEXTS = st.text(min_size=1).filter(lambda text: bool(text.strip()))
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name != "name")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
FRACTIONS = st.floats(0, 1, exclude_min=True, exclude_max=True)
KINDS = {bool: st.booleans(), int: st.integers(1, 10**6), float: FRACTIONS, str: TEXTS}
FIXED = {"optim": {"warmup": st.just(0), "schedule": st.sampled_from(["cosine", "constant"])}}


def drawn(kind):
    """Numbers above 0, fractions below 1, lists in order."""
    one = st.sampled_from(kind.choices) if kind.choices else KINDS[kind.base]
    one = st.sets(one, max_size=3).map(sorted) if kind.many else one
    return st.none() | one if kind.optional else one


configs = st.builds(
    RunConfig,
    method=st.lists(st.tuples(TEXTS, st.dictionaries(NAMES, VALUES, max_size=4)), min_size=1, max_size=3),
    seed=st.integers(0, 2**63 - 1),
    **{
        title: st.builds(section, **{name: drawn(kind) for name, kind in section.kinds.items()} | FIXED.get(title, {}))
        for title, section in SECTIONS.items()
    },
)


@settings(max_examples=25, deadline=None)
@given(configs)
def test_every_config_goes_both_ways(config):
    read = from_toml(to_toml(config))
    assert read == config
    assert config_id(read) == config_id(config)
    assert from_plain(json.loads(json.dumps(to_plain(config)))) == config


def test_bad_files_are_named(tmp_path):
    for content, says in {
        b"": "expected data to be given, but it is missing",
        b"seed = 1\nx = = 2\n": "to be valid TOML, but got: Invalid value (at line 2, column 5); correct that line",
        b'name = "\xff"\n': "to be UTF-8 text, but got the byte 0xff at position 8; save it as UTF-8",
        b"x = " + b"[" * 5000: "nested too deeply",
    }.items():
        (tmp_path / "my.toml").write_bytes(content)
        with fails_in_one_line(says, str(tmp_path / "my.toml")):
            load_config(tmp_path / "my.toml")
    with fails_in_one_line("no.toml to be a readable file, but got: No such file"):
        load_config(tmp_path / "no.toml")


METHODS = {"data_augmentation": {"padding": 4}, "rcad": {"alpha": 0.5, "lam": 0.02, "bounds": None}}


def test_text_becomes_the_declared_type():
    for setting, value in {
        "train.deterministic=yes": True,
        "optim.clip=none": None,
        "optim.milestones=10,20": (10, 20),
        "model.hidden=[]": (),
        "model.norm=": None,
        "data.name=a=b.csv": "a=b.csv",
        "data.target=1": "1",
    }.items():
        result = operator.attrgetter(setting.partition("=")[0])(override(CONFIG, [setting]))
        assert (result, type(result)) == (value, type(value))


def test_parameters_go_to_the_method_that_has_them():
    for setting, parameters in {
        "method.alpha=0.7": {"alpha": 0.7},
        "method.bounds=0,1": {"bounds": (0, 1)},
        "method.bounds=(0.0, 1.0)": {"bounds": (0.0, 1.0)},
        "method.rcad.bounds=none": {"bounds": None},
        "method.lam=all": {"lam": "all"},
    }.items():
        method = dict(override(CONFIG, [setting], methods=METHODS).method)
        assert dict(method["rcad"]) == {"alpha": 0.5, "lam": 0.02} | parameters


def test_method_as_a_whole_and_without_the_table():
    assert dict(override(CONFIG, ["method.steps=3"]).method[-1][1])["steps"] == 3  # a new one goes to the last row
    rows = override(CONFIG, ["method=mixup + rcad", "method.mixup.alpha=2"]).method
    assert rows == (("mixup", (("alpha", 2),)), ("rcad", (("alpha", "auto"), ("lam", "auto"))))


test_bad_settings_are_named = refusals(
    ("train.epochs", "expected a setting like train.epochs=5, but got 'train.epochs'; write key=value"),
    ("optim.learning_rate=1", "but got 'optim.learning_rate'; known: optim.name, optim.lr, "),
    ("train.epochs=five", "expected train.epochs to be a whole number, but got 'five'"),
    ("optim.milestones=10,x", "expected optim.milestones[1] to be a whole number"),
    ("seed=x", "expected seed to be a whole number >= 0, but got 'x'"),
    ("method=", "expected a method like rcad, mixup + rcad or rcad(alpha=1.0, lam=0.1), but got ''"),
    ("method.alhpa=1", "but got 'method.alhpa'; did you mean 'alpha'?"),
    ("method.mixup.alpha=1", "expected a method of the config, but got 'mixup'"),
    ("method.=1", "but got 'method.'"),
    ("method.name=1", None, "expected a parameter like method.alpha"),
    ("method.alpha=1", {"erm": {}}, replace(CONFIG, method=(("erm", ()),)), "but got 'method.alpha'; there is none"),
    of=lambda setting, methods=METHODS, config=CONFIG: override(config, [setting], methods=methods),
)


def test_few_labels_trains_on_every_label_and_what_data_and_method_bring_wins_over_a_recipe():
    few = configure("images/", [("two_views", {})], recipe="few-labels")
    assert (few.data.validation, few.train.selection, few.train.batch_size) == (0.0, "last", 32)
    assert few.method == (("data_augmentation", ()), ("two_views", ()))
    assert (can_join(few), can_share(few)) == (True, True)
    config = RECIPES["released"].config({"name": "my.csv", "target": "price", "balanced": True}, [("erm", ())])
    assert (config.data.target, config.data.balanced, config.data.validation) == ("price", True, 0.0)
    rows = RECIPES["paper"].rows([("data_augmentation", {"padding": 2}), ("rcad", {})])
    assert rows == (("data_augmentation", (("padding", 2),)), ("rcad", (("alpha", 0.5), ("lam", 0.02))))
