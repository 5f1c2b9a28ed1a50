"""The whole report from made-up records: every file, nothing from outside, and a page that works in a browser."""

import re
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

from browser import BROWSER, Tree, probed
from evaluate.saved_run.conftest import QUICK
from paper_records import EVIL, benchmark, images, put, put_run, run_record, series, suite, verdicts
from rcad.evaluate.saved_run.loading import RunLoader
from rcad.evaluate.saved_run.run import evaluate
from rcad.evaluate.saved_run.settings import SUITES
from rcad.paper.record import Study
from rcad.paper.report import build, chapters
from rcad.runs.store import Store
from rcad.study.evaluations import summary
from trained import run_id


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """The report of records of every kind, and of a damaged one."""
    folder = tmp_path_factory.mktemp("records") / "results"
    put(folder, suite(claims=verdicts(), diverged=[("FGSM", "n=500", 1)], absent=[("FGSM", "n=1,000")]))
    bars = ("DA", "DA + RCAD", EVIL, f"{EVIL} + RCAD")
    put(folder, suite("F2", rows=bars, columns=("CIFAR-10",), scale="smoke", title=f"bars {EVIL}", seeds=2))
    shown = {"details": {"images": images()}}
    put(folder, suite("F1", rows=("DA", "RCAD"), columns=("a",), seeds=1, published=False, **shown))
    curve = series("RCAD", "step size", (0.05, 0.5, 5.0), published=[None, 51.0, None])
    put(folder, suite("F4", series=[curve, series("ERM", "step size", (0.05, 0.5, 5.0))], scale="small", seeds=2))
    put(folder, benchmark(), "benchmarks/gpu.json")
    put_run(folder, "digits", run_record(0, 50.0))
    (folder / "T8.json").write_text("{")
    return folder / "report", build(folder, folder / "report")


def page(made: tuple[Path, list[Path]], name: str = "report.html") -> str:
    return (made[0] / name).read_text(encoding="utf-8")


def test_every_file_is_written_and_named(made: tuple[Path, list[Path]]) -> None:
    out, files = made
    assert {path for path in out.rglob("*") if path.is_file()} == set(files)
    names = {str(path.relative_to(out)) for path in files}
    assert {"report.html", "report.md", "tables/T4.tex", "tables/digits.tex", "tables/verdicts.tex"} <= names
    pictures = ("F2-bars.pdf", "F1-images.png", "F4-curves.png", "T4-by-size.png", "cost-gpu.png")
    assert {f"figures/{name}" for name in pictures} <= names
    for path in files:
        assert path.read_bytes().startswith({".png": b"\x89PNG\r\n\x1a\n", ".pdf": b"%PDF"}.get(path.suffix, b"")), path
    shown = re.findall(r"\]\((figures/[^)]+)\)", page(made, "report.md"))
    assert sorted(shown) == sorted(name for name in names if name.endswith(".png"))


def test_another_scale_is_loud_and_names_are_text_and_nothing_else(made: tuple[Path, list[Path]]) -> None:
    text, markdown = page(made), page(made, "report.md")
    tree = Tree(text)
    assert all(words in text for words in ("SMOKE SCALE: a trial", "SMALL SCALE: fewer epochs"))
    assert "Not the paper's scale: F2 (smoke), F4 (small)." in unescape(text)
    assert "SMOKE SCALE" in markdown
    assert len(tree.every("script")) == 1
    assert "alert('a')" not in "".join(tree.text["script"])
    assert any(EVIL in text for text in tree.text["h2"])
    assert "<script" not in markdown


