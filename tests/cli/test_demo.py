"""`rcad demo`: a table, verdicts, a record and one page that needs nothing else."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from browser import BROWSER, seen
from cli.conftest import Refused, until
from contracts.house import rcad, workplace
from forked import Forked
from made import files, saved
from rcad import demo as acts
from report.test_html import Tree

for package in ("jinja2", "matplotlib", "scipy", "sklearn"):
    pytest.importorskip(package)
FIGURES = 16
PAGE, RECORD = Path("rcad-demo/index.html"), Path("rcad-demo/demo.json")


def check_page(text: str) -> None:
    tree = Tree(text)
    for tag, attributes in tree.tags:
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    assert len(re.findall(r"<svg .*?</svg>", text, re.DOTALL)) == FIGURES
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Where it was made, and the lines that it printed."""
    with workplace(tmp_path_factory.mktemp("demo")) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        files(**{"rcad-demo__demo_dot_json": '{"target": "demo", "scale": "fast"}'})  # an earlier one may be replaced
        result = rcad("demo --fast")
    assert result.code == 0, result.err
    return folder, result.out.splitlines()


def test_the_whole_of_it(demo: tuple[Path, list[str]]) -> None:
    folder, lines = demo
    assert lines[0].startswith("loading torch")  # before anything is loaded
    assert lines[lines.index("") + 1] == acts.TRIAL
    for word in ("wins", "better than", "worse than"):
        assert word not in "\n".join(lines)
    rows = lines[next(k for k, line in enumerate(lines) if line.startswith("──")) + 1 :]
    end = next(k for k, row in enumerate(rows) if row.startswith("RCAD better by: points of accuracy on linear theory"))
    assert all(row.endswith("a trial") for row in rows[:end])  # no row is empty, none is cut in two
    assert "nats of NLL on digits and diabetes" in " ".join(rows[end : end + 2])
    assert lines[-1] == f"  {PAGE}"
    shown = lines[next(k for k, line in enumerate(lines) if line.startswith("data  ")) :]
    assert max(map(len, shown)) <= 80
    assert "  rcad compare --data my.csv --target COLUMN" in lines
    check_page((folder / PAGE).read_text())
    record = saved(folder / RECORD)
    assert (record["target"], record["scale"]) == ("demo", "fast")
    assert {"results", "settings", "versions", "verdicts", "seconds"} <= record.keys()
    assert list(record["verdicts"]) == ["linear", "moons", "few_labels"]
    assert sorted(path.name for path in (folder / PAGE).parent.iterdir()) == ["demo.json", "index.html"]


def test_what_is_not_a_demo_is_not_replaced(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "linear", _never)
    files(site__index_dot_html="mine", file="", full__demo_dot_json='{"target": "demo", "scale": "full"}')
    for out, says in (("site", "site/index.html is something else"), ("full", "full scale"), ("file", "file")):
        refused("demo", "--fast", "--out", out, says=says)


def _never(*arguments: object) -> None:
    raise AssertionError("computed")


def test_an_interruption_leaves_nothing() -> None:
    process = Forked("demo", "--out", "out")
    until(lambda: any(f"\n{act}" in process.said() for act in acts.ACTS.values()))  # one of them is under way
    os.kill(process.pid, signal.SIGINT)
    found = process.end()
    assert found.code == 130
    assert found.err.splitlines()[-1] == "rcad: interrupted"
    assert not Path("out").exists()


@pytest.mark.skipif(BROWSER is None, reason="needs a chromium on the path")
def test_a_browser_finds_nothing_to_complain_about(demo: tuple[Path, list[str]], tmp_path: Path) -> None:
    assert seen(demo[0] / PAGE, tmp_path).count("<svg ") == FIGURES
