"""`rcad evaluate`, `rcad predict` and `rcad export`: what is done with finished runs."""

import json
import os
import shutil
from pathlib import Path

import pytest

from cli.conftest import Cli, Refused
from forked import interrupted
from made import files, images, png, saved, table
from rcad.runs.files import unsealed
from rcad.runs.store import Store
from rcad.runs.words import title
from trained import run_id

pytestmark = pytest.mark.usefixtures("undrawn")

for package in ("jinja2", "matplotlib", "scipy", "sklearn"):
    pytest.importorskip(package)
QUICK = ("--limit", "4", "--attack-eps", "8/255")
PAGE = Path("rcad-evaluation/evaluation.html")


@pytest.fixture
def runs(trained_runs: Path) -> Path:
    shutil.copytree(trained_runs, "runs", ignore=shutil.ignore_patterns("evaluation"))
    return Path("runs")


def evaluations(runs: Path) -> list[Path]:
    return sorted(runs.rglob("evaluation/*.json"))


def test_the_whole_of_it(done: Cli, cli: Cli, runs: Path) -> None:
    chosen = [run_id(method, seed)[:12] for method in ("rcad", "erm") for seed in (0, 1)]
    result = done("evaluate", *chosen, *QUICK)
    lines = result.out.splitlines()
    assert lines[-1] == str(PAGE)
    for heading in ("Calibration", "Attacks", "Corruptions", "Out of distribution", "Against ERM"):
        assert lines.count(heading) == 1
    assert "Provenance of the corrupted images: generated." in lines
    assert len(evaluations(runs)) == 16
    assert {path.name for path in PAGE.parent.iterdir()} == {f"evaluation.{kind}" for kind in ("html", "json", "md")}
    before = {path: path.read_bytes() for path in evaluations(runs)}
    again = cli("evaluate", *chosen, *QUICK, "--json")
    assert again.err == ""
    found = again.json()
    assert [group["name"] for group in found["groups"]] == ["erm", "rcad"]
    gain = found["groups"][1]["comparison"]["differences"]["nll"]
    assert (gain["p_two"], gain["low"], gain["high"], gain["why"]) == (None, None, None, "only 2 seeds")
    for text in (result.out, PAGE.read_text(), PAGE.with_suffix(".md").read_text()):
        assert "only 2 seeds" in text
        assert "Over 2 common seeds: no intervals and no p, which need 3 or more." in text
    assert {path: path.read_bytes() for path in evaluations(runs)} == before


def test_all_takes_what_can_be_evaluated(cli: Cli, runs: Path) -> None:
    bare, cut, torn = run_id("rcad", 1), run_id("rcad", 0), run_id("erm", 1)
    (runs / bare / "model.safetensors").unlink()
    weights = runs / cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])
    (runs / torn / "record.json").write_text("{")
    result = cli("evaluate", "all", "--suite", "calibration", "--out", "o", "-q")
    assert (result.code, result.out) == (2, "o/evaluation.html\n")
    assert {line.split(": ")[1] for line in result.err.splitlines()} == {f"left out {run}" for run in (bare, cut, torn)}
    found = saved("o/evaluation.json")
    assert sum(len(group["runs"]) for group in found["groups"]) == 4
    assert {one["run"] for one in found["left_out"]} == {bare, cut, torn}
    for file in ("o/evaluation.md", "o/evaluation.html"):
        assert f"Left out: {cut}: expected " in Path(file).read_text()


def test_a_run_that_diverged_says_so(cli: Cli, refused: Refused) -> None:
    files(my_dot_csv=table())
    words = ("--data", "my.csv", "--target", "price", "--method", "erm", "--epochs", 2, "--lr", 1e30, "--json")
    (run,) = cli("train", *words).json()
    says = f"{run['id']} diverged and has no weights; train another with a smaller learning rate (its --lr was 1e+30)"
    refused("predict", run["id"], "--data", "my.csv", says=says)
    refused("evaluate", run["id"], says=says)


@pytest.fixture
def own_run(done: Cli) -> str:
    files(my_dot_csv=table())
    done("train", "--data", "my.csv", "--target", "colour", "--method", "erm", "--epochs", "1", "-q")
    (run,) = Store.open("runs").ids()
    return run