def test_no_address_leads_out_and_every_link_arrives(made: tuple[Path, list[Path]]) -> None:
    out, _ = made
    tree = Tree(page(made))
    assert len(tree.ids) == len({*tree.ids})
    links = [link for tag, link in tree.links if tag == "a"]
    assert len([link for link in links if link.startswith("#")]) > 50
    for link in links:
        assert ":" not in link
        if link.startswith("#"):
            assert link[1:] in tree.ids, link
        else:
            assert (out / unquote(link)).exists(), link
    assert f"../digits/{run_record(0, 50.0)['id']}/record.json" in links
    (policy,) = (a["content"] for a in tree.every("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert (policy or "").startswith("default-src 'none'")


def test_the_same_records_give_the_same_files(tmp_path: Path) -> None:
    results = tmp_path / "results"
    put(results, suite(seeds=2, columns=("a",), rows=("ERM", "RCAD"), claims=verdicts()[:1]))
    one, two = ([path.read_bytes() for path in build(results, tmp_path / name / "x")] for name in ("one", "two"))
    assert one == two


@pytest.mark.parametrize(
    ("target", "shown", "names"),
    [
        ("F6", [series(row, "CIFAR-10", ("fog", "snow")) for row in ("ERM", "RCAD")], ["curves"]),
        ("F3", [series("RCAD", "by set", "ab"), series("RCAD", "by number", (1.0, 2.0))], ["curves1", "curves2"]),
        ("F3", [{**series("RCAD", "step size", (0.05, 0.5)), "y": [[], []]}], ["dots", "gains", "by-size"]),
        ("T1", [], ["by-column", "gains"]),
    ],
)
def test_the_pictures_of_each_figure(target: str, shown: list[dict[str, Any]], names: list[str]) -> None:
    columns = {} if shown else {"columns": [f"c{k}" for k in range(7)]}
    study = Study.parse(suite(target, series=shown, **columns), Path("a.json"))
    assert [figure.name for figure in chapters.draw(study)] == [f"{study.target}-{name}" for name in names]


@pytest.mark.skipif(BROWSER is None, reason="needs a chromium on the path")
def test_the_page_in_a_browser(made: tuple[Path, list[Path]], tmp_path: Path) -> None:
    """No complaint on the console, verdicts can be chosen, a number's runs unfold, nothing is asked for or too wide."""
    probe = """
    const table = document.querySelector("#every-claim table"), told = {};
    document.querySelector('.choices button[data-value="opposite"]').click();
    const shown = [...table.tBodies[0].rows].filter((row) => !row.hidden);
    told.chosen = shown.map((row) => row.cells[1].textContent);
    const place = [...document.querySelectorAll("td a")].find((a) => a.hash.includes("r0c0")).hash.slice(1);
    const folded = document.getElementById(place).closest("details");
    told.before = folded.open;
    history.replaceState(null, "", "#" + place);  // unlike a click: Chromium itself unfolds what a click leads to
    dispatchEvent(new Event("hashchange"));
    told.after = folded.open;
    told.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    const asked = performance.getEntriesByType("resource").map((one) => one.name);
    told.asked = asked.filter((name) => !name.startsWith("data:"))"""
    told = probed(page(made), probe, tmp_path)
    wide = told.pop("wide")
    assert told == {"chosen": ["opposite"], "before": False, "after": True, "asked": []}
    assert wide <= 0


@pytest.mark.usefixtures("undrawn")
def test_an_evaluation_is_a_chapter_with_its_runs_and_what_is_damaged_is_named(
    tmp_path: Path, trained_runs: Path
) -> None:
    loader = RunLoader(Store.open(trained_runs), device="cpu")
    found = summary([evaluate(loader, run_id("erm"), SUITES, QUICK)], SUITES, QUICK, 1.0)
    name = put_run(tmp_path, "runs", run_record(0, 50.0))
    found["groups"][0]["runs"][0] = name
    put(tmp_path, found, "robustness/evaluation.json")
    put(tmp_path, {"kind": "rcad evaluation", "groups": [{}], "suites": ["calibration"]}, "a/evaluation.json")
    rows = [{"ms_per_seed_step": 1.0, "ratio_to_erm": 1.0}]
    put(tmp_path, {"kind": "rcad step times", "rows": rows}, "benchmarks/b.json")
    put(tmp_path, {"kind": "rcad study", "schema": 2, "target": "alpha"}, "alpha/alpha.json")
    shown = {"details": {"images": {"pixels": [[1]], "alphas": [0], "labels": ["a"]}}}
    put(tmp_path, suite("F1", rows=("DA", "RCAD"), columns=("a",), **shown))
    build(tmp_path, tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    tree = Tree(text)
    assert "Evaluation: robustness" in tree.text["h2"]
    assert f"../runs/{name}/record.json" in [link for _, link in tree.links]
    lines = [line for line in unescape(text).splitlines() if "Could not be read: " in line]
    for file in ("a/evaluation.json", "benchmarks/b.json", "alpha/alpha.json", "F1/F1.json"):
        assert any(file in line for line in lines), file


@pytest.mark.usefixtures("undrawn")
def test_no_record_leads_out_of_the_folder(tmp_path: Path) -> None:
    targets = ("../../evil", f"{tmp_path}/evil", "..", "evil/../..")
    for number, target in enumerate(targets):
        made_up = suite(target, rows=("ERM", "RCAD"), columns=("a",), seeds=2, title=f"number {number}")
        put(tmp_path / "in", made_up, f"{number}/study.json")
    before = set(tmp_path.rglob("*"))
    files = build(tmp_path / "in", tmp_path / "deep" / "out")
    new = {path for path in tmp_path.rglob("*") if path not in before and path.is_file()}
    assert {path.resolve() for path in files} == new
    assert all(path.is_relative_to(tmp_path / "deep" / "out") for path in new)
    assert sum("evil" in path.name for path in new) >= 3
