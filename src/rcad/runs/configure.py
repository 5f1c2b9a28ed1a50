"""From a few words to a whole config: which protocol suits the data, and what the user changed. No torch here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rcad.data.dataset import parse_spec
from rcad.errors import InputError, did_you_mean, one_of
from rcad.loss.method_rows import Defaults, parse_method, parse_value, rows_to_plain, spelled
from rcad.runs.config import KEYS, SECTIONS, FieldType, RunConfig
from rcad.runs.plain import from_plain, to_plain
from rcad.runs.recipes import RECIPES

SUBSET_2K, SUBSET_10K = 2_000, 10_000  # up to these sizes the paper's batches are smaller
BENCHMARKS = {"cifar10": "paper", "cifar100": "paper", "tiny-imagenet": "paper", "svhn": "paper-svhn"}


def default_recipe(data: str) -> str:
    """The protocol that is used where none is named: the paper's for its data sets, "small" for all others."""
    name, count = parse_spec(data)
    recipe = BENCHMARKS.get(name, "small")
    if recipe == "paper" and count is not None and count <= SUBSET_10K:
        return "paper-2k" if count <= SUBSET_2K else "paper-10k"
    return recipe


def configure(
    data: str | Mapping[str, Any],
    method: Any,
    *,
    recipe: str | None = None,
    epochs: int | None = None,
    seed: int = 0,
    settings: Sequence[str] = (),
    methods: Mapping[str, Mapping[str, Any]] | None = None,
    leave: Collection[str] = (),
) -> RunConfig:
    """The config of a run.

    Args:
        data: a name such as "cifar100[:2000]", or fields of DataConfig.
        recipe: a key of RECIPES, with its own values of a method's parameters; by default the one that suits the data,
            without them.
        settings: "train.batch_size=64" and the like, applied last.
        methods: the parameters of every method and their defaults, for settings such as "method.alpha=1".
        leave: parameters of methods that stay open where none is given.
    """
    name = data if isinstance(data, str) else str(data.get("name", ""))
    one_of("recipe", default_recipe(name) if recipe is None else recipe, RECIPES)
    chosen = replace(RECIPES[default_recipe(name)], values={}) if recipe is None else RECIPES[recipe]
    config = chosen.config(data, method, seed, leave=leave)
    if epochs is not None:
        config = replace(config, train=replace(config.train, epochs=epochs))
    return override(config, settings, methods=methods)


_BOOLS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def override(config: RunConfig, settings: Iterable[str], *, methods: Defaults | None = None) -> RunConfig:
    """The config with `settings` applied in order, checked once at the end.

    Settings are "train.epochs=5", "optim.milestones=10,20" or "[10,20]", "train.ema=none", "method=mixup+rcad",
    "method.alpha=0.7" (the last row that has the parameter, or of `methods` might), "method.rcad.alpha=0.7".
    """
    plain = to_plain(config)
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InputError(f"expected a setting like train.epochs=5, but got {setting!r}; write key=value")
        if key == "method":
            plain["method"] = rows_to_plain(spelled(parse_method(text)))
        elif key.startswith("method."):
            _set_parameter(plain["method"], key, parse_value(text), methods)
        else:
            _set_field(plain, key, text)
    return from_plain(plain)


def _parsed(kind: FieldType, text: str) -> Any:
    """The text as a value of `kind`; a text that is none stays one, and the config refuses it by name."""
    text = text.strip()
    if kind.optional and (not text or (text.lower() == "none" and "none" not in kind.choices)):
        return None
    if kind.many:
        inner = text[1:-1] if text[:1] + text[-1:] in ("[]", "()") else text
        return [_parsed(FieldType(kind.base), item) for item in inner.split(",")] if inner.strip() else []
    if kind.base is bool:
        return _BOOLS.get(text.lower(), text)
    try:
        return kind.base(text)
    except ValueError:
        return text


def _set_field(plain: dict[str, Any], key: str, text: str) -> None:
    if key == "seed":
        plain["seed"] = _parsed(FieldType(int), text)
        return
    title, _, name = key.partition(".")
    if key not in KEYS:
        nearby = [other for other in KEYS if other.startswith(f"{title}.")] if title in SECTIONS else list(KEYS)
        raise InputError(f"expected a key of the config to set, but got {key!r}{did_you_mean(key, nearby)}")
    plain[title][name] = _parsed(SECTIONS[title].kinds[name], text)


def _set_parameter(rows: list[dict[str, Any]], key: str, value: Any, methods: Defaults | None) -> None:
    owner, _, name = key.removeprefix("method.").rpartition(".")
    candidates = [row for row in rows if not owner or row["name"] == owner]
    if not candidates:
        hint = did_you_mean(owner, [row["name"] for row in rows])
        raise InputError(f"expected a method of the config, but got {owner!r}{hint}")
    holders = [row for row in candidates if name in _parameters(row, methods)]
    if not holders and methods is not None:
        parameters = sorted(set().union(*(_parameters(row, methods) for row in candidates)))
        raise InputError(f"expected a parameter of the method, but got {key!r}{did_you_mean(name, parameters)}")
    if not name.isidentifier() or name == "name":
        raise InputError(f"expected a parameter like method.alpha, but got {key!r}")
    (holders or candidates)[-1][name] = value


def _parameters(row: Mapping[str, Any], methods: Defaults | None) -> set[str]:
    return {key for key in row if key != "name"} | set((methods or {}).get(row["name"], ()))
