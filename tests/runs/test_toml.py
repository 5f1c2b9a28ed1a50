from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcad.errors import InputError
from rcad.runs.config import DataConfig, ModelConfig, OptimConfig, RunConfig, TrainConfig
from rcad.runs.plain import config_id, from_plain, to_plain
from rcad.runs.recipes import RECIPES
from rcad.runs.toml import from_toml, load_config, to_toml

texts = st.text(min_size=1).filter(lambda text: bool(text.strip()))
fractions = st.floats(0, 1, exclude_max=True)
positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
counts = st.integers(1, 10**6)
names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name != "name")
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


configs = st.builds(
    RunConfig,
    data=st.builds(
        DataConfig,
        name=texts,
        target=maybe(texts),
        task=st.sampled_from(["auto", "classification", "regression"]),
        balanced=st.booleans(),
        validation=st.floats(0, 1, exclude_min=True, exclude_max=True),
        split=maybe(counts),
        test_fraction=st.floats(0, 1, exclude_min=True, exclude_max=True),
        size=maybe(counts),
        seed=maybe(counts),
    ),
    model=st.builds(
        ModelConfig,
        name=texts,
        norm=st.sampled_from(["batch", "group", "none", None]),
        width=maybe(counts),
        hidden=maybe(st.lists(counts, max_size=3)),
        dropout=maybe(fractions),
        weights=maybe(texts),
    ),
    method=st.lists(st.tuples(texts, st.dictionaries(names, values, max_size=4)), min_size=1, max_size=3),
    optim=st.builds(
        OptimConfig,
        name=st.sampled_from(["sgd", "adamw"]),
        lr=positive,
        momentum=st.floats(0, 1, exclude_min=True, exclude_max=True),
        nesterov=st.booleans(),
        weight_decay=st.floats(min_value=0, allow_infinity=False),
        clip=maybe(positive),
        schedule=st.sampled_from(["cosine", "constant"]),
        milestones=st.sets(counts, max_size=3).map(sorted),
        gamma=positive,
    ),
    train=st.builds(
        TrainConfig,
        epochs=counts,
        batch_size=counts,
        accumulate=counts,
        precision=st.sampled_from(["fp32", "bf16"]),
        ema=maybe(st.floats(0, 1, exclude_min=True, exclude_max=True)),
        selection=st.sampled_from(["best", "last"]),
        patience=maybe(counts),
        deterministic=st.booleans(),
        channels_last=st.booleans(),
    ),
    seed=st.integers(0, 2**63 - 1),
)


@settings(max_examples=150, deadline=None)
@given(configs)
def test_every_config_goes_both_ways(config: RunConfig) -> None:
    read = from_toml(to_toml(config))
    assert read == config
    assert config_id(read) == config_id(config)
    assert from_plain(json.loads(json.dumps(to_plain(config)))) == config


def test_what_it_writes() -> None:
    config = RECIPES["small"].config('a "b"\\\x7f\n.csv', [("rcad", {"alpha": 0.5, "bounds": None})])
    text = to_toml(config)
    assert text.startswith('seed = 0\n\n[data]\nname = "a \\"b\\"\\\\\\u007f\\n.csv"\n')
    assert text.endswith('[[method]]\nname = "rcad"\nalpha = 0.5\nbounds = "none"\n')
    assert "target" not in text


@pytest.mark.parametrize("number", [1e-05, 1e16, 0.1 + 0.2, 5e-324, 1.7976931348623157e308])
def test_floats_are_exact(number: float) -> None:
    config = RECIPES["small"].config("digits", [("rcad", {"alpha": number})])
    assert from_toml(to_toml(config)).method[0][1] == (("alpha", number),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"seed = 1\nx = = 2\n", "to be valid TOML, but got: Invalid value (at line 2, column 5); mend that line"),
        (b"seed = 1\nseed = 2\n", "at line 2"),
        (b'name = "\xff"\n', "to be UTF-8 text, but got the byte 0xff at position 8; save it as UTF-8"),
        (b"x = " + b"[" * 5000, "nested too deeply"),
        (b"[data]\nname = 3\n", "but it is missing"),
        (b"[trian]\n", "but got 'trian'; did you mean 'train'?"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "my.toml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_config(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.toml to be a readable file, but got: No such file"):
        load_config(tmp_path / "no.toml")


def test_a_file_on_top_of_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text('\ufeffrecipe = "paper"\n[data]\nname = "cifar10"\n[method]\nname = "erm"\n[train]\nepochs = 2\n')
    config = load_config(path, recipe="small")
    assert (config.train.epochs, config.train.batch_size, config.optim.milestones) == (2, 128, (100, 150, 180))
