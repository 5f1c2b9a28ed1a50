"""What is a user's to mend, said in one sentence (expected, got, what to do); checks and the repr of single values."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from html import escape
from numbers import Real
from typing import Any


class InputError(ValueError):
    """A value, file or argument that cannot be used as it is. The command line shows it without a traceback."""


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"expected {package} to be installed: in the folder of rcad, {install(extra)}")


def install(extra: str) -> str:
    """The command that brings an extra."""
    return f"pip install -c constraints.txt -e '.[{extra}]'"


def need(module: str, package: str, extra: str = "data") -> Any:
    """The module `module`, imported now; else a `MissingExtraError` naming the extra that installs `package`."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(package, extra) from None


def is_number(value: Any) -> bool:
    """True for ints and floats of any kind; a bool is not a number here."""
    return isinstance(value, Real) and value is not True and value is not False


def finite(name: str, value: Any, *, minimum: float | None = None, above: float | None = None) -> None:
    """`value` must be a finite number, at least `minimum` and greater than `above`."""
    good = is_number(value) and math.isfinite(value)
    good = good and (minimum is None or value >= minimum) and (above is None or value > above)
    if not good:
        limit = f" >= {minimum:g}" if minimum is not None else f" > {above:g}" if above is not None else ""
        raise InputError(f"expected {name} to be a finite number{limit}, but got {value!r}")


def fraction(name: str, value: Any) -> None:
    """`value` must lie in [0, 1)."""
    if not (is_number(value) and 0 <= value < 1):
        raise InputError(f"expected {name} to be a number in [0, 1), but got {value!r}")


def whole(name: str, value: Any, *, minimum: int) -> None:
    """`value` must be an int of at least `minimum`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise InputError(f"expected {name} to be a whole number >= {minimum}, but got {value!r}")


def one_of(name: str, value: Any, choices: Iterable[str]) -> None:
    """`value` must be one of `choices`; a near miss is named."""
    choices = list(choices)
    if value not in choices:
        near = get_close_matches(str(value), choices, n=1) or get_close_matches(str(value).lower(), choices, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        known = f"to be one of {', '.join(choices)}" if choices else "not to be given (there are none)"
        raise InputError(f"expected {name} {known}, but got {value!r}{hint}")


def shown(value: Any) -> str:
    """A short repr for a message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."


def did_you_mean(name: str, known: list[str]) -> str:
    """A hint at the nearest known key, e.g. "; did you mean 'train.epochs'?"; else the keys there are."""
    last = {key.rpartition(".")[2]: key for key in known}
    word = name.rpartition(".")[2]
    same = [key for key in known if key.rpartition(".")[2] == word]
    near = get_close_matches(name, same, n=1, cutoff=0.0) or get_close_matches(name, known, n=1)
    near = near or [last[key] for key in get_close_matches(word, list(last), n=1)]
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(known)}" if known else "; there is none"


def writable(name: str, text: str) -> str:
    """A text that UTF-8 can hold: a lone surrogate (an undecodable file name) would break every file it goes to."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"expected {name} to be valid Unicode, but got {shown(text)}; rename it") from None
    return text


def html_table(rows: Mapping[str, str]) -> str:
    """Names and what they are, as a notebook shows them."""
    return f"<table>{''.join(f'<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>' for k, v in rows.items())}</table>"


class Value:
    """Mixin for frozen dataclasses (declared with repr=False): prints as one would write it, without the defaults."""

    def __repr__(self) -> str:
        shown = [f for f in fields(self) if _differs(f, getattr(self, f.name))]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in shown)})"


def _differs(field: Any, value: Any) -> bool:
    return field.default is MISSING or value != field.default
