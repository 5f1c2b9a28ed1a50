"""A config as plain data and as TOML, and the id that names its run.

The canonical form leaves out every field that has its default: a field added later, with a default, changes no id. The
price: a released default is never changed. In TOML None is left out; in a method's row it is "none".
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from rcad.errors import InputError, did_you_mean, one_of, shown
from rcad.loss.method_rows import method_rows, rows_to_plain
from rcad.runs.config import KEYS, SECTIONS, RunConfig
from rcad.runs.files import read_text
from rcad.runs.recipes import RECIPES

ID_LENGTH = 16


def to_plain(config: RunConfig) -> dict[str, Any]:
    """A dict of dicts, lists, texts, numbers, booleans and None: JSON can hold it."""
    sections = {
        title: {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(section).items()}
        for title in SECTIONS
        for section in [getattr(config, title)]
    }
    return {"seed": config.seed, **sections, "method": rows_to_plain(config.method)}


def from_plain(plain: Any, *, source: str | None = None) -> RunConfig:
    """The config that `to_plain` wrote, or the fields of a file on top of a "recipe"; "none" undoes its values."""
    try:
        return _build(_with_recipe(plain))
    except InputError as error:
        if source is None:
            raise
        raise InputError(f"in {source}: {error}") from None


def canonical(config: RunConfig) -> str:
    """The config as JSON in its one form: keys sorted, floats as their shortest exact text, no defaults."""
    chosen: dict[str, Any] = {"method": [_canonical_value(row) for row in rows_to_plain(config.method)]}
    if config.seed:
        chosen["seed"] = config.seed
    for title in SECTIONS:
        section = getattr(config, title)
        values = [(field, getattr(section, field.name)) for field in fields(section)]
        changed = {field.name: value for field, value in values if field.default is MISSING or value != field.default}
        chosen |= {title: changed} if changed else {}
    return json.dumps(chosen, sort_keys=True, separators=(",", ":"), allow_nan=False)


def config_id(config: RunConfig) -> str:
    """The name of the config's run: 16 hexadecimal digits, the same on every machine."""
    return hashlib.sha256(canonical(config).encode()).hexdigest()[:ID_LENGTH]


def _with_recipe(plain: Any) -> Mapping[str, Any]:
    if not isinstance(plain, Mapping):
        raise InputError(f"expected a config to be a table of sections, but got {shown(plain)}")
    _check_keys(plain)
    if "recipe" not in plain:
        return plain
    one_of("recipe", plain["recipe"], RECIPES)
    base = RECIPES[plain["recipe"]]
    merged: dict[str, Any] = {key: value for key, value in plain.items() if key != "recipe"}
    merged["data"] = {**base.data, **plain.get("data", {})}
    for title in ("model", "optim", "train"):
        merged[title] = {**asdict(getattr(base, title)), **plain.get(title, {})}
    if "method" in plain:
        merged["method"] = base.rows(plain["method"])
    return merged


def _check_keys(plain: Mapping[str, Any]) -> None:
    for title, value in plain.items():
        if title in ("seed", "method", "recipe"):
            continue
        if title not in SECTIONS:
            hint = did_you_mean(str(title), [*SECTIONS, *KEYS, "recipe"])
            raise InputError(f"expected a key of a config, but got {title!r}{hint}")
        names = SECTIONS[title].kinds
        if not isinstance(value, Mapping):
            raise InputError(f"expected {title} to be a section with {', '.join(names)}, but got {shown(value)}")
        for key in value:
            if key not in names:
                dotted = f"{title}.{key}"
                hint = did_you_mean(dotted, [*(f"{title}.{name}" for name in names), *KEYS])
                raise InputError(f"expected a key of {title}, but got {dotted!r}{hint}")


def _build(plain: Mapping[str, Any]) -> RunConfig:
    for key in ("data", "method", "optim", "train"):
        if key not in plain:
            raise InputError(f"expected {key} to be given, but it is missing; add it, or name a recipe")
    rows, sections = method_rows(plain["method"]), {}
    for title, section in SECTIONS.items():
        values = plain.get(title, {})
        for field in fields(section):  # type: ignore[arg-type]
            if field.default is MISSING and field.name not in values:
                raise InputError(f"expected {title}.{field.name} to be given, but it is missing; add it")
        # Where "none" can only mean None it does: so a TOML file, which has no null, undoes what its recipe sets.
        unset = {key for key, kind in section.kinds.items() if kind.optional and kind.base is not str}
        values = {key: None if value == "none" and key in unset else value for key, value in values.items()}
        sections[title] = section(**values)
    return RunConfig(method=rows, seed=plain.get("seed", 0), **sections)  # type: ignore[arg-type]


def _canonical_value(value: Any) -> Any:
    """Parameters of methods have no declared type here: 1 and 1.0 must be one run, so both are written 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_canonical_value(item) for item in value]
    return {key: _canonical_value(item) for key, item in value.items()} if isinstance(value, dict) else value


def to_toml(config: RunConfig) -> str:
    """The text of a file that `from_toml` reads back to an equal config."""
    plain = to_plain(config)
    blocks = [_lines({"seed": plain["seed"]})]
    sections = {title: {key: value for key, value in plain[title].items() if value is not None} for title in SECTIONS}
    blocks += [[f"[{title}]", *_lines(section)] for title, section in sections.items()]
    blocks += [["[[method]]", *_lines(row)] for row in plain["method"]]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def from_toml(text: str, *, source: str = "the config") -> RunConfig:
    """A config from TOML text; `source` is the file's name, for messages."""
    try:
        plain = tomllib.loads(text)
    except ValueError as error:  # tomllib's own, and that of a number with thousands of digits
        reason = str(error).partition(" for integer")[0]
        raise InputError(f"expected {source} to be valid TOML, but got: {reason}; correct that line") from None
    except RecursionError:
        raise InputError(f"expected {source} to be a config, but got lists nested too deeply") from None
    return from_plain(plain, source=source)


def load_config(path: str | Path) -> RunConfig:
    return from_toml(read_text(Path(path)), source=str(path))


def _lines(values: dict[str, Any]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in values.items()]


def _value(value: Any) -> str:
    """As JSON writes it, but for None and one character that JSON leaves as it is."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps("none" if value is None else value, ensure_ascii=False).replace("\x7f", "\\u007f")
