"""The committed studies: made again from their records, they give the committed numbers and verdicts."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from contracts import shown, tables
from contracts.house import RESULTS, rcad, without_pictures, workplace


def test_numbers_and_verdicts(tmp_path: Path) -> None:
    """Rows of the report by chapter, and digests of the committed pages."""
    pytest.importorskip("jinja2")
    pytest.importorskip("scipy")
    with workplace(tmp_path), without_pictures():
        shutil.copytree(RESULTS, "results")
        before = pages()
        for name in ("T7", "T8", "F5", "F7"):  # judged again by the records' numbers; nothing is trained
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
    del chapters["Every claim"]  # those of all others once more
    digests = {path: shown.digest(rows) for path, rows in before.items()}
    tables.check("studies", "a committed study", {"report": chapters, "pages": digests})


def pages() -> dict[str, list[str]]:
    return {str(one.relative_to("results")): shown.markdown(one) for one in sorted(Path("results").glob("*/**/*.md"))}