def test_an_unfinished_run_and_changed_data(own_run: str, done: Cli, refused: Refused) -> None:
    record = Path("runs", own_run, "record.json")
    whole = record.read_text()
    record.write_text(json.dumps({**unsealed(json.loads(whole)), "status": "interrupted", "finished": None}))
    refused("evaluate", own_run, says=f"{own_run} is interrupted")
    record.write_text(whole)
    files(my_dot_csv=table(61))
    refused("evaluate", own_run, says="my.csv has changed since")
    # Images of another size are changed data; the command has no option for sizes, so none is named.
    images()
    done("train", "--data", "images", "--method", "erm", "--epochs", "1", "-q", "--runs", "r")
    Path("images/class0/0.png").write_bytes(png(12))
    advice = "images has changed since; point --data-dir to the old data, or remove the run"
    refused("evaluate", *Store.open("r").ids(), "--runs", "r", "--suite", "calibration", says=advice)


def test_a_foreign_table_has_the_columns_of_the_run_in_any_order(own_run: str, done: Cli, refused: Refused) -> None:
    rows = [line.split(",") for line in table(30).splitlines()]
    turned = "\n".join(",".join([*reversed(row), "note"]) for row in rows)
    files(other_dot_csv=table(30), turned_dot_csv=turned, lacks_dot_csv=turned.replace("width", "w"))
    words = ("evaluate", own_run, "--suite", "ood", "--ood-data")
    numbers = done(*words, "other.csv,turned.csv", "--json").json()["groups"][0]["numbers"]
    assert numbers["ood_other.csv_msp_auroc"] == numbers["ood_turned.csv_msp_auroc"]
    refused(*words, "lacks.csv", says="'width' in lacks.csv, but its columns are price, colour, w, length, note; add")


def test_an_interruption_keeps_what_is_finished(runs: Path) -> None:
    run = run_id("erm")
    # When the calibration is done, the attacks have begun.
    found = interrupted("evaluate", run, "--limit", "0", "--out", "out", when=lambda: bool(evaluations(runs)))
    assert found.code == 130
    assert found.err.splitlines()[-1].startswith("rcad: interrupted; what is finished is kept; run the same command")
    (path,) = evaluations(runs)
    assert path.name.startswith("calibration-")
    assert not Path("out").exists()
    assert os.listdir(runs / run / "evaluation") == [path.name]


@pytest.fixture
def run(trained_runs: Path) -> str:
    shutil.copytree(trained_runs / run_id("erm"), Path("runs") / run_id("erm"))
    images("new", each=2)
    return run_id("erm")[:12]


def test_predict(cli: Cli, run: str) -> None:
    result = cli("predict", run, "--data", "new", "--out", "p.csv")
    assert (result.code, result.err) == (0, "")
    first, last = result.out.splitlines()
    assert (first[:15], last) == ("4 predictions: ", "p.csv")
    names = [line.partition(",")[0] for line in Path("p.csv").read_text().splitlines()]
    assert names == ["file", *(f"class{c}/{i}.png" for c in "01" for i in "01")]
    newest = cli("predict", "last", "--data", "new").out.splitlines()  # which one that is, it says
    titled = f"run {run_id('erm')}: {title(Store.open('runs').get('last').config)}"
    assert newest == [titled, first, "predictions.csv"]
    assert Path("predictions.csv").read_bytes() == Path("p.csv").read_bytes()


def test_predictions_with_a_broken_image_replace_no_other_table(cli: Cli, run: str, refused: Refused) -> None:
    files(new__bad_dot_png=png(keep=30), mine_dot_csv="length,width\n1,2\n")
    refused("predict", run, "--data", "new", says="expected new/bad.png to be an image")
    result = cli("predict", run, "--data", "new", "--skip-bad")
    assert result.out.startswith("1 image skipped, e.g.: expected new/bad.png to be an image")
    found = cli("predict", run, "--data", "new", "--skip-bad", "--json").json()
    assert (found["examples"], len(found["skipped"]), sum(found["classes"].values())) == (4, 1, 4)
    says = "--out to be a new file or earlier predictions, but mine.csv is neither;"
    refused("predict", run, "--data", "new", "--out", "mine.csv", says=says)


def test_whose_results_are_replaced_is_said(done: Cli, runs: Path) -> None:
    first, second = (run_id(method) for method in ("erm", "rcad"))
    for words, says in (
        (("export", "--out", "m.pt2"), f"replaced the export of run {first}: m.pt2"),
        (("predict", "--data", "images"), "replaced other predictions: predictions.csv"),
        (("evaluate", "--suite", "calibration"), f"replaced the report of run {first}: {PAGE}"),
    ):
        command, *rest = words
        images(each=1)
        for run, err in ((first, ""), (first, ""), (second, f"rcad: {says}\n")):
            result = done(command, run, *rest)
            assert [line for line in result.err.splitlines(True) if "replaced" in line] == ([err] if err else [])
