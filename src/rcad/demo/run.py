"""The three acts in their order, then the record and the page."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from rcad.demo.settings import FAST, FULL
from rcad.errors import InputError, need
from rcad.paper import record as records
from rcad.runs.files import loads, make_folder, read_text, write_text

ACTS = {"linear": "linear theory", "moons": "moons", "few_labels": "few labels"}
Progress = Callable[[str, str, float], None]
"""Told the act, what is being done in it, and which share of it is behind."""


@dataclass(frozen=True)
class Outcome:
    """What was made: the files, the record, and the rows of the table under `page.HEADER`."""

    page: Path
    record_file: Path
    record: dict[str, Any]
    rows: list[list[str]]


def check_packages() -> None:
    """Everything that the demo will want, asked for before anything is computed."""
    for module, package, extra in (
        ("jinja2", "jinja2", "report"),
        ("matplotlib.figure", "matplotlib", "report"),
        ("scipy.stats", "scipy", "data"),
        ("sklearn.datasets", "scikit-learn", "sklearn"),
    ):
        need(module, package, extra)


def run_demo(out: Path, progress: Progress, *, fast: bool = False) -> Outcome:
    """Compute, judge, write OUT/demo.json and OUT/index.html; an interruption leaves nothing behind."""
    check_packages()
    from rcad.demo.page import page, rows
    from rcad.demo.verdicts import verdicts

    settings, scale = (FAST, "fast") if fast else (FULL, "full")
    paths = out / "index.html", out / "demo.json"
    _refuse_foreign(*paths)
    if fast:
        records.refuse_to_replace_full(paths[1])
    with _folder(out):
        started = time.perf_counter()
        results = {
            name: import_module(f"rcad.demo.{name}").run(settings, partial(progress, act)) for name, act in ACTS.items()
        }
        record = records.build("demo", scale, settings.to_dict(), results, time.perf_counter() - started)
        sentences, comparisons = verdicts(record["results"])
        record["verdicts"] = sentences
        record["comparisons"] = records.plain([one.to_dict() for one in comparisons])
        html = page(record, comparisons)
        records.write(paths[1], record)
        write_text(paths[0], html)
    return Outcome(*paths, record, rows(record, comparisons))


def _refuse_foreign(page: Path, record: Path) -> None:
    """Only an earlier demo may be replaced."""
    found = loads(read_text(record), str(record)) if record.is_file() else {}
    ours = isinstance(found, dict) and found.get("target") == "demo"
    for path in (page, record):
        if path.exists() and not ours:
            raise InputError(f"expected a folder for the demo, but {path} is something else; pass another --out")


@contextlib.contextmanager
def _folder(out: Path) -> Iterator[None]:
    """The folder, found or made now, so that a mistake shows before the work; one that stays empty goes again."""
    made = not out.exists()
    make_folder(out)
    try:
        yield
    finally:
        if made:
            with contextlib.suppress(OSError):  # what holds a file stays
                out.rmdir()
