"""JSON as the standard has it: no NaN, no Infinity, in or out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from rcad.errors import InputError


def dumps(value: Any, *, indent: int | None = None) -> str:
    """The value as JSON; a number that is not finite must have become None before (see `finite_or_none`)."""
    return json.dumps(value, indent=indent, allow_nan=False)


def loads(text: str, source: str) -> Any:
    """The value of JSON text; `source` names the file in a message."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        reason = "lists nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise InputError(
            f"expected {source} to be valid JSON, but got: {reason}; restore the file or remove it"
        ) from None


def finite_or_none(value: Any) -> Any:
    """The value with None for every number that is not finite, at any depth; tuples become lists."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite_or_none(item) for key, item in value.items()}
    return [finite_or_none(item) for item in value] if isinstance(value, list | tuple) else value


def _refuse(constant: str) -> None:
    raise ValueError(f"the constant {constant}")
