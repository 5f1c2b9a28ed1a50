"""The committed studies: made again from their records, they give the committed numbers and verdicts."""

import contextlib
import importlib
import io
import shutil
import sys
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import pytest

from contracts import shown, tables
from contracts.house import RESULTS, rcad, without_pictures, workplace

MADE_AGAIN = ("T7", "T8", "F5", "F7")
EVERY_CLAIM = "Every claim"
"""The chapter of the report that has the claims of all others once more."""
SIMULATED = 50


def test_numbers_and_verdicts(tmp_path: Path) -> None:
    """Rows of the report by chapter, of simulated studies, and digests of the committed pages."""
    pytest.importorskip("jinja2")
    pytest.importorskip("scipy")
    with workplace(tmp_path), without_pictures():
        shutil.copytree(RESULTS, "results")
        before = pages()
        for name in MADE_AGAIN:  # judged again by the records' numbers; nothing is trained
            made = rcad(f"paper run {name}")
            assert made.code == 0, made.err
        again = pages()
        for path, rows in before.items():
            tables.same(f"{path}, made again,", rows, again[path])
        report = rcad("paper report")
        assert report.code == 0, report.err
        chapters = shown.html(Path("report/report.html").read_text(encoding="utf-8"))
        # In Markdown it has the rows of the page, less the folded ones.
        rows = Counter(row for some in chapters.values() for row in some if "digest" not in row)
        assert Counter(shown.markdown(Path("report/report.md"))) == rows
        simulated = rates()
    del chapters[EVERY_CLAIM]
    digests = {path: shown.digest(rows) for path, rows in before.items()}
    found = {"report": chapters, "simulated studies": simulated, "pages": digests}
    tables.check("studies", "a committed study", found)


def pages() -> dict[str, list[str]]:
    """The rows of every page of results."""
    return {str(one.relative_to("results")): shown.markdown(one) for one in sorted(Path("results").glob("*/**/*.md"))}


def rates() -> list[str]:
    """The rules for verdicts on studies drawn by chance."""
    words = ["verdict_rates", "--studies", str(SIMULATED), "--out", "rates"]
    with patch.object(sys, "argv", words), contextlib.redirect_stdout(io.StringIO()):
        importlib.import_module("verdict_rates").main()
    return shown.markdown(Path("rates/verdict_rates.md"))
