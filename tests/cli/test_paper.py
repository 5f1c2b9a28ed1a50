"""`rcad paper`: trials end in a record, a page and a picture; what is there is not computed again."""

from pathlib import Path

import pytest

from cli.conftest import Cli
from made import saved

pytest.importorskip("matplotlib")


@pytest.mark.parametrize(("name", "stem"), [("T7", "uci/uci"), ("T8", "moons/moons"), ("F7", "moons/boundaries")])
def test_a_trial_and_again(done: Cli, name: str, stem: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--scale", "smoke", "--out", "out")
    first = done("paper", "run", name.lower(), *words)
    assert first.out.splitlines()[-1].startswith(f"{name}: ")
    record, page = saved(f"out/{stem}.json"), Path(f"out/{stem}.md").read_text()
    assert [record[key] for key in ("target", "scale", "kind", "schema")] == [name, "smoke", "rcad study", 2]
    assert {one["verdict"] for one in record["claims"]} == {"a trial"}
    assert "numbers mean nothing" in page
    assert Path(f"out/{stem}.png").read_bytes().startswith(b"\x89PNG")
    for module in ("boundaries", "moons", "uci"):
        monkeypatch.setattr(f"rcad.paper.{module}.run", lambda *arguments: 1 / 0)
    second = done("paper", "run", name, *words)
    assert "the numbers were there already" in second.out
    assert "(smoke scale: a trial, no evidence)" in second.out
    assert (saved(f"out/{stem}.json"), Path(f"out/{stem}.md").read_text()) == (record, page)
    assert cli("paper", "run", name, *words, "--again").code == 1


def test_imagenet_s_trial_streams_stand_in_folders(done: Cli) -> None:
    words = ("paper", "run", "T5", "--scale", "smoke", "--seeds", "2", "--workers", "1", "--device", "cpu")
    done(*words, "--out", "out")
    record = saved("out/T5/T5.json")
    assert {one["verdict"] for one in record["claims"]} == {"a trial"}
    cells = {(one["row"], one["column"]): one["runs"] for one in record["cells"]}
    assert all(run["metrics"]["top5"] >= run["metrics"]["accuracy"] for run in cells["RCAD", "top-5"])
    assert not cells["pretrained", "top-1"]
    runs = [saved(path) for path in Path("out/T5/runs").glob("*/record.json")]
    assert [run["data_sha256"][:6] for run in runs] == ["files:"] * 8
    weights = f"out/T5/runs/{runs[0]['id']}/model.safetensors"
    done(*words, "--rows", "pretrained", "--out", "other", "--weights", weights)
    cells = {(one["row"], one["column"]): one["runs"] for one in saved("other/T5/T5.json")["cells"]}
    top5 = cells["pretrained", "top-5"][0]["metrics"]["top5"]
    assert top5 == pytest.approx(runs[0]["metrics"]["test_top5"], abs=1e-4)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("T7", "expected a data folder for boston"),
        ("T7 --data-dir nowhere", "expected boston at nowhere"),
        ("T4 --scale smoke --only n=500 --device cpu --precision bf16", "but got the CPU; use fp32"),
    ],
)
def test_what_is_found_out_after_the_folder_was_made(words: str, says: str, cli: Cli) -> None:
    result = cli("paper", "run", *words.split())
    assert (result.code, result.err.count("\n"), says in result.err) == (2, 1, True), result.err
    dry = cli("paper", "run", *words.split(), "--dry-run")
    assert (dry.code, dry.err) == (2, result.err)


def test_a_suite_and_its_status(done: Cli, cli: Cli) -> None:
    words = ["--scale", "smoke", "--seeds", "1", "--only", "CIFAR-10", "--protocol", "two-views"]
    first = done("paper", "run", "t1", *words)
    assert first.out.splitlines()[-4:] == [
        *(f"results/T1/T1-two-views.{kind}" for kind in ("json", "md", "png")),
        "T1: 24 claims of the paper: a trial; 6 checks of ours: a trial (smoke scale: a trial, no evidence)",
    ]
    again = '`rcad paper run T1 --scale smoke --seeds 1 --protocol two-views --only "CIFAR-10"`'
    assert again in Path("results/T1/T1-two-views.md").read_text()
    assert cli("paper", "run", "T1", *words).out.splitlines()[0] == "T1: every run was there already"
    cells = cli("paper", "status", "T1", *words[:2], "--seeds", "2", *words[4:], "--json").json()
    assert [(one["done"], one["planned"]) for one in cells] == [(1, 2)] * 7
    shown = cli("paper", "status", "T1", *words).out.splitlines()
    assert shown[2].split() == ["CIFAR-10", *["1/1"] * 7]
    assert shown[-1] == "T1, smoke, two views: 7 of 7 runs of its cells are done"
    every = cli("paper", "status", "--json").json()
    (kept,) = (one for one in every if one["record"] is not None)
    names = {"name": "T1", "record": "results/T1/T1-two-views.json", "scale": "smoke", "protocol": "two views"}
    assert (len(every), kept) == (15, {**names, "claims": "a trial", "our checks": "a trial"})


def test_a_dry_run_says_what_is_left_and_runs_nothing(cli: Cli) -> None:
    words = ["paper", "run", "T4", "--scale", "smoke", "--only", "n=500", "--seeds", "2"]
    shown = cli(*words, "--dry-run").out.splitlines()
    assert shown[2].split() == ["n=500", *["0/2"] * 7]
    assert shown[-2:] == ["seeds 0, 1", "the table: 14 runs, 0 done, 14 left"]
    assert not Path("results").exists()
    cli(*words[:-1], "1")
    assert cli(*words, "--dry-run").out.splitlines()[-1] == "the table: 14 runs, 7 done, 7 left"
    tuned = cli(*words, "--protocol", "tuned", "--dry-run").out.splitlines()
    # Nine rows, two candidates, one seed that chooses; then two seeds of each.
    assert tuned[-2:] == ["the search: 18 runs, 0 done, 18 left", "the table: 18 runs, of what the search will choose"]


def test_a_stop_is_one_line(cli: Cli) -> None:
    result = cli("paper", "run", "T4", "--scale", "smoke", "--only", "n=500", "--seeds", "1", "--minutes", "1e-6")
    assert (result.code, result.err) == (2, "rcad: the time is up: 7 runs left; run the same command to continue\n")
    assert not Path("results/T4/T4.json").exists()


def test_a_report_lists_its_page_first(done: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    done("paper", "run", "T8", "--scale", "smoke")
    monkeypatch.setattr("rcad.report.drawing.save", lambda figures, folder, kinds: [folder / "a.png", folder / "a.pdf"])
    page, text, tables, figures = done("paper", "report").out.splitlines()
    assert (page, text, figures) == ("report/report.html", "report/report.md", "report/figures: 2 files")
    assert tables.startswith("report/tables: ")
