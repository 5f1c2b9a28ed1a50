"""The errors that are a user's to mend: one sentence that says what was expected, what came, what to do."""

from __future__ import annotations


class InputError(ValueError):
    """A value, file or argument that cannot be used as it is. The command line shows it without a traceback."""


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f'expected {package} to be installed: pip install "rcad[{extra}]"')
