"""Exit codes, but for those of signals, and the shape of every `--json` output: what scripts rely on."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from unittest.mock import patch

from contracts import tables
from contracts.house import RESULTS, TABLES, Result, commands, rcad, without_pictures, workplace
from made import files, png

# What depends on the machine, on how its numbers are rounded, and on the results there are.
VARYING = {"commit": "null or text", "protocol": "null or text", "seeds_needed": "null or number"}
VARYING["versions"] = "texts by package"
_, *CALLS = (TABLES / "calls.txt").read_text(encoding="utf-8").splitlines()


def test_exit_codes_and_shapes_of_json(tmp_path: Path) -> None:
    """How each call ends, one after the other in a folder with a table and some images, and what JSON it prints."""
    found, run = dict[str, Any](), ""
    # Pictures and what packages do when they are imported have no part in the shape of JSON.
    with workplace(tmp_path), without_pictures(), patch("rcad.cli.doctor._tried", return_value=(None, "")):
        rows = [f"{i % 7}.5,{i * 3 % 11},{'rs'[i % 2]},{i % 7 + i % 11 / 4}" for i in range(60)]
        Path("my.csv").write_text("\n".join(["length,width,colour,price", *rows]) + "\n", encoding="utf-8")
        files(**{f"images__{name}_dot_png": png() for name in ("cat__0", "cat__1", "dog__0", "dog__1")})
        for words in CALLS:
            result = rcad(words, run=run, results=RESULTS)
            ending, is_json = _ending(words, result), "--json" in words.split() and result.code < 2
            found[words] = {ending: shape(result.json())} if is_json else ending
            if not run and is_json and words.startswith("train"):
                run = result.json()[0]["id"]
    tables.check("invocations", "an exit code or the shape of --json", found)


def _ending(words: str, result: Result) -> str:
    if words == "doctor --json":  # on the machine it depends whether something is bad
        return f"exit {result.code - any(one['level'] == 'bad' for one in result.json())}"
    if result.code < 2:
        return f"exit {result.code}"
    one_line = result.err.startswith("rcad: ") and result.err.count("\n") == 1
    silent = "--json" not in words.split() or not result.out
    return f"exit {result.code}" + (", one line on stderr" if one_line and silent else f": {result.out}{result.err}")


def test_every_json_there_is_has_its_shape_pinned() -> None:
    with_json = {" ".join(words) for words, one in commands() if any("--json" in option.opts for option in one.params)}
    pinned = [words for words in CALLS if "--json" in words.split()]
    assert {one for one in with_json if not any(words.startswith(one) for words in pinned)} == set()


def test_the_script_and_the_module_are_the_command() -> None:
    (script,) = entry_points(group="console_scripts", name="rcad")
    assert script.value == "rcad.cli.main:main"
    for words in ("--version", "nonsense"):
        done = subprocess.run([sys.executable, "-m", "rcad.cli", words], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == rcad(words)


def shape(value: Any) -> Any:
    """By the path of each object: the types of its entries, each with the keys that have it."""
    found = {path: _entries(some) for path, some in _objects(value).items() if not path.endswith(".versions")}
    return {_kind(value): found} if found else _kind(value)


def _objects(value: Any, path: str = "") -> dict[str, list[dict[str, Any]]]:
    """Every object by its path; entries that have the same keys share one, with a star."""
    found: dict[str, list[dict[str, Any]]] = {}
    children = [(f"{path}[]", one) for one in value] if isinstance(value, list) else []
    if isinstance(value, dict):
        found[path or "."] = [value]
        alike = len({str(_keys(one)) or key for key, one in value.items()}) == 1
        children = [(f"{path}.{'*' if alike else key}", one) for key, one in value.items()]
    for where, child in children:
        for key, some in _objects(child, where).items():
            found.setdefault(key, []).extend(some)
    return found


def _keys(value: Any) -> Any:
    """Of an object, or of a list of objects that have the same."""
    if isinstance(value, list):
        inner = {str(_keys(one)) for one in value}
        return inner if len(inner) == 1 else ""
    return sorted(value) if isinstance(value, dict) else ""


def _entries(objects: list[dict[str, Any]]) -> list[str]:
    keys: dict[str, list[str]] = {}
    for key in sorted({key for one in objects for key in one}):
        kinds = {_kind(one[key]) if key in one else "absent" for one in objects}
        keys.setdefault(VARYING.get(key) or " or ".join(sorted(kinds)), []).append(key)
    return [f"{kind}: {', '.join(some)}" for kind, some in sorted(keys.items())]


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"list of {' or '.join(sorted(set(map(_kind, value)))) or 'nothing'}"
    kinds = {dict: "object", bool: "bool", int: "number", float: "number", str: "text", type(None): "null"}
    return kinds[type(value)]
