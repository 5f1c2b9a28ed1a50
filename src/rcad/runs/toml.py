"""Configs as TOML. None is left out of a section; in a method's row, where that means the default, it is "none"."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from rcad.errors import InputError
from rcad.runs.atomic import read_text
from rcad.runs.config import SECTIONS, RunConfig
from rcad.runs.plain import from_plain, to_plain

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
