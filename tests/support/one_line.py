"""What every refusal of the package must be: an InputError of one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rcad.errors import InputError


@contextmanager
def one_line(*says: str, match: str | None = None) -> Iterator[None]:
    """What is inside must be refused, in one line that says all of this."""
    with pytest.raises(InputError, match=match) as caught:
        yield
    assert "\n" not in str(caught.value)
    for words in says:
        assert words in str(caught.value)
