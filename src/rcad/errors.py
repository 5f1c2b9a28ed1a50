"""Errors that a user can correct, each in one sentence (expected, got, what to do); checks of single values."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from html import escape
from numbers import Real
from pathlib import Path
from typing import Any, TextIO

LONGEST = 300
"""Characters of a message at most."""
_PREFIX = len("rcad: ")
# Line breaks, a terminal's codes, and the marks that turn the direction of writing.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text with line breaks and terminal codes escaped as Python writes them: names may come from files."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream is a terminal that can move its cursor."""
    try:
        return stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False


def one_line(text: str, most: int = LONGEST) -> str:
    """A message in one line of at most `most` characters, without control characters.

    Long names lose their middle first. A command at the end stays whole, to be pasted, or goes as a whole.
    """
    text = visible(" ".join(text.split()))
    if len(text) <= most:
        return text
    head, _, command = text.rpartition("; ")
    if "rcad " not in command:
        head, command = text, ""
    elif len(command) > most // 2:
        command = "a shorter path leaves room for the command that repairs it"
    room = most - len(command) - 2 if command else most
    for longest in range(120, 30, -10):
        head = " ".join(_cut(word, longest) for word in head.split(" "))
        if len(head) <= room:
            break
    return "; ".join(filter(None, [_cut(head, room, 2 * room // 3), command]))


def _cut(text: str, most: int, first: int | None = None) -> str:
    """The beginning, of `first` characters, and the end of a long text; the end of a name tells more."""
    first = most // 6 if first is None else first
    return text if len(text) <= most else f"{text[:first]}...{text[first + 3 - most :]}"


def without_advice(problem: str) -> str:
    """The message of a refusal, "expected ..., but got ...; advice", without the advice."""
    return problem.rpartition("; ")[0] or problem


def command(*words: str) -> str:
    """A command line to paste into a shell, whatever its words contain."""

    def quoted(word: str) -> str:
        if not _CONTROL.search(word):
            return shlex.quote(word)
        plain = word.replace("\\", "\\\\").replace("'", "\\'")
        return "$'" + _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", plain) + "'"

    return " ".join(map(quoted, words))


class InputError(ValueError):
    """A value, file or argument that cannot be used as it is. The command line shows it without a traceback."""

    def __init__(self, message: str = "") -> None:
        super().__init__(one_line(message, LONGEST - _PREFIX))


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"expected {package} to be installed: in the folder of rcad, {install(extra)}")


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install -c constraints.txt -e '.[{extra}]'"


def need(module: str, package: str, extra: str = "data") -> Any:
    """The module `module`, imported now; else a `MissingExtraError` naming the extra that installs `package`."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(package, extra) from None


@contextlib.contextmanager
def fitting(source: str, remedy: str) -> Iterator[None]:
    """Turns any error from reading the contents of a file into an InputError: `source` in words, and the `remedy`."""
    try:
        yield
    except (InputError, ImportError, OSError):
        raise
    except Exception as error:  # a number for a text, a list too short, a key that is missing: there is no end of them
        got = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise InputError(f"expected {source} to hold what its kind has, but got {_cut(got, 100)}; {remedy}") from None


def shaped(name: str, value: Any, kind: Any) -> Any:
    """`value`, which must have the form of `kind`.

    Args:
        kind: a type; float takes any finite number, int none that is a bool. [kind] is a list of them, {str: kind} a
            table with any keys, {"a": kind} one with these keys at least, (kind, None) an optional value.
    """
    if isinstance(kind, tuple):
        return None if value is None else shaped(name, value, kind[0])
    if isinstance(kind, list) and isinstance(value, list | tuple):
        return [shaped(f"{name}[{place}]", item, kind[0]) for place, item in enumerate(value)]
    if isinstance(kind, dict) and isinstance(value, dict):
        if str in kind:
            return {shaped(name, key, str): shaped(f"{name}.{key}", item, kind[str]) for key, item in value.items()}
        return {**value, **{key: shaped(f"{name}.{key}", value.get(key), inner) for key, inner in kind.items()}}
    if kind is float:
        finite(name, value)
    elif not isinstance(kind, type) or not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        word = kind.__name__ if isinstance(kind, type) else type(kind).__name__
        raise InputError(f"expected {name} to be of type {word}, but got {shown(value)}")
    return value


def is_number(value: Any) -> bool:
    """True for ints and floats of any kind; a bool is not a number here."""
    return isinstance(value, Real) and value is not True and value is not False


def finite(name: str, value: Any, *, minimum: float | None = None, above: float | None = None) -> None:
    """`value` must be a finite number, at least `minimum` and greater than `above`."""
    good = is_number(value) and is_finite(value)
    good = good and (minimum is None or value >= minimum) and (above is None or value > above)
    if not good:
        limit = f" >= {minimum:g}" if minimum is not None else f" > {above:g}" if above is not None else ""
        raise InputError(f"expected {name} to be a finite number{limit}, but got {shown(value)}")


def is_finite(value: Any) -> bool:
    """Whether a number is finite as a float: a whole number may be too large for one."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def fraction(name: str, value: Any) -> None:
    """`value` must lie in [0, 1)."""
    if not (is_number(value) and 0 <= value < 1):
        raise InputError(f"expected {name} to be a number in [0, 1), but got {shown(value)}")


def whole(name: str, value: Any, *, minimum: int) -> None:
    """`value` must be an int of at least `minimum`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise InputError(f"expected {name} to be a whole number >= {minimum}, but got {shown(value)}")


def one_of(name: str, value: Any, choices: Iterable[str]) -> None:
    """`value` must be one of `choices`; a near miss is named."""
    choices = list(choices)
    if value not in choices:
        near = get_close_matches(str(value), choices, n=1) or get_close_matches(str(value).lower(), choices, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        rule = f"to be one of {', '.join(choices)}" if choices else "not to be given (there are none)"
        if near and len(rule) > LONGEST // 2:  # what is meant is plain, and the list would not fit
            rule = "to be a known one"
        raise InputError(f"expected {name} {rule}, but got {value!r}{hint}")


def expanded(path: Path | str) -> Path:
    """A path with "~" replaced; "~nobody" is an error of one line."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        told = f"expected the home folder of a user in {str(path)!r}, but there is none; write it out"
        raise InputError(told) from None


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """Bytes of the machine's memory; 2**62 if the system does not say."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 1 << 62


IN_TRAINING = 16
"""Bytes of memory that a parameter takes in training, at least: itself, its gradient, its momentum, the best so far."""


def check_parameters(name: str, count: int) -> None:
    """Raises if a network of `count` parameters cannot be trained in this machine's memory."""

    def written(number: int) -> str:
        return f"{number:.3g}" if is_finite(number) else f"10^{math.floor(math.log10(number))}"

    if IN_TRAINING * count > memory():
        raise InputError(
            f"expected {name} to fit into {memory() / 1e9:.3g} GB of memory, but its {written(count)} parameters take "
            f"{written(IN_TRAINING * count // 10**9)} GB in training; make it smaller"
        )


def shown(value: Any) -> str:
    """A short repr for a message."""
    try:
        text = " ".join(repr(value).split())
    except (RecursionError, ValueError):  # a whole number of more digits than Python writes
        text = f"{type(value).__name__} that is too large to show"
    return text if len(text) <= 80 else text[:77] + "..."


def did_you_mean(name: str, keys: list[str]) -> str:
    """A hint at the nearest key, e.g. "; did you mean 'train.epochs'?"; else the keys there are."""
    # Sections are often right, and make all keys in them look near.
    last = {key: key.rpartition(".")[2] for key in keys}
    words = get_close_matches(name.rpartition(".")[2], sorted({*last.values()}), n=1)
    if near := get_close_matches(name, [key for key in keys if last[key] in words], n=1, cutoff=0.0):
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(keys)}" if keys else "; there is none"


def writable(name: str, text: str) -> str:
    """A text that UTF-8 can hold: a lone surrogate (an undecodable file name) would break every file it goes to."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"expected {name} to be valid Unicode, but got {shown(text)}; rename it") from None
    return text


def html_table(rows: Mapping[str, str]) -> str:
    """Names and values as an HTML table, for notebooks."""
    return f"<table>{''.join(f'<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>' for k, v in rows.items())}</table>"


class Value:
    """Mixin for frozen dataclasses (declared with repr=False): prints as one would write it, without the defaults."""

    def __repr__(self) -> str:
        values = [(field, getattr(self, field.name)) for field in fields(self)]  # type: ignore[arg-type]
        written = [f"{f.name}={value!r}" for f, value in values if f.default is MISSING or value != f.default]
        return f"{type(self).__name__}({', '.join(written)})"
