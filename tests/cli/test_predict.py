"""`rcad predict` and `rcad export`: a file, a summary; one line for whatever is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cli.conftest import Cli, Refused
from made import files, images, png
from rcad.runs.store import Store
from rcad.runs.words import title
from trained import run_id

pytest.importorskip("sklearn")


@pytest.fixture
def run(trained_runs: Path) -> str:
    shutil.copytree(trained_runs / run_id("erm"), Path("runs") / run_id("erm"))
    images("new", each=2)
    return run_id("erm")[:12]


def test_predict(cli: Cli, run: str) -> None:
    result = cli("predict", run, "--data", "new", "--out", "p.csv")
    assert (result.code, result.err) == (0, "")
    first, last = result.out.splitlines()
    assert first.startswith("4 predictions: ")
    assert last == "p.csv"
    lines = Path("p.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        "file",
        *(f"new/class{c}/{i}.png"[4:] for c in "01" for i in "01"),
    ]
    assert cli("predict", f"runs/{run}", "--data", "new", "--quiet").out == "predictions.csv\n"
    assert Path("predictions.csv").read_bytes() == Path("p.csv").read_bytes()
    newest = cli("predict", "last", "--data", "new").out.splitlines()  # which one that is, it says
    assert newest[0] == f"run {run_id('erm')}: {title(Store.open('runs').get('last').config)}"
    assert newest[1:] == [first, "predictions.csv"]


def test_predict_as_json_with_a_broken_image(cli: Cli, run: str, refused: Refused) -> None:
    files(new__bad_dot_png=png(keep=30))
    refused("predict", run, "--data", "new", says="expected new/bad.png to be an image")
    result = cli("predict", run, "--data", "new", "--skip-bad")
    assert result.out.startswith("1 image skipped, e.g.: expected new/bad.png to be an image")
    assert "pass --skip-bad" not in result.out
    found = cli("predict", run, "--data", "new", "--skip-bad", "--json").json()
    assert list(found) == ["run", "data", "out", "examples", "skipped", "classes"]
    assert (found["examples"], len(found["skipped"]), sum(found["classes"].values())) == (4, 1, 4)


def test_export(cli: Cli, run: str) -> None:
    result = cli("export", run, "--to", "torch", "--out", "m.pt2")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"the file's outputs are those of run {run_id('erm')}, up to ")
    assert result.out.endswith(" in probability\nm.pt2\n")
    found = cli("export", run, "--out", "m.pt2", "--json").json()
    assert found["shape"] == [1, 8, 8]
    assert found["largest_difference"] < 1e-5
