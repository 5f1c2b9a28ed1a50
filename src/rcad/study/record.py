"""The record of a comparison: one JSON file, written after every method, so that nothing is trained twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rcad.errors import InputError
from rcad.runs.files import dumps, finite_or_none, loads, make_folder, read_text, write_text
from rcad.runs.record import versions
from rcad.study.comparison import typical
from rcad.study.verdict import RULE, Cells, compared, sentences, summaries

TARGET, FILE = "compare", "compare.json"


def earlier(out: Path, about: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The methods that an earlier comparison on the same data left in this folder, by name; all else is refused.

    Args:
        about: the data and what is predicted.
    """
    path = out / FILE
    found: Any = loads(read_text(path), str(path)) if path.is_file() else None
    if isinstance(found, dict) and found.get("target") == TARGET:
        if found.get("about") != about:
            other = (found.get("about") or {}).get("data")
            raise InputError(f"expected a folder for this data, but {path} compares on {other!r}; pass another --out")
        return dict(found["methods"])
    for name in (FILE, "index.html", "compare.md"):
        if (out / name).exists():
            raise InputError(
                f"expected a folder for the comparison, but {out / name} is something else; pass another --out"
            )
    return {}


def check_goes_on(out: Path, settings: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuses settings under which results that are in the folder would be lost."""
    path = out / FILE
    if not path.is_file():
        return
    found: Any = loads(read_text(path), str(path))
    for key in ("seeds", "budget", "epochs"):
        if found.get(key, settings[key]) != settings[key]:
            raise InputError(
                f"expected {key} {found[key]} as in {path}, but got {settings[key]}; pass another --out to keep both"
            )
    lost = [name for name in found["methods"] if name not in names]
    if lost:
        raise InputError(
            f"expected the methods that {path} compares, but {lost[0]} is not among them; add it, or pass another --out"
        )


def build(settings: Mapping[str, Any], cells: Cells) -> dict[str, Any]:
    """The record.

    Args:
        settings: data, command, seeds, budget, epochs, metrics, test_ratio, sizes, held_out.
        cells: what each method gave, by name.
    """
    metrics: Sequence[str] = settings["metrics"]
    pairs = compared(cells, metrics, settings["test_ratio"])
    base = next(name for name, cell in cells.items() if cell["role"] == "base")
    record = {
        "target": TARGET,
        **settings,
        "base": base,
        "rule": RULE,
        "methods": {name: {**cell, "chosen": _chosen(cell)} for name, cell in cells.items()},
        "results": summaries(cells, metrics),
        "differences": [pair.to_dict() for pair in pairs],
        "sentences": sentences(cells, pairs, metrics),
        "versions": versions(("rcad", "torch", "numpy", "scipy")),
    }
    return _plain(record)


def keep(out: Path, about: Mapping[str, Any], cells: Cells) -> None:
    """What is done so far; the whole record takes its place at the end."""
    _write(out / FILE, _plain({"target": TARGET, "about": about, "methods": cells}))


def write(out: Path, record: Mapping[str, Any], html: str, markdown: str) -> list[Path]:
    """The three files of a comparison."""
    _write(out / FILE, record)
    write_text(out / "index.html", html)
    write_text(out / "compare.md", markdown)
    return [out / "index.html", out / "compare.md", out / FILE]


def _write(path: Path, record: Mapping[str, Any]) -> None:
    make_folder(path.parent)
    write_text(path, dumps(record, indent=1) + "\n")


def _chosen(cell: Mapping[str, Any]) -> dict[str, str]:
    rows = [one["chosen"] for one in cell["seeds"].values()]
    return {key: typical([row[key] for row in rows]) for key in rows[0]}


def _plain(record: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = loads(dumps(finite_or_none(record)), "the record of a comparison")
    return plain
