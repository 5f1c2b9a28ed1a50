"""`rcad evaluate`: tables, records, a page; one line for whatever is wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.conftest import Cli
from cli.made import files, table
from rcad.experiments.store import Store
from report.test_page import Tree
from trained import run_id, train_some

for package in ("jinja2", "matplotlib", "scipy", "sklearn"):
    pytest.importorskip(package)
QUICK = ("--limit", "8", "--attack-eps", "8/255,0.1")
PAGE = Path("rcad-evaluation/evaluation.html")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    train_some(folder)
    return folder


@pytest.fixture
def runs(trained: Path) -> Path:
    shutil.copytree(trained, "runs")
    return Path("runs")


def evaluations(runs: Path) -> list[Path]:
    return sorted(runs.rglob("evaluation/*.json"))


def test_the_whole_of_it(cli: Cli, runs: Path) -> None:
    chosen = [run_id(method, seed)[:12] for method in ("rcad", "erm") for seed in (0, 1)]
    result = cli("evaluate", *chosen, *QUICK)
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert lines[-1] == str(PAGE)
    for title in ("Calibration", "Attacks", "Corruptions", "Out of distribution", "Against ERM"):
        assert lines.count(title) == 1
    assert "Provenance of the corrupted images: generated." in lines
    assert any("AUROC" in line for line in lines)  # each table says what its numbers are
    assert "run 4 of 4, ood: " in result.err
    assert len(evaluations(runs)) == 16
    assert sorted(path.name for path in PAGE.parent.iterdir()) == [
        "evaluation.html",
        "evaluation.json",
        "evaluation.md",
    ]
    Tree(PAGE.read_text())
    before = {path: path.read_bytes() for path in evaluations(runs)}
    again = cli("evaluate", *chosen, *QUICK, "--json")
    assert again.err == ""
    found = json.loads(again.out)
    assert found["page"] == str(PAGE)
    assert [group["name"] for group in found["groups"]] == ["erm", "rcad"]
    assert found["groups"][1]["comparison"]["differences"]["nll"]["df"] == 1
    assert {path: path.read_bytes() for path in evaluations(runs)} == before


def test_all_takes_what_can_be_evaluated(cli: Cli, runs: Path) -> None:
    (runs / run_id("rcad", 1) / "model.safetensors").unlink()
    result = cli("evaluate", "all", "--suite", "calibration", "--out", "o", "-q")
    assert (result.code, result.out, result.err) == (0, "o/evaluation.html\n", "")
    groups = json.loads(Path("o/evaluation.json").read_text())["groups"]
    assert sum(len(group["runs"]) for group in groups) == 6
    assert "A difference to erm" in Path("o/evaluation.md").read_text()


def test_a_table_is_told_what_does_not_fit(cli: Cli, runs: Path) -> None:
    result = cli("evaluate", run_id("erm", 0, "diabetes"), *QUICK)
    assert result.code == 0, result.err
    assert "erm: Attacks are made on classes; this run has a real target." in result.out
    assert "erm: Corruptions are made for images; this run was trained on a table." in result.out


CASES: dict[str, tuple[tuple[str, ...], str]] = {
    "no run": (("evaluate",), "RUN"),
    "unknown run": (("evaluate", "zz"), "'zz'"),
    "unknown suite": (("evaluate", "all", "--suite", "atacks"), "did you mean 'attacks'"),
    "no suite": (("evaluate", "all", "--suite", ""), "a suite"),
    "negative limit": (("evaluate", "all", "--limit", "-1"), "limit"),
    "no number": (("evaluate", "all", "--attack-eps", "0.1,big"), "'big'"),
    "divided by nothing": (("evaluate", "all", "--attack-eps", "8/0"), "'8/0'"),
    "no radius": (("evaluate", "all", "--attack-eps", "0"), "attack_eps"),
    "unknown device": (("evaluate", "all", "--device", "gpu"), "'gpu'"),
    "no store": (("evaluate", "all", "--runs", "nowhere"), "'nowhere'"),
    "no corrupted set": (("evaluate", "ERM", "--corrupted", "nowhere"), "nowhere"),
    "half a corrupted set": (("evaluate", "ERM", "--corrupted", "half"), "half"),
    "unknown foreign data": (("evaluate", "ERM", "--ood-data", "cifra10"), "did you mean 'cifar10'"),
    "own data as foreign": (("evaluate", "ERM", "--ood-data", "digits"), "another data set"),
    "foreign table": (("evaluate", "ERM", "--ood-data", "diabetes"), "diabetes is a table"),
    "corruptions of a table": (("evaluate", "TABLE", "--suite", "corruptions"), "images"),
    "without weights": (("evaluate", "BARE"), "model.safetensors"),
    "broken weights": (("evaluate", "BROKEN"), "model.safetensors"),
    "out is a file": (("evaluate", "ERM", "--out", "file"), "file"),
    "somebody's page": (("evaluate", "ERM", "--out", "site"), "site/evaluation.html"),
}


@pytest.mark.parametrize("name", CASES)
def test_one_line_and_nothing_written(name: str, cli: Cli, runs: Path) -> None:
    words, says = CASES[name]
    ids = {"ERM": run_id("erm"), "TABLE": run_id("erm", 0, "breast_cancer")}
    ids |= {"BARE": run_id("rcad", 0), "BROKEN": run_id("rcad", 1)}
    (runs / ids["BARE"] / "model.safetensors").unlink()
    (runs / ids["BROKEN"] / "model.safetensors").write_bytes(b"junk")
    files(file="", site__evaluation_dot_html="mine", half__fog_dot_npy="junk")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file() and path.parts[0] != "cache"}
    result = cli(*(ids.get(word, word) for word in words))
    assert result.code == 2, result
    lines = result.err.strip().split("\n")
    assert len(lines) == 1, result.err
    assert lines[0].startswith("rcad: ")
    assert says in lines[0], lines
    after = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file() and path.parts[0] != "cache"}
    assert after == before


def test_an_unfinished_run_and_changed_data(cli: Cli) -> None:
    files(my_dot_csv=table())
    assert cli("train", "--data", "my.csv", "--target", "colour", "--method", "erm", "--epochs", "1", "-q").code == 0
    (run,) = Store.open("runs").ids()
    record = Path("runs") / run / "record.json"
    whole = record.read_text()
    record.write_text(json.dumps({**json.loads(whole), "status": "interrupted", "finished": None}))
    result = cli("evaluate", run)
    assert result.code == 2
    assert f"{run} is interrupted" in result.err
    record.write_text(whole)
    files(my_dot_csv=table(61))
    result = cli("evaluate", run)
    assert result.code == 2
    assert result.err.count("\n") == 1
    assert "my.csv has changed since" in result.err


@pytest.mark.parametrize("module", ["jinja2", "matplotlib"])
def test_a_missing_package_is_named_first(module: str, cli: Cli, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == module else real(name, *more))
    result = cli("evaluate", run_id("erm"))
    assert result.code == 2
    assert 'pip install "rcad[report]"' in result.err
    assert evaluations(runs) == []


def test_an_interruption_keeps_what_is_finished(runs: Path) -> None:
    run = run_id("erm")
    command = [sys.executable, "-m", "rcad.cli", "evaluate", run, "--limit", "0", "--out", "out"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "attacks within" not in process.stderr.readline():
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(timeout=60) == 130
    assert rest.splitlines()[-1].startswith("rcad: interrupted; every finished suite is kept")
    assert "Traceback" not in rest
    (path,) = evaluations(runs)
    assert path.name.startswith("calibration-")
    assert not Path("out").exists()
    assert not [path for path in runs.rglob("*") if "partial" in path.name]
    assert os.listdir(runs / run / "evaluation") == [path.name]
