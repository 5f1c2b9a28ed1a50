"""Imports that wait until they are needed, so that `rcad --help` does not pay for them."""

from __future__ import annotations

import importlib
from typing import Any

from rcad.errors import MissingExtraError


def need(module: str, package: str, extra: str = "data") -> Any:
    """The module `module`, or a `MissingExtraError` naming the extra of rcad that installs `package`."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError(package, extra) from None


def resolve(target: str) -> Any:
    """The object that "package.module:attribute" names, imported now."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
