"""From nothing to the report, as a newcomer would: a part of a table at the smallest scale, then the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from browser import BROWSER, pictured, seen
from cli.conftest import Cli


@pytest.mark.slow
def test_a_table_and_its_report(cli: Cli, tmp_path: Path) -> None:
    words = ("paper", "run", "T4", "--scale", "smoke", "--workers", "1", "--only", "n=500", "--seeds", "1")
    made = cli(*words)
    assert made.code == 0, made.err
    record = json.loads(Path("results/T4/T4.json").read_text())
    assert record["scale"] == "smoke"
    assert len({run["id"] for cell in record["cells"] for run in cell["runs"]}) == 7  # rows
    again = cli(*words)
    assert again.code == 0
    assert json.loads(Path("results/T4/T4.json").read_text())["cells"] == record["cells"]
    done = cli("paper", "report")
    assert done.code == 0, done.err
    (page,) = Path().rglob("report.html")
    html = page.read_text()
    assert "smoke" in html
    assert len(re.findall("<svg", html)) >= 2
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", html)
    if BROWSER is not None:
        assert "<svg" in seen(page, tmp_path)
        for width in (390, 1280):
            with Image.open(pictured(page, tmp_path, width)) as picture:
                assert len(picture.convert("RGB").getcolors(2**24) or ()) > 50  # not a blank page


def test_a_folder_without_records_is_named_in_one_line(cli: Cli) -> None:
    Path("nothing").mkdir()
    asked = cli("paper", "report", "--results", "nothing")
    assert asked.code == 2
    assert asked.err.startswith("rcad: expected records of studies in nothing, but there are none; e.g. rcad paper run")
    assert not Path("report").exists()
