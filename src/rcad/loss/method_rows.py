"""Methods as plain rows of a name and parameters: what a config keeps and the engine turns into a Method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rcad.errors import InputError, shown, writable
from rcad.loss.changed_defaults import as_recorded, says

MethodRow = tuple[str, tuple[tuple[str, Any], ...]]
Defaults = Mapping[str, Mapping[str, Any]]
"""The parameters of every method and their defaults, as the engine knows them."""


def method_rows(rows: Any) -> tuple[MethodRow, ...]:
    """Rows in their one form: parameters sorted by name, lists as tuples, the text "none" as None.

    TOML has no null, and a parameter left out means its default, which need not be None: hence "none".
    """
    if not isinstance(rows, list | tuple) or not rows:
        raise InputError(f"expected method to be a list of at least one row, but got {shown(rows)}; give a method")
    return tuple(_row(f"method[{index}]", row) for index, row in enumerate(rows))


def rows_from_names(text: str) -> tuple[MethodRow, ...]:
    """Rows from "mixup + rcad": each with its defaults."""
    return method_rows([(name.strip(), ()) for name in text.split("+")])


def rows_to_plain(rows: Iterable[MethodRow]) -> list[dict[str, Any]]:
    """The rows as `rcad.Method.from_dict` takes them under "methods"."""
    return [{"name": name, **{key: _listed(value) for key, value in values}} for name, values in rows]


def rows_from_plain(plain: Any) -> tuple[MethodRow, ...]:
    """The rows that `rows_to_plain` wrote; a lone row need not stand in a list."""
    rows = [plain] if isinstance(plain, Mapping) else plain
    if not isinstance(rows, list | tuple) or not all(isinstance(row, Mapping) for row in rows):
        raise InputError(f"expected method to be a list of tables with a name each, but got {shown(plain)}")
    for index, row in enumerate(rows):
        if "name" not in row:
            raise InputError(f"expected method[{index}].name, but it is missing; name the method")
    return method_rows([(row["name"], [(key, row[key]) for key in row if key != "name"]) for row in rows])


def without_defaults(rows: Iterable[MethodRow], defaults: Defaults) -> tuple[MethodRow, ...]:
    """The rows less every parameter that has its default, so that writing a default out does not make another run.

    A default that has changed is kept where it makes a difference, and any value of it left out where none does.
    """
    rows = tuple(rows)

    def kept(name: str, key: str, value: Any) -> bool:
        must = says(rows, name, key)
        return not _is_default(defaults.get(name, {}), key, value) if must is None else must

    return tuple(
        (name, tuple((key, value) for key, value in values if kept(name, key, value))) for name, values in rows
    )


def label(rows: Iterable[MethodRow]) -> str:
    """The rows of a config for a reader, e.g. "data_augmentation + rcad(alpha=0.7)", as they were meant."""
    return method_text(as_recorded(rows))


def method_text(rows: Iterable[MethodRow]) -> str:
    """The rows as `parse_method` reads them."""
    return " + ".join(
        name + (f"({', '.join(f'{key}={value!r}' for key, value in values)})" if values else "")
        for name, values in rows
    )


def _is_default(known: Mapping[str, Any], key: str, value: Any) -> bool:
    return key in known and known[key] == value and isinstance(known[key], bool) == isinstance(value, bool)


def _row(name: str, row: Any) -> MethodRow:
    if not isinstance(row, list | tuple) or len(row) != 2:
        raise InputError(f"expected {name} to be a name and its parameters, but got {shown(row)}")
    method, values = row
    if not isinstance(method, str) or not method.strip():
        raise InputError(f"expected {name}.name to be the name of a method, but got {shown(method)}")
    pairs = list(values.items()) if isinstance(values, Mapping) else values
    if not isinstance(pairs, list | tuple) or not all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs):
        raise InputError(f"expected the parameters of {name} to be pairs, but got {shown(values)}")
    for key, _ in pairs:
        if not isinstance(key, str) or not key.isidentifier() or not key.isascii() or key == "name":
            raise InputError(f"expected a parameter of {name} to be a plain name, but got {shown(key)}")
    if len({key for key, _ in pairs}) < len(pairs):
        raise InputError(f"expected each parameter of {name} once, but got {shown([key for key, _ in pairs])}")
    return writable(f"{name}.name", method), tuple(sorted((key, _value(f"{name}.{key}", v)) for key, v in pairs))


def _value(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_value(f"{name}[{index}]", item) for index, item in enumerate(value))
    if isinstance(value, str):
        return None if value == "none" else writable(name, value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value) + 0.0
    raise InputError(
        f"expected {name} to be a finite number, a text, true or false, none or a list, but got {shown(value)}"
    )


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value
