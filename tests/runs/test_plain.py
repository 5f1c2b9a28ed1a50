from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from one_line import one_line
from rcad.errors import InputError
from rcad.loss.method_rows import label, rows_to_plain
from rcad.loss.methods import Method
from rcad.runs.config import SECTIONS, DataConfig, FieldType, ModelConfig, OptimConfig, RunConfig, Section, TrainConfig
from rcad.runs.plain import config_id, from_plain, from_toml, load_config, to_plain, to_toml
from rcad.runs.recipes import RECIPES
from rcad.train.scheduler import canonical_config

LEAN = RunConfig(
    data=DataConfig(name="digits"),
    method=(("rcad", (("alpha", 0.5),)),),
    optim=OptimConfig(lr=0.1),
    train=TrainConfig(epochs=10, batch_size=32),
)


def edited(*path: str | int, value: Any) -> dict[str, Any]:
    """The plain form of a good config with one entry changed."""
    plain: Any = copy.deepcopy(to_plain(LEAN))
    place = plain
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return dict(plain)


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ([], "expected a config to be a table of sections, but got []"),
        ({}, "expected data to be given, but it is missing"),
        (edited("trian", value={}), "expected a key of a config, but got 'trian'; did you mean 'train'?"),
        (edited("epochs", value=5), "expected a key of a config, but got 'epochs'; did you mean 'train.epochs'?"),
        (edited("train", "epoch", value=5), "but got 'train.epoch'; did you mean 'train.epochs'?"),
        (edited("train", "lr", value=5), "but got 'train.lr'; did you mean 'optim.lr'?"),
        (edited("train", value=5), "expected train to be a section with epochs, batch_size"),
        (edited("train", value={"epochs": 5}), "expected train.batch_size to be given, but it is missing; add it"),
        (edited("train", "epochs", value="none"), "expected train.epochs to be a whole number, but got 'none'"),
        (edited("recipe", value="papr"), "expected recipe to be one of paper"),
        (edited("recipe", value=["paper"]), "but got ['paper']"),
    ],
)
def test_bad_plain_data_is_named_with_its_file(plain: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        from_plain(plain, source="my.toml")
    assert str(caught.value).startswith("in my.toml: ")
    assert message in str(caught.value)


def test_a_recipe_fills_what_is_not_given() -> None:
    plain = {"recipe": "paper", "data": {"name": "cifar10"}, "method": {"name": "rcad"}, "optim": {"clip": "none"}}
    expected = RECIPES["paper"].config("cifar10", [("rcad", ())])
    assert from_plain(plain) == replace(expected, optim=replace(expected.optim, clip=None))


def test_a_changed_default_has_ids_of_its_own_and_old_ids_mean_what_they_meant() -> None:
    """Rows written before leave it out, as they did; new rows say it, whichever value they have."""
    values = {"alpha": 1.0, "lam": 0.1}
    direction = ("direction", "training", "plain")
    for name, rows, old, (parameter, before, now) in (
        ("released", [("rcad", values)], "4168755db2c975dd", ("jitter", 0.01, 0.0)),
        ("paper", [("label_smoothing", {"eps": 0.6}), ("rcad", values)], "c8cd3963b336e987", direction),
        ("paper", [("label_smoothing", {}), ("rcad_text", values)], "cd650b5e8ba39c86", direction),
    ):
        new = RECIPES[name].config("cifar100[:2000]", rows, seed=7)
        assert dict(new.method[-1][1])[parameter] == now
        written = replace(new, method=(*new.method[:-1], (new.method[-1][0], values)))
        explicit = replace(new, method=(*new.method[:-1], (new.method[-1][0], {**values, parameter: before})))
        assert config_id(written) == old
        assert len({config_id(canonical_config(one)) for one in (written, new, explicit)}) == 3
        meant = [Method.from_dict({"methods": rows_to_plain(one.method)}) for one in (written, explicit)]
        assert meant[0] == meant[1]
        assert label(written.method) == label(explicit.method)


def test_a_changed_default_that_makes_no_difference_leaves_the_id_alone() -> None:
    config = RECIPES["paper"].config("cifar100[:2000]", [("rcad", {"alpha": 1.0, "lam": 0.1})], seed=7)
    for said in ("plain", "training"):
        rows = [*config.method[:-1], ("rcad", {"alpha": 1.0, "lam": 0.1, "direction": said})]
        assert config_id(canonical_config(replace(config, method=rows))) == "f33cf1262c52e90b"


def test_equal_configs_have_equal_ids() -> None:
    same = [
        replace(LEAN, optim=OptimConfig(lr=1e-1)),
        replace(LEAN, data=DataConfig(name="digits", validation=1e-1)),
        from_plain(dict(reversed(to_plain(LEAN).items()))),
    ]
    assert {config_id(one) for one in same} == {config_id(LEAN)}
    whole = [replace(LEAN, method=[("rcad", {"alpha": a, "bounds": b})]) for a, b in ((1, (0, 1)), (1.0, (0.0, 1.0)))]
    assert whole[0] == whole[1]
    assert config_id(whole[0]) == config_id(whole[1])


def test_different_configs_have_different_ids() -> None:
    others = [
        LEAN,
        replace(LEAN, seed=1),
        replace(LEAN, optim=OptimConfig(lr=0.2)),
        replace(LEAN, model=ModelConfig(norm="none")),
        replace(LEAN, model=ModelConfig(hidden=())),
        replace(LEAN, method=[("rcad", {"alpha": None})]),
        replace(LEAN, method=[("rcad", {"alpha": 0.5}), ("mixup", {})]),
        replace(LEAN, method=[("mixup", {}), ("rcad", {"alpha": 0.5})]),
    ]
    assert len({config_id(one) for one in others}) == len(others)


TEXTS = st.text(min_size=1).filter(lambda text: bool(text.strip()))
NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name != "name")
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
KINDS: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(1, 10**6),
    float: st.floats(0, 1, exclude_min=True, exclude_max=True),
    str: TEXTS,
}
FIXED = {"warmup": st.just(0), "schedule": st.sampled_from(["cosine", "constant"])}


