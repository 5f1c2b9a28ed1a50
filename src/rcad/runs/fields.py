"""The type of a config's field, read from its annotation: what it accepts, and how it is called in a message."""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cache
from numbers import Integral
from typing import Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from rcad.errors import InputError, finite, one_of, shown, writable

_NAMES = {bool: "true or false", int: "a whole number", float: "a finite number", str: "a text"}


class Kind(NamedTuple):
    """One field's type.

    Args:
        base: bool, int, float or str; of the items where `many`.
        optional: None is allowed.
        many: a tuple of `base`.
        choices: the texts allowed; () for all.
    """

    base: type
    optional: bool = False
    many: bool = False
    choices: tuple[str, ...] = ()

    @property
    def item(self) -> Kind:
        """The kind of one item of a tuple."""
        return Kind(self.base, choices=self.choices)

    def __str__(self) -> str:
        one = f"one of {', '.join(self.choices)}" if self.choices else _NAMES[self.base]
        return ("a list, each item " if self.many else "") + one + (" (or none)" if self.optional else "")


def kinds(cls: type) -> Mapping[str, Kind]:
    """The fields of a config class and their kinds, in order."""
    return _kinds(cls)


@cache
def _kinds(cls: type) -> Mapping[str, Kind]:
    return {name: _kind(hint) for name, hint in get_type_hints(cls).items() if get_origin(hint) is not ClassVar}


def coerce(name: str, kind: Kind, value: Any) -> Any:
    """`value` as the field keeps it: an int becomes a float where a float is kept, a list a tuple.

    Args:
        name: the dotted key, for the message.
    """
    if value is None and kind.optional:
        return None
    if not kind.many:
        return _coerce_one(name, kind, value)
    if not isinstance(value, list | tuple):
        raise wrong(name, kind, value)
    return tuple(_coerce_one(f"{name}[{index}]", kind.item, one) for index, one in enumerate(value))


def wrong(name: str, kind: object, value: Any) -> InputError:
    return InputError(f"expected {name} to be {kind}, but got {shown(value)}")


def _coerce_one(name: str, kind: Kind, value: Any) -> Any:
    if kind.base is bool and isinstance(value, bool):
        return value
    if kind.base is int and isinstance(value, Integral) and value is not True and value is not False:
        return int(value)
    if kind.base is float:
        return _coerce_float(name, value)
    if kind.base is str and isinstance(value, str):
        if kind.choices:
            one_of(name, value, kind.choices)
        return writable(name, value)
    raise wrong(name, kind, value)


def _coerce_float(name: str, value: Any) -> float:
    try:
        finite(name, value)
        return float(value) + 0.0  # -0.0 becomes 0.0: equal values must be written alike
    except OverflowError:
        raise wrong(name, "a finite number", value) from None


def _kind(hint: Any) -> Kind:
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (arg for arg in get_args(hint) if arg is not type(None))
        return _kind(inner)._replace(optional=True)
    if get_origin(hint) is tuple:
        return _kind(get_args(hint)[0])._replace(many=True)
    if get_origin(hint) is Literal:
        return Kind(str, choices=get_args(hint))
    if hint not in _NAMES:
        raise TypeError(f"expected a config field of bool, int, float or str, but got {hint!r}")
    return Kind(hint)
