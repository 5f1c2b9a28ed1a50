"""What other people's programs and scripts call: every public name and its signature, every command and option."""

import inspect
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

import rcad
from contracts import tables
from contracts.house import commands, integration, integrations, is_ours, public

MODULES = ["rcad", "rcad.methods", *(f"rcad.integrations.{name}" for name in integrations())]
_PATH = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def present(name: str) -> dict[str, str] | None:
    """The names of a module and of its classes' members, each with its signature; None where a library is missing."""
    module = _module(name)
    if module is None:
        return None
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
    return found


@pytest.mark.parametrize("name", MODULES)
def test_names_and_signatures(name: str) -> None:
    found = present(name)
    if found is None:
        pytest.skip(f"the library of {name} is not installed")
    tables.check("names", name, found, key=name)


def test_the_table_has_every_module() -> None:
    assert sorted(tables.load("names")) == sorted(MODULES)


def test_every_name_is_listed() -> None:
    assert set(rcad.__all__) == {name for name in dir(rcad) if not name.startswith("__")}


def _module(name: str) -> ModuleType | None:
    if name in ("rcad", "rcad.methods"):
        return rcad if name == "rcad" else rcad.methods
    return integration(name.rpartition(".")[2])


def _members(kind: type) -> list[tuple[str, str]]:
    """Public members that were written here, not in a library, and are not in the signature as fields."""
    found = []
    try:
        fields = set(inspect.signature(kind).parameters)
    except ValueError:
        fields = set()
    for name in dir(kind):
        home = next((one for one in kind.__mro__ if name in vars(one)), None)
        made = re.fullmatch(r"set_\w+_request", name)  # by scikit-learn, of our parameters
        hidden = (name.startswith("_") and name != "__call__") or name in fields or made
        if hidden or home is None or not is_ours(home):
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
    if callable(value):
        return _signature(inspect.signature(value))
    return _PATH.sub("", str(value) if hasattr(value, "__args__") else type(value).__name__)


class _Bare(str):
    """A text that stands in a signature without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _signature(found: inspect.Signature) -> str:
    """As Python writes it, but types by their last name: the module that holds one is no contract."""
    parameters = [one.replace(annotation=_type(one.annotation)) for one in found.parameters.values()]
    plain = found.replace(parameters=parameters, return_annotation=_type(found.return_annotation))
    return _ADDRESS.sub("", _PATH.sub("", str(plain)))


def _type(annotation: Any) -> Any:
    if annotation is inspect.Signature.empty:
        return annotation
    annotation = getattr(annotation, "__forward_arg__", annotation)
    return _Bare(annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))


TYPERS = ("--install-completion", "--show-completion")


def present_commands() -> dict[str, dict[str, str]]:
    """By the words of a command: each option with all its spellings, and what it takes."""
    return {
        " ".join(("rcad", *words)): dict(_option(option) for option in one.params if option.opts[0] not in TYPERS)
        for words, one in commands()
    }


def test_commands_and_options() -> None:
    tables.check("commands", "commands", present_commands())


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