def drawn(section: type[Section]) -> st.SearchStrategy[Section]:
    """Any value of every field: numbers above 0, fractions below 1, lists in order."""

    def of(kind: FieldType) -> st.SearchStrategy[Any]:
        one = st.sampled_from(kind.choices) if kind.choices else KINDS[kind.base]
        one = st.sets(one, max_size=3).map(sorted) if kind.many else one
        return st.none() | one if kind.optional else one

    return st.builds(section, **{name: FIXED.get(name, of(kind)) for name, kind in section.kinds.items()})


configs = st.builds(
    RunConfig,
    method=st.lists(st.tuples(TEXTS, st.dictionaries(NAMES, VALUES, max_size=4)), min_size=1, max_size=3),
    seed=st.integers(0, 2**63 - 1),
    **{title: drawn(section) for title, section in SECTIONS.items()},  # type: ignore[arg-type]
)


@settings(max_examples=25, deadline=None)
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
    assert text.endswith('[[method]]\nname = "rcad"\nalpha = 0.5\nbounds = "none"\nlam = "auto"\n')
    assert "target" not in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"seed = 1\nx = = 2\n", "to be valid TOML, but got: Invalid value (at line 2, column 5); correct that line"),
        (b'name = "\xff"\n', "to be UTF-8 text, but got the byte 0xff at position 8; save it as UTF-8"),
        (b"x = " + b"[" * 5000, "nested too deeply"),
        (b"[data]\nname = 3\n", "but it is missing"),
        (None, "my.toml to be a readable file, but got: No such file"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "my.toml"
    if content is not None:
        path.write_bytes(content)
    with one_line(message, str(path)):
        load_config(path)
