"""Methods of the user's own, `mypackage.mymodule:my_method(lam=0.3)`: functions that return a `Method`.

A module is imported where the user names it, in a command or in a call; a worker imports what was named to the process
that started it. Configs and records name it too, and may come from anybody: reading one imports nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import wraps
from inspect import isfunction, signature
from pathlib import Path
from types import ModuleType
from typing import Any

from rcad.errors import InputError, did_you_mean, shown
from rcad.loss.method_rows import AUTO, OWN, SOURCE, Rows, method_rows
from rcad.loss.methods import Method, method

_loaded: dict[str, str] = {}  # the hash of each module's source as it was imported


def imported(rows: Rows) -> Rows:
    """The rows, those of the user's own methods with the hash of their code; each has been tried."""
    full = []
    for name, values in rows:
        full.append((name, {SOURCE: _register(name), **dict(values)} if ":" in name else values))
        if ":" in name:
            method(name, **dict(full[-1][1]))
    return method_rows(full)


def _register(name: str) -> str:
    """Imports it; from now on it has a place in `OWN`."""
    module_name, _, function_name = name.partition(":")
    module, digest = _module(module_name)
    function = getattr(module, function_name, None)
    if not isfunction(function):
        hint = did_you_mean(function_name, [key for key, value in vars(module).items() if isfunction(value)])
        raise InputError(f"expected a function {name}, but {module.__file__} has none{hint}")
    OWN[name] = _maker(name, function, digest, os.path.relpath(str(module.__file__)))
    return digest


def _module(name: str) -> tuple[ModuleType, str]:
    """The module and the hash of its source; imported again where a notebook has an older one."""
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())
    importlib.invalidate_caches()
    imported_before = name in sys.modules
    try:
        module = importlib.import_module(name)
        if name == "__main__" or not (getattr(module, "__file__", None) or "").endswith(".py"):
            raise InputError(f"expected a module in a file, but got {name}; write the function into a .py file")
        digest = hashlib.sha256(Path(str(module.__file__)).read_bytes()).hexdigest()[:16]
        if imported_before and _loaded.get(name) != digest:
            module = importlib.reload(module)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            near = get_close_matches(name, [path.stem for path in Path().glob("*.py")], n=1)
            hint = f"did you mean {near[0]!r}?" if near else "put its folder on PYTHONPATH"
            raise InputError(f"expected a module {name} on the path or in this folder, but got none; {hint}") from None
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"expected {name} to import, but got {shown(reason)[1:-1]}; correct the module") from error
    _loaded[name] = digest
    return module, digest


def _maker(name: str, function: Callable[..., Any], digest: str, path: str) -> Callable[..., Method]:
    """The function as `METHODS` has them: its value knows the parameters and the code that it was built from."""
    shape = signature(function)

    @wraps(function)
    def make(**parameters: Any) -> Method:
        if parameters.pop(SOURCE, digest) != digest:
            raise InputError(
                f"expected the code of {name} that this run or config was made with, but {path} has changed; restore "
                "it, or begin a new run with --method and without --config"
            )
        try:
            bound = shape.bind(**parameters)
        except TypeError:
            raise InputError(
                f"expected to call a method's function with {', '.join(parameters) or 'no arguments'}, but got "
                f"{path}:{function.__name__}{shape}; give each parameter a default, as in lam=0.1"
            ) from None
        bound.apply_defaults()
        try:
            built = function(**parameters)
        except InputError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise InputError(f"expected {name} to return a method, but it raised {reason}; correct it") from error
        if not isinstance(built, Method):
            raise InputError(f"expected {name} to return a method (rcad.Method), but got {shown(built)}")
        if any(getattr(term.where, "alpha", None) == AUTO for term in built.terms):
            raise InputError(f"expected {name} to give alpha a number, but got 'auto'; see: rcad suggest-alpha")
        (row,) = method_rows([(name, {**bound.arguments, SOURCE: digest})])
        return replace(built, recipe=(row,))

    return make
