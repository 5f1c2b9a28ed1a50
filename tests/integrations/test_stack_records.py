"""The numbers on the pages of the stacks are those of their records, and the records' tables are made from them."""

import importlib
import json
import re
import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STACKS = ("lightning", "huggingface", "accelerate", "timm", "skorch")


def document(stack):
    return (ROOT / f"docs/stacks/{stack}.md").read_text(encoding="utf-8")


def committed(path):
    return json.loads((ROOT / "results" / path).read_text(encoding="utf-8"))


COST, EMBEDDINGS, TABLES = map(
    committed, ("benchmarks/stacks_cpu.json", "embeddings/alpha.json", "sklearn/tables.json")
)


@pytest.mark.parametrize(
    ("script", "record", "page"),
    [
        ("stacks", COST, "benchmarks/stacks_cpu.md"),
        ("embedding_alpha", EMBEDDINGS, "embeddings/alpha.md"),
        ("sklearn_page", TABLES, "sklearn/tables.md"),
    ],
)
def test_a_page_of_results_is_made_from_its_record(script, record, page):
    pytest.importorskip("scipy")
    more = (5,) if script == "sklearn_page" else ()
    assert (ROOT / "results" / page).read_text(encoding="utf-8") == importlib.import_module(script).page(record, *more)


def test_the_records_are_whole():
    assert {row["stack"] for row in COST["rows"]} == set(STACKS) == set(importlib.import_module("stacks").STACKS)
    assert list(EMBEDDINGS["runs"]) == list(importlib.import_module("embedding_alpha").METHODS)
    assert {tuple(run["seed"] for run in runs) for runs in EMBEDDINGS["runs"].values()} == {tuple(range(6))}
    places = {(row["task"], row["model"], row["fold"]) for row in TABLES["runs"]}
    assert len(places) == len(TABLES["runs"]) == 4 * 6 * 50


def test_the_ratios_are_medians_of_what_was_timed():
    for row in COST["rows"]:
        assert {len(times) for times in row["ms"].values()} == {COST["rounds"]}
        for name, ratio in row["ratios"].items():
            rounds = [a / b for a, b in zip(row["ms"][name], row["ms"]["plain"], strict=True)]
            assert ratio == pytest.approx(statistics.median(rounds), abs=1e-3)


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_s_page_shows_its_table_of_costs(stack):
    section = document(stack).split("## What it costs\n")[1].split("\n## ")[0]
    assert importlib.import_module("stacks").tables(COST)[stack] in section


def test_the_page_on_all_stacks_sums_them_up():
    for passes in ("2 + 2", "2 + 3"):
        ratios = [row["ratios"]["rcad"] for row in COST["rows"] if row["passes"] == passes]
        words = f"{min(ratios):.1f} to {max(ratios):.1f} times that of plain training with {passes} passes"
        assert words in " ".join(document("index").split())


def test_what_the_documentation_says_about_embeddings():
    """No alpha raised the accuracy beyond the noise; NLL fell everywhere; at alpha 1 a random direction did better."""
    assert importlib.import_module("embedding_alpha").shown(EMBEDDINGS) in document("huggingface")
    runs = EMBEDDINGS["runs"]
    erm = [run["accuracy"] for run in runs["ERM"]]
    nll = {name: statistics.fmean(run["nll"] for run in own) for name, own in runs.items()}
    for name, own in runs.items():
        gains = [run["accuracy"] - base for run, base in zip(own, erm, strict=True)]
        assert statistics.fmean(gains) <= 2 * statistics.stdev(gains) / len(gains) ** 0.5
        assert nll[name] <= nll["ERM"]
    assert nll["random direction, alpha 1"] < nll["RCAD, alpha 1"]


def test_the_documentation_s_table_is_the_record_s():
    section = document("sklearn").split("## Does it help?\n")[1].split("\n## ")[0]
    table = [[cell.strip() for cell in row.strip("|").split("|")] for row in re.findall(r"^\|.*\|$", section, re.M)]
    header, _, *lines = table
    for column, task in enumerate(header[1:], start=1):
        mine = [row for row in TABLES["runs"] if row["task"] == task]
        for model, line in zip(dict.fromkeys(row["model"] for row in mine), lines, strict=True):
            own = [row for row in mine if row["model"] == model]
            metric = "rmse" if "rmse" in own[0] else "accuracy"
            for name, text in zip((metric, "nll"), line[column].split(", "), strict=True):
                half = 0.51 * 10 ** -len(text.split(".")[1])
                assert float(text) == pytest.approx(statistics.fmean(row[name] for row in own), abs=half), (task, model)


def test_the_documentation_s_times_are_the_record_s():
    for row in TABLES["times"]:
        assert f"{row['task']} {row['rcad ratio']:.1f}" in " ".join(document("sklearn").split())
        assert row["rcad ratio"] <= 3, "a fit takes at most three times as long as that of scikit-learn's MLP"
    ratios = [row["rcad ratio"] for row in TABLES["times"]]
    assert f"{min(ratios):.1f} to {max(ratios):.1f} times as long" in " ".join(document("sklearn").split())
