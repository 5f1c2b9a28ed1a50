"""Refusals. That an InputError is one line of limited length whatever it is given, tests/test_errors.py says."""

import operator
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rcad.errors import InputError


@contextmanager
def fails_in_one_line(*says: str, match: str | None = None) -> Iterator[None]:
    """What is inside must be refused, in a line that says all of this."""
    with pytest.raises(InputError, match=match) as caught:
        yield
    for words in says:
        assert words in str(caught.value)


def refusals(*rows: tuple[Any, ...], of: Callable[..., object] = operator.call) -> Any:
    """A test of what must be refused in one line. A row: the arguments, and the words, of which " .. " leaves some out.

    `of` is called with the arguments; by default the first of them, with the others.
    """

    @pytest.mark.parametrize("row", rows, ids=[row[-1] for row in rows])
    def test(row: tuple[Any, ...]) -> None:
        *arguments, says = row
        with fails_in_one_line(match=".*".join(map(re.escape, says.split(" .. ")))):
            of(*arguments)

    return test
