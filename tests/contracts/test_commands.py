"""The words and options of every command."""

from __future__ import annotations

from typing import Any

from contracts import tables
from contracts.house import commands

TYPERS = ("--install-completion", "--show-completion")


def present() -> dict[str, dict[str, str]]:
    """By the words of a command: each option with all its spellings, and what it takes."""
    return {
        " ".join(("rcad", *words)): dict(_option(option) for option in one.params if option.opts[0] not in TYPERS)
        for words, one in commands()
    }


def test_commands_and_options() -> None:
    tables.check("commands", "commands", present())


def _option(one: Any) -> tuple[str, str]:
    spellings = " ".join([*one.opts, *one.secondary_opts])
    if one.param_type_name == "argument":
        spellings, parts = one.metavar, ["argument"]
    else:
        parts = ["switch" if one.is_flag else one.metavar]
    if one.multiple or one.nargs != 1:
        parts.append("repeatable")
    if one.required:
        parts.append("required")
    if one.default is not None and one.default is not False:
        parts.append(f"default {one.default}")
    if one.envvar:
        parts.append(f"${one.envvar}")
    return spellings, ", ".join(parts)
