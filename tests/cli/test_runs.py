"""`rcad runs`: lists, details, files, removal; and what users write and read: methods, seeds, numbers, tables."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Cli, Refused
from rcad.cli.options import Source
from rcad.cli.screen import fields, table
from rcad.loss.method_rows import parse_method
from rcad.runs.configure import configure
from rcad.runs.record import RunRecord, Split
from rcad.runs.store import Store
from rcad.runs.words import duration, leading, mean_and_spread, metric, plural, sparkline


def record(data: str, method: str, seed: int, status: str, epochs: int = 30) -> RunRecord:
    config = configure(data, parse_method(method), recipe="small", epochs=30, seed=seed)
    rows = [{"epoch": e, "loss": 2.0 / e, "accuracy": 90.0 + e / 10, "lr": 0.1} for e in range(1, epochs + 1)]
    more: dict[str, Any] = {} if status == "interrupted" else {"finished": "2024-01-31T12:00:00+00:00"}
    if status == "done":
        more["metrics"] = {"test_accuracy": 90.0 + seed, "test_nll": 0.25}
    splits, timings = {"train": Split(size=90, sha256="ab" * 32)}, {"train_seconds": 3600.0}
    about: dict[str, Any] = {"status": status, "started": "2024-01-31T11:00:00+00:00", "device": "CPU"}
    return RunRecord(config=config, epochs=rows, splits=splits, timings=timings, **about, **more)


@pytest.fixture
def store() -> Store:
    store = Store.open("runs")
    for one in (
        record("digits", "rcad", 0, "done"),
        record("digits[:500]", "mixup + rcad", 1, "done"),
        record("digits", "rcad_random", 0, "diverged", epochs=2),
        record("my.csv", "erm", 0, "interrupted", epochs=1),
    ):
        store.write(one)
    return store


def ids(out: str) -> set[str]:
    return {run["id"] for run in json.loads(out)}


def test_filters(store: Store, done: Cli) -> None:
    for filters, count in (
        ("--status done", 2),
        ("--status done --status diverged", 3),
        ("--data digits", 3),
        ("--data digits[:500]", 1),
        ("--method rcad", 2),
        ("--method 'mixup + rcad'", 1),
        ("--data digits --method erm", 0),
    ):
        assert len(ids(done("runs", "list", "--json", *shlex.split(filters)).out)) == count, filters


def test_list_for_people(store: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = cli("runs", "list").out.splitlines()
    assert len(lines) == 6
    assert " ".join(lines[0].split()) == "run data method seed status epochs test_accuracy test_nll started"
    for columns in (80, 40):
        monkeypatch.setenv("COLUMNS", str(columns))
        narrow = cli("runs", "list").out
        assert store.ids()[0] in narrow
        assert max(map(len, narrow.split("\n"))) <= columns
    assert "no runs" in cli("runs", "list", "--data", "mnist").out


def test_runs_that_differ_in_more_than_their_method_are_told_apart(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    store, usual = Store.open("runs"), record("digits", "erm", 0, "done")
    config = replace(usual.config, optim=replace(usual.config.optim, lr=0.5))
    config = replace(config, model=replace(config.model, weights="w.pt"))
    few = configure("digits", parse_method("erm"), recipe="few-labels")
    for one, metrics in ((usual.config, {"test_rmse": 1234.5, "test_nll": 2.0}), (config, usual.metrics), (few, {})):
        store.write(replace(usual, config=one, metrics=metrics, id=""))
    monkeypatch.setenv("COLUMNS", "200")
    header, _, *rows = (line.split() for line in cli("runs", "list").out.splitlines())
    assert " ".join(header[6:]) == "test_accuracy or rmse test_nll settings started"
    ends = {" ".join(row[row.index("30") + 1 : -2]) for row in rows}
    assert ends == {"1234 2", "90.0% 0.25 weights=w.pt lr=0.5", "- - few-labels"}


def test_a_broken_record_does_not_hide_the_others(done: Cli, store: Store) -> None:
    damaged = store.folder(store.ids()[1]) / "record.json"
    damaged.write_text(damaged.read_text()[:40])
    for words in ("list --json", "export table.csv"):
        result = done("runs", *words.split())
        assert (result.err.count("\n"), str(damaged) in result.err) == (1, True)
        assert result.out == "wrote 3 runs to table.csv\n" or len(ids(result.out)) == 3


def test_show(store: Store, cli: Cli) -> None:
    run = next(one.id for one in store.records() if one.config.data.name == "digits[:500]")
    out = cli("runs", "show", run[:10]).out
    for part in (run, 'name = "digits[:500]"', "test_accuracy  91.0%", "30 epochs", "abababababababab", "1h 00m", "█"):
        assert part in out
    shown = [line.split()[0] for line in out[out.index("30 epochs") :].splitlines() if line[:5].strip().isdigit()]
    assert (shown[0], shown[-1], len(shown)) == ("1", "30", 8)
    whole = cli("runs", "show", run, "--json").json()
    assert (len(whole["epochs"]), whole["config"]["data"]["name"]) == (30, "digits[:500]")


def test_export_replaces_a_file_only_when_told(store: Store, done: Cli, refused: Refused) -> None:
    Path("table.csv").write_text("precious")
    refused("runs", "export", "table.csv", says="add --force")
    done("runs", "export", "table.csv", "--force")
    assert Path("table.csv").read_text() != "precious"


def test_prune_removes_only_when_told(store: Store, cli: Cli) -> None:
    listed = cli("runs", "prune").out
    assert ("would remove 2 runs" in listed, "--yes" in listed, len(store.ids())) == (True, True, 4)
    for words in ("--older-than 1", "--checkpoints"):
        assert "nothing to remove" in cli("runs", "prune", *words.split()).out
    assert "removed 1 run," in cli("runs", "prune", "--status", "diverged", "--yes").out
    assert "removed 1 run," in cli("runs", "prune", "--yes").out
    assert {one.status for one in store.records()} == {"done"}
    keep, go = store.ids()
    cli("runs", "prune", go, "--yes")
    assert store.ids() == [keep]


def test_pack_and_unpack(store: Store, cli: Cli, refused: Refused) -> None:
    result = cli("runs", "pack", "runs", "--out", "study.jsonl.gz")
    assert result.out.startswith("packed 3 runs into study.jsonl.gz, ")
    assert "left out 1 run" in result.err
    finished = [run for run in cli("runs", "list", "--json").json() if run["status"] != "interrupted"]
    listed = cli("runs", "list", "--json", "--runs", "study.jsonl.gz").json()
    assert listed == [{**run, "folder": "study.jsonl.gz"} for run in finished]
    assert "study.jsonl.gz" in cli("runs", "show", finished[0]["id"], "--runs", "study.jsonl.gz").out
    for told in ("unpacked 3 runs into new\n", "unpacked 0 runs into new; 3 were there already\n"):
        assert cli("runs", "unpack", "study.jsonl.gz", "--out", "new").out == told
    refused("runs", "pack", "runs", "--out", "study.jsonl.gz", says="add --force")


def test_a_folder_is_the_same_data_however_it_is_written() -> None:
    for written in ("images", "images/", "./images//", ".//./images"):
        assert Source(data=written, images=None).name == "images"
        assert Source(data=None, images=f"{written}[:8]").name == "images[:8]"
    for own in ("./digits", "digits/"):  # one's own needs what sets it apart from the known data set
        assert Source(data=own, images=None).name == own


def test_numbers() -> None:
    assert [metric("val_accuracy", 97.24), metric("test_nll", 0.104321), metric("nll", None)] == [
        "97.2%",
        "0.1043",
        "-",
    ]
    assert [duration(s) for s in (8.42, 59.97, 125, 11520, None)] == ["8.4 s", "1m 00s", "2m 05s", "3h 12m", "-"]
    assert [plural(1, "run"), plural(2, "class")] == ["1 run", "2 classes"]
    # A spread is given from two seeds on.
    assert [mean_and_spread("accuracy", values) for values in ([90.0], [90.0, 92.0])] == ["90.0%", "91.0 ± 1.4%"]
    assert mean_and_spread("nll", [0.1, None]) == "-"
    names = ["epochs", "last_nll", "val_accuracy", "test_brier", "test_nll", "selected_epoch", "test_accuracy"]
    assert leading(names, 5) == ["test_accuracy", "test_nll", "test_brier", "val_accuracy", "last_nll"]
    assert [sparkline(values) for values in ([0, 7, 3.5], [1, None, 1], [None])] == ["▁█▅", "▁ ▁", ""]


def test_tables(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    table(["seed", "accuracy", "run"], [["0", "97.0%", "ab"], ["10", "9.5%", "cd"]], last=["mean", "53.2%", ""])
    line = "───────────────────"
    rows = ["seed  accuracy  run", line, "   0     97.0%  ab", "  10      9.5%  cd", line, "mean     53.2%"]
    assert capsys.readouterr().out.splitlines() == rows
    # Names from files cannot break them.
    table(["class", "train"], [["a\nb", "1"], ["\x1b[31mé", "2"]])
    fields([("features", "a\tb")])
    found = capsys.readouterr().out.splitlines()
    assert found[2:] == ["a\\nb           1", "\\x1b[31mé      2", "features  a\\tb"]
    # Narrow ones wrap the last column, or drop it.
    monkeypatch.setenv("COLUMNS", "40")
    table(["method", "about"], [["rcad", "pays the model for being unsure, a step up the loss"]])
    table(["a", "b"], [["x" * 30, "y" * 30]])
    _, _, *wrapped = capsys.readouterr().out.splitlines()
    assert wrapped[:3] == ["rcad    pays the model for being unsure,", "        a step up the loss", "a"]
