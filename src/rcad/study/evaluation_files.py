"""The files of an evaluation: OUT/evaluation.{json, md, html}."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rcad.errors import InputError, MissingExtraError
from rcad.evaluate.saved_run.page import markdown, page
from rcad.runs.files import check_folder, dumps, loads, make_folder, read_text, write_text
from rcad.study.evaluations import KIND

STEM = "evaluation"


def check(out: Path) -> None:
    """That the files can be written, before anything is measured: packages, the folder, nobody else's page."""
    for package in ("jinja2", "matplotlib"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "report")
    html, record = out / f"{STEM}.html", out / f"{STEM}.json"
    if out.exists() and not out.is_dir():
        raise InputError(f"expected a folder for the report, but {out} is a file; pass another --out")
    if html.exists() and not (record.is_file() and _ours(record)):
        raise InputError(f"expected {html} to be free, but it is something else; pass another --out")
    check_folder(out)


def write(out: Path, summary: Mapping[str, Any]) -> Path:
    """The three files; returns the page."""
    make_folder(out)
    # The page comes last: where it is, the others are whole.
    write_text(out / f"{STEM}.json", dumps(summary, indent=1) + "\n")
    write_text(out / f"{STEM}.md", markdown(summary))
    write_text(out / f"{STEM}.html", page(summary))
    return out / f"{STEM}.html"


def _ours(record: Path) -> bool:
    found = loads(read_text(record), str(record))
    return isinstance(found, dict) and found.get("kind") == KIND
