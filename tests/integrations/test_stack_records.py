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


def committed(name):
    return json.loads((ROOT / f"results/{name}.json").read_text(encoding="utf-8"))


COST, EMBEDDINGS, TABLES = map(committed, ("benchmarks/stacks_cpu", "embeddings/alpha", "sklearn/tables"))


@pytest.mark.parametrize(
    ("script", "record", "page"),
    [
        ("stacks", COST, "benchmarks/stacks_cpu.md"),
        ("embedding_alpha", EMBEDDINGS, "embeddings/alpha.md"),
        ("sklearn_page", TABLES, "sklearn/tables.md"),
    ],
)
def test_a_page_of_results_is_made_from_its_record(script, record, page):
    more = (5,) if script == "sklearn_page" else ()
    assert (ROOT / "results" / page).read_text(encoding="utf-8") == importlib.import_module(script).page(record, *more)


def test_the_records_are_whole():
    assert {row["stack"] for row in COST["rows"]} == set(STACKS) == set(importlib.import_module("stacks").STACKS)
    assert list(EMBEDDINGS["runs"]) == list(importlib.import_module("embedding_alpha").METHODS)
    assert {tuple(run["seed"] for run in runs) for runs in EMBEDDINGS["runs"].values()} == {tuple(range(6))}
    places = {(row["task"], row["model"], row["fold"]) for row in TABLES["runs"]}
    assert len(places) == len(TABLES["runs"]) == 4 * 6 * 50


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_s_page_shows_its_table_of_costs(stack):
    section = document(stack).split("## What it costs\n")[1].split("\n## ")[0]
    assert importlib.import_module("stacks").tables(COST)[stack] in section


def test_the_pages_show_what_embeddings_gave_and_how_long_a_fit_takes():
    assert importlib.import_module("embedding_alpha").shown(EMBEDDINGS) in document("huggingface")
    for row in TABLES["times"]:
        assert f"{row['task']} {row['rcad ratio']:.1f}" in " ".join(document("sklearn").split())


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
