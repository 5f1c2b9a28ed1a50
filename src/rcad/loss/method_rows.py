"""A method as it is written: in a config as rows of a name and parameters, by a user as text. Neither needs torch.

A record's rows leave out what had its default. Defaults that changed since are listed in `CHANGED`: such a parameter is
written into every new row where it makes a difference, so that old rows keep their meaning and their ids.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from shlex import quote
from typing import Any, Final, NamedTuple

from rcad.errors import InputError, shown, writable

MethodRow = tuple[str, tuple[tuple[str, Any], ...]]
Rows = tuple[MethodRow, ...]
Defaults = Mapping[str, Mapping[str, Any]]
"""The parameters of every method and their defaults, as the engine knows them."""

OWN: dict[str, Callable[..., Any]] = {}
"""Methods of the user's own that were named to this process, by module:function; `rcad.loss.own` fills it."""
SOURCE: Final = "source_sha256"
"""In the row of such a method: the beginning of its module's hash. Other code makes another run."""
_OWN = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)(?=\s*(?:[(+]|$))")

_WORDS = {"none": None, "true": True, "false": False}


def method_rows(rows: Any) -> Rows:
    """Rows in their one form: parameters sorted by name, lists as tuples, the text "none" (TOML has no null) as None.

    Args:
        rows: (name, parameters) each, or what `rows_to_plain` wrote; a lone dict need not stand in a list.
    """
    rows = [rows] if isinstance(rows, Mapping) else rows
    if not isinstance(rows, list | tuple) or not rows:
        raise InputError(f"expected method to be a list of at least one row, but got {shown(rows)}; give a method")
    return tuple(_row(f"method[{index}]", row) for index, row in enumerate(rows))


def rows_to_plain(rows: Iterable[MethodRow]) -> list[dict[str, Any]]:
    """The rows as `rcad.Method.from_dict` takes them under "methods"."""
    return [{"name": name, **{key: _listed(value) for key, value in values}} for name, values in rows]


def method_text(rows: Iterable[MethodRow]) -> str:
    """The rows as `parse_method` reads them, e.g. "data_augmentation + rcad(alpha=0.7)"."""

    def call(name: str, values: Iterable[tuple[str, Any]]) -> str:
        text = ", ".join(f"{key}={value!r}" for key, value in values if key != SOURCE)
        return f"{name}({text})" if text else name

    return " + ".join(call(name, values) for name, values in rows)


def label(rows: Iterable[MethodRow]) -> str:
    """The rows of a config as a user would write them today: with what they meant where a default has changed."""

    today = [(*parameter, changed.now) for parameter, changed in CHANGED.items() if changed.silent]
    return method_text(_selected(as_recorded(rows), lambda *parameter: parameter not in today))


def parse_method(text: str) -> Rows:
    """The rows of a method as a user writes it: names joined by "+", each with parameters in brackets or without.

    Values are numbers, words (`norm=linf` needs no quotes), true, false, none, and tuples or lists of these. The text
    is read as an expression and never evaluated.
    """
    try:
        # A colon stands in no expression, "@" in no method.
        rows = [_parsed_row(part) for part in _summands(_tree("" if "@" in text else _OWN.sub(r"\1@\2", text)))]
    except _UNREADABLE:
        short = repr(text if len(text) <= 60 else text[:57] + "...")
        advice = "see: rcad methods list"
        if "lambda" in text:
            advice = "write lam for lambda"
        elif re.fullmatch(r"\w+(\s*,\s*\w+)+", text):
            advice = "name one; rcad compare --methods takes several"
        raise InputError(
            f"expected a method like rcad, mixup + rcad or rcad(alpha=1.0, lam=0.1), but got {short}; {advice}"
        ) from None
    return method_rows(rows)


def parse_value(text: str) -> Any:
    """The value of one parameter, as `parse_method` reads it; a tuple needs no brackets, and what is none is a text."""
    try:
        return _parsed_value(_tree(text))
    except _UNREADABLE:
        return text.strip()


def named_method(text: str) -> Rows:
    """`parse_method` for what the user wrote in a command or a call: code that it names is imported, and hashed."""
    rows = parse_method(text)
    if not has_own(rows):
        return rows
    from rcad.loss.own import imported

    return imported(rows)


def has_own(rows: Iterable[MethodRow]) -> bool:
    """Whether one of them is a function of the user's, module:function."""
    return any(":" in name for name, _ in rows)


def sources(rows: Iterable[MethodRow]) -> list[str]:
    """The hashes of the code of the user's own methods."""
    return [value for _, values in rows for key, value in values if key == SOURCE]


def check_named(rows: Rows) -> None:
    """Refuses code that only a file names: to read a file must not run what it says."""
    unknown = [name for name, _ in rows if ":" in name and name not in OWN]
    if unknown:
        raise InputError(
            f"expected {unknown[0]} to be named in a command or a call, since a file that names it imports nothing; if "
            f"you trust it, pass it too: --method {quote(method_text(rows))}"
        )


def without_defaults(rows: Iterable[MethodRow], defaults: Defaults) -> Rows:
    """The rows less every parameter that has its default, so that writing a default out does not make another run.

    A default that has changed is kept where it makes a difference, and any value of it left out where none does.
    """
    rows = tuple(rows)

    def counts(name: str, key: str, value: Any) -> bool:
        if changed := CHANGED.get((name, key)):
            return changed.counts(rows) and not (changed.silent and value == changed.before)
        own = defaults.get(name, {})
        return key not in own or own[key] != value or isinstance(own[key], bool) != isinstance(value, bool)

    return _selected(rows, counts)


class Changed(NamedTuple):
    """A parameter whose default changed after runs had been recorded."""

    before: Any  # its value in a written row that leaves it out
    now: Any  # its default
    counts: Callable[[Rows], bool] = lambda rows: True  # whether the two differ beside these rows
    silent: bool = False  # `before` is still left out where it is meant, so that its runs keep their ids


AUTO: Final = "auto"  # alpha: measured on the data. lam: by the kind of target.
SEARCHED = ("alpha", "lam")  # what a search tries where the user gives none
DIRECTION = Changed(
    "training",
    "plain",
    lambda rows: any(name == "label_smoothing" or dict(values).get("smoothing") for name, values in rows),
)
CHANGED = {
    **{(name, "direction"): DIRECTION for name in ("rcad", "rcad_text")},
    **{(name, "alpha"): Changed(0.5, AUTO, silent=True) for name in ("rcad", "rcad_random")},
    **{(name, "lam"): Changed(0.02, AUTO, silent=True) for name in ("rcad", "rcad_random")},
    ("rcad_released", "jitter"): Changed(0.01, 0.0),
}
ADDED = {
    (name, key): value
    for name in ("rcad_random", "confidence_penalty")
    for key, value in (("measure", "negative_entropy"), ("every", 1))
}
"""Parameters that came after runs had been recorded, and what these did."""


def spelled(rows: Iterable[MethodRow], *, leave: Collection[str] = ()) -> Rows:
    """The rows that a user writes today, with changed defaults written out, but for the parameters in `leave`."""
    return _filled(tuple(rows), lambda changed: changed.now, leave)


def as_recorded(rows: Iterable[MethodRow]) -> Rows:
    """The rows of a record, perhaps an old one, with what they meant written out."""
    return _filled(tuple(rows), lambda changed: changed.before)


def as_first_written(rows: Iterable[MethodRow]) -> Rows:
    """The rows less a parameter that makes no difference in them, as they were before there was one."""
    rows = tuple(rows)
    without = [parameter for parameter, changed in CHANGED.items() if not changed.counts(rows)]

    def is_first(name: str, key: str, value: Any) -> bool:
        return (name, key) not in without and ((name, key), value) not in ADDED.items()

    return _selected(rows, is_first)


def left_open(rows: Rows) -> list[str]:
    """For a message: each parameter that written rows leave out though its default has changed."""
    return [
        f"{name}.{key}, which is read as {changed.before!r}, the default when such rows were first written, not as "
        f"today's {changed.now!r}"
        for (name, _), missing in zip(rows, _missing(rows), strict=True)
        for key, changed in missing.items()
    ]


def _missing(rows: Rows) -> list[dict[str, Changed]]:
    """What each row leaves out though its default has changed, where that makes a difference beside the others."""
    counting = {parameter: changed for parameter, changed in CHANGED.items() if changed.counts(rows)}
    return [
        {key: changed for (method, key), changed in counting.items() if method == name and key not in dict(values)}
        for name, values in rows
    ]


def _filled(rows: Rows, value: Callable[[Changed], Any], leave: Collection[str] = ()) -> Rows:
    """The rows with a value for what they leave out."""
    added = [[(key, value(changed)) for key, changed in row.items() if key not in leave] for row in _missing(rows)]
    return tuple((name, tuple(sorted((*values, *more)))) for (name, values), more in zip(rows, added, strict=True))


def _selected(rows: Iterable[MethodRow], keep: Callable[[str, str, Any], bool]) -> Rows:
    """The rows with those parameters alone for which `keep(method, parameter, value)` holds."""
    return tuple((name, tuple((key, v) for key, v in values if keep(name, key, v))) for name, values in rows)


def _row(name: str, row: Any) -> MethodRow:
    if isinstance(row, Mapping):
        if "name" not in row:
            raise InputError(f"expected {name}.name, but it is missing; name the method")
        row = row["name"], [(key, row[key]) for key in row if key != "name"]
    if not isinstance(row, list | tuple) or len(row) != 2:
        raise InputError(f"expected {name} to be a table with a name, but got {shown(row)}; give a name and parameters")
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


_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


def _tree(text: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python has its own opinions on texts like "1if"
        return ast.parse(text.strip(), mode="eval").body


def _summands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_summands(node.left), *_summands(node.right)]
    return [node]


def _parsed_row(node: ast.expr) -> tuple[str, list[tuple[str, Any]]]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        name, values = _parsed_row(node.right)
        return f"{ast.unparse(node.left)}:{name}", values
    if isinstance(node, ast.Name):
        return node.id, []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        if any(keyword.arg is None for keyword in node.keywords):  # rcad(**parameters)
            raise ValueError
        return node.func.id, [(str(keyword.arg), _parsed_value(keyword.value)) for keyword in node.keywords]
    raise ValueError


def _parsed_value(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return _WORDS.get(node.id.lower(), node.id)
    if isinstance(node, ast.Tuple | ast.List):
        return [_parsed_value(item) for item in node.elts]
    value = ast.literal_eval(node)
    if value is not None and not isinstance(value, bool | int | float | str):
        raise ValueError
    return value
