"""Refusals. That an InputError is one line of limited length whatever it is given, tests/test_errors.py says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rcad.errors import InputError


@contextmanager
def one_line(*says: str, match: str | None = None) -> Iterator[None]:
    """What is inside must be refused, in a line that says all of this."""
    with pytest.raises(InputError, match=match) as caught:
        yield
    for words in says:
        assert words in str(caught.value)
