"""A config as plain data and as TOML, and the id that names its run.

The canonical form leaves out every field that has its default, and every section that is then empty: a field added
later, with a default, changes no id. The price: a released default is never changed (a test pins the ids).

In TOML None is left out of a section; in a method's row, where that means the default, it is "none".
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

from rcad.errors import InputError, did_you_mean, one_of, shown
from rcad.loss.method_rows import method_rows, rows_to_plain
from rcad.runs.config import KEYS, SECTIONS, RunConfig, Section, kinds
from rcad.runs.files import read_text
from rcad.runs.recipes import RECIPES

ID_LENGTH = 16


def to_plain(config: RunConfig) -> dict[str, Any]:
    """A dict of dicts, lists, texts, numbers, booleans and None: JSON can hold it."""
    sections = {name: _section_to_plain(getattr(config, name)) for name in SECTIONS}
    return {"seed": config.seed, **sections, "method": rows_to_plain(config.method)}


def from_plain(plain: Any, *, source: str | None = None, recipe: str | None = None) -> RunConfig:
    """The config that `to_plain` wrote, or the fields a user wrote on top of a recipe.

    Args:
        plain: sections by name; may name a "recipe" whose values stand where it gives none. "none" undoes an
            optional number or list.
        source: the file it came from, for messages.
        recipe: the recipe where `plain` names none; None asks for every field without a default.
    """
    try:
        return _build(_with_recipe(plain, recipe))
    except InputError as error:
        if source is None:
            raise
        raise InputError(f"in {source}: {error}") from None


def canonical(config: RunConfig) -> str:
    """The config as JSON in its one form: keys sorted, floats as their shortest exact text, no defaults."""
    chosen: dict[str, Any] = {"method": [_canonical_value(row) for row in rows_to_plain(config.method)]}
    if config.seed:
        chosen["seed"] = config.seed
    for name in SECTIONS:
        section = getattr(config, name)
        given = {f.name: getattr(section, f.name) for f in fields(section) if _differs(f, getattr(section, f.name))}
        chosen |= {name: given} if given else {}
    return json.dumps(chosen, sort_keys=True, separators=(",", ":"), allow_nan=False)


def config_id(config: RunConfig) -> str:
    """The name of the config's run: 16 hexadecimal digits, the same on every machine."""
    return hashlib.sha256(canonical(config).encode()).hexdigest()[:ID_LENGTH]


def _with_recipe(plain: Any, recipe: str | None) -> Mapping[str, Any]:
    if not isinstance(plain, Mapping):
        raise InputError(f"expected a config to be a table of sections, but got {shown(plain)}")
    _check_keys(plain)
    name = plain.get("recipe", recipe)
    if name is None:
        return plain
    one_of("recipe", name, RECIPES)
    base = RECIPES[name]
    merged: dict[str, Any] = {key: value for key, value in plain.items() if key != "recipe"}
    merged["data"] = {**base.data, **plain.get("data", {})}
    for title in ("model", "optim", "train"):
        merged[title] = {**asdict(getattr(base, title)), **plain.get(title, {})}
    if "method" in plain:
        merged["method"] = base.rows(plain["method"])
    return merged


def _check_keys(plain: Mapping[str, Any]) -> None:
    for key, value in plain.items():
        if key not in SECTIONS and key not in ("seed", "method", "recipe"):
            raise InputError(
                f"expected a key of a config, but got {key!r}{did_you_mean(str(key), [*SECTIONS, *KEYS, 'recipe'])}"
            )
        if key in SECTIONS:
            _check_section(key, value)


def _check_section(title: str, value: Any) -> None:
    known = [field.name for field in fields(SECTIONS[title])]  # type: ignore[arg-type]
    if not isinstance(value, Mapping):
        raise InputError(f"expected {title} to be a section with {', '.join(known)}, but got {shown(value)}")
    for key in value:
        if key not in known:
            dotted = f"{title}.{key}"
            hint = did_you_mean(dotted, [*(f"{title}.{name}" for name in known), *KEYS])
            raise InputError(f"expected a key of {title}, but got {dotted!r}{hint}")


def _build(plain: Mapping[str, Any]) -> RunConfig:
    for key in ("data", "method", "optim", "train"):
        if key not in plain:
            raise InputError(f"expected {key} to be given, but it is missing; add it, or name a recipe")
    rows = method_rows(plain["method"])
    given = {name: section(**_complete(name, plain.get(name, {}))) for name, section in SECTIONS.items()}
    return RunConfig(method=rows, seed=plain.get("seed", 0), **given)  # type: ignore[arg-type]


def _complete(title: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
    for field in fields(SECTIONS[title]):  # type: ignore[arg-type]
        if field.default is MISSING and field.name not in values:
            raise InputError(f"expected {title}.{field.name} to be given, but it is missing; add it")
    return {key: None if value == "none" and _unsets(title, key) else value for key, value in values.items()}


def _unsets(title: str, key: str) -> bool:
    """Whether "none" can only mean None there: how a TOML file, which has no null, undoes what its recipe sets."""
    kind = kinds(SECTIONS[title])[key]
    return kind.optional and kind.base is not str


def _section_to_plain(section: Section) -> dict[str, Any]:
    values = asdict(section)  # type: ignore[call-overload]
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _differs(field: Any, value: Any) -> bool:
    return field.default is MISSING or value != field.default


def _canonical_value(value: Any) -> Any:
    """Parameters of methods have no declared type here: 1 and 1.0 must be one run, so both are written 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_canonical_value(item) for item in value]
    return {key: _canonical_value(item) for key, item in value.items()} if isinstance(value, dict) else value


_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_TO_ESCAPE = re.compile(r'["\\\x00-\x1f\x7f]')


def to_toml(config: RunConfig) -> str:
    """The text of a file that `from_toml` reads back to an equal config."""
    plain = to_plain(config)
    blocks = [_lines({"seed": plain["seed"]})]
    blocks += [[f"[{title}]", *_lines(_present(plain[title]))] for title in SECTIONS if _present(plain[title])]
    blocks += [["[[method]]", *_lines(row)] for row in plain["method"]]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def from_toml(text: str, *, source: str = "the config", recipe: str | None = None) -> RunConfig:
    """A config from TOML text.

    Args:
        source: the file's name, for messages.
        recipe: the recipe where the text names none (`recipe = "paper"`).
    """
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"expected {source} to be valid TOML, but got: {reason}; mend that line") from None
    except RecursionError:
        raise InputError(f"expected {source} to be a config, but got lists nested too deeply") from None
    return from_plain(plain, source=source, recipe=recipe)


def load_config(path: str | Path, *, recipe: str | None = None) -> RunConfig:
    """A config from a TOML file."""
    return from_toml(read_text(Path(path)), source=str(path), recipe=recipe)


def _present(section: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if value is not None}


def _lines(values: dict[str, Any]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in values.items()]


def _value(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{_TO_ESCAPE.sub(lambda found: _escape(found[0]), value)}"'
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)


def _escape(character: str) -> str:
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"
