"""What other people's programs and scripts call: every public name and its signature, every command and option."""

import contextlib
import inspect
import re
from collections.abc import Mapping
from typing import Any

import pytest

import rcad
from contracts import tables
from contracts.house import commands, integration, integrations, public

MODULES = ["rcad", "rcad.methods", *(f"rcad.integrations.{name}" for name in integrations())]
_PATH = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")
_QUOTED = re.compile(r"(: |-> )(['\"])(.*?)\2(?=,|\)| =|$)")
_FORWARD = re.compile(r"ForwardRef\((.*?)\)")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@pytest.mark.parametrize("name", MODULES)
def test_names_and_signatures(name: str) -> None:
    module = {"rcad": rcad, "rcad.methods": rcad.methods}.get(name) or integration(name.rpartition(".")[2])
    if module is None:
        pytest.skip(f"the library of {name} is not installed")
    names = public(module)
    if name == "rcad.methods":
        names = sorted({*names, *(one for one in rcad.METHODS if hasattr(module, one))})
    found: dict[str, str] = {}
    for one in names:
        value = getattr(module, one)
        if name != "rcad" and one in rcad.__all__ and value is getattr(rcad, one):
            found[one] = "as in rcad"
            continue
        found[one] = _described(value)
        if inspect.isclass(value):
            found |= {f"{one}.{member}": text for member, text in _members(value)}
    tables.check("names", name, found, key=name)


def test_the_table_has_every_module_and_every_name_is_listed() -> None:
    assert sorted(tables.load("names")) == sorted(MODULES)
    assert set(rcad.__all__) == {name for name in dir(rcad) if not name.startswith("__")}


def _members(kind: type) -> list[tuple[str, str]]:
    """Public members that were written here, not in a library, and are not in the signature as fields."""
    found, fields = [], set[str]()
    with contextlib.suppress(ValueError):
        fields = set(inspect.signature(kind).parameters)
    for name in dir(kind):
        home = next((one for one in kind.__mro__ if name in vars(one)), None)
        made = re.fullmatch(r"set_\w+_request", name)  # by scikit-learn, of our parameters
        hidden = (name.startswith("_") and name != "__call__") or name in fields or made
        if hidden or home is None or not home.__module__.startswith("rcad."):
            continue
        value = inspect.getattr_static(kind, name)
        value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        found.append((name, "property" if isinstance(value, property) else _described(value)))
    return found


def _described(value: Any) -> str:
    if inspect.ismodule(value):
        return "module"
    if isinstance(value, Mapping):
        return ", ".join(sorted(map(str, value)))
    if inspect.isclass(value) and issubclass(value, Exception):
        return f"an error, {', '.join(base.__name__ for base in value.__bases__)}"
    if getattr(value, "_is_protocol", False):
        return "a protocol"
    if callable(value):  # as Python writes it, but types by their last name: the module that holds one is no contract
        text = _FORWARD.sub(r"\1", _ADDRESS.sub("", str(inspect.signature(value))))
        return _QUOTED.sub(r"\1\3", _PATH.sub("", text))
    return _PATH.sub("", str(value) if hasattr(value, "__args__") else type(value).__name__)


def test_commands_and_options() -> None:
    """By the words of a command: each option with all its spellings, and what it takes."""
    typers = ("--install-completion", "--show-completion")
    found = {
        " ".join(("rcad", *words)): dict(_option(option) for option in one.params if option.opts[0] not in typers)
        for words, one in commands()
    }
    tables.check("commands", "commands", found)


def _option(one: Any) -> tuple[str, str]:
    argument = one.param_type_name == "argument"
    notes = {
        "repeatable": one.multiple or one.nargs != 1,
        "required": one.required,
        f"default {one.default}": one.default is not None and one.default is not False,
        f"${one.envvar}": one.envvar,
    }
    kind = "argument" if argument else "switch" if one.is_flag else one.metavar
    spellings = one.metavar if argument else " ".join([*one.opts, *one.secondary_opts])
    return spellings, ", ".join([kind, *(note for note, holds in notes.items() if holds)])
