"""The committed studies: made again from their records, they give the committed numbers and verdicts."""

import contextlib
import importlib
import io
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from contracts import shown, tables
from contracts.house import RESULTS, rcad, without_pictures, workplace

MADE_AGAIN = ("T7", "T8", "F5", "F7")
EVERY_CLAIM = "Every claim"
"""The chapter of the report that has the claims of all others once more."""
SIMULATED = 50


def present(folder: Path) -> dict[str, Any]:
    """What the studies say: rows of the report by chapter, of simulated studies, and the committed pages' digests."""
    with workplace(folder), without_pictures():
        shutil.copytree(RESULTS, "results")
        before = pages(Path("results"))
        for name in MADE_AGAIN:  # judged again by the records' numbers; nothing is trained
            made = rcad(f"paper run {name}")
            assert made.code == 0, made.err
        again = pages(Path("results"))
        for path, rows in before.items():
            tables.same(f"{path}, made again,", rows, again[path])
        report = rcad("paper report")
        assert report.code == 0, report.err
        chapters = shown.html(Path("report/report.html").read_text(encoding="utf-8"))
        _check_markdown(chapters, Path("report/report.md").read_text(encoding="utf-8"))
    chapters.pop(EVERY_CLAIM, None)
    return {
        "report": chapters,
        "simulated studies": simulated(folder),
        "pages": {path: shown.digest(rows) for path, rows in before.items()},
    }


def pages(results: Path) -> dict[str, list[str]]:
    """The rows of every page of results."""
    found = sorted(results.glob("*/**/*.md"))
    return {one.relative_to(results).as_posix(): shown.markdown(one.read_text(encoding="utf-8")) for one in found}


def simulated(folder: Path) -> list[str]:
    """The rules for verdicts on studies drawn by chance."""
    words = ["verdict_rates", "--studies", str(SIMULATED), "--out", str(folder / "rates")]
    with patch.object(sys, "argv", words), contextlib.redirect_stdout(io.StringIO()):
        importlib.import_module("verdict_rates").main()
    return shown.markdown((folder / "rates/verdict_rates.md").read_text(encoding="utf-8"))


def test_numbers_and_verdicts(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("scipy")
    tables.check("studies", "a committed study", present(tmp_path))


def _check_markdown(chapters: dict[str, list[str]], text: str) -> None:
    """The report in Markdown has the rows of the page, less the folded ones."""
    rows = Counter(row for some in chapters.values() for row in some if "digest" not in row)
    assert Counter(shown.markdown(text)) == rows
