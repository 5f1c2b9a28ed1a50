"""How docstrings are written here, told to mkdocstrings.

"Example:" stands above a doctest, which Griffe calls "Examples:"; names that share a line ("mean, std: ...") are one
entry each.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_TITLE = re.compile(r"^Example:$", re.MULTILINE)
_SHARED = re.compile(r"^(?P<indent> {4})(?P<names>\w+(?:, \w+)+): (?P<text>.*(?:\n {5,}.*)*)", re.MULTILINE)


class Sections(griffe.Extension):
    """Changes the text of a docstring before it is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _SHARED.sub(_apart, _TITLE.sub("Examples:", obj.docstring.value))


def _apart(entry: re.Match[str]) -> str:
    return "\n".join(f"{entry['indent']}{name}: {entry['text']}" for name in entry["names"].split(", "))
