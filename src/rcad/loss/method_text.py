"""`--method "mixup + rcad(alpha=1.0)"`: read as an expression, never evaluated."""

from __future__ import annotations

import ast
import warnings
from typing import Any

from rcad.errors import InputError
from rcad.loss.method_rows import MethodRow, method_rows

_WORDS = {"none": None, "true": True, "false": False}


def parse_method(text: str) -> tuple[MethodRow, ...]:
    """The rows of a method as a user writes it: names joined by "+", each with parameters in brackets or without.

    Values are numbers, words (`norm=linf` needs no quotes), true, false, none, and tuples or lists of these.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python has its own opinions on texts like "1if"
            body = ast.parse(text.strip(), mode="eval").body
        rows = [_row(part) for part in _summands(body)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(
            f"expected a method like rcad, mixup + rcad or rcad(alpha=1.0, lam=0.1), but got {_short(text)}; "
            "see: rcad methods list"
        ) from None
    return method_rows(rows)


def _summands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_summands(node.left), *_summands(node.right)]
    return [node]


def _row(node: ast.expr) -> tuple[str, list[tuple[str, Any]]]:
    if isinstance(node, ast.Name):
        return node.id, []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        return node.func.id, [(_name(keyword), _value(keyword.value)) for keyword in node.keywords]
    raise ValueError


def _name(keyword: ast.keyword) -> str:
    if keyword.arg is None:  # rcad(**parameters)
        raise ValueError
    return keyword.arg


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return _WORDS.get(node.id.lower(), node.id)
    if isinstance(node, ast.Tuple | ast.List):
        return [_value(item) for item in node.elts]
    value = ast.literal_eval(node)
    if value is not None and not isinstance(value, bool | int | float | str):
        raise ValueError
    return value


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
