"""`rcad runs`: lists, details, files, removal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.conftest import Cli, Refused
from rcad.loss.method_rows import parse_method
from rcad.runs.configure import configure
from rcad.runs.record import RunRecord, Split
from rcad.runs.store import Store

STARTED, FINISHED = "2024-01-31T11:00:00+00:00", "2024-01-31T12:00:00+00:00"


def record(data: str, method: str, seed: int, status: str, epochs: int = 30) -> RunRecord:
    config = configure(data, parse_method(method), recipe="small", epochs=30, seed=seed)
    rows = [{"epoch": e, "loss": 2.0 / e, "accuracy": 90.0 + e / 10, "lr": 0.1} for e in range(1, epochs + 1)]
    final = status in ("done", "diverged")
    return RunRecord(
        config=config,
        status=status,  # type: ignore[arg-type]
        started=STARTED,
        finished=FINISHED if final else None,
        epochs=rows,
        metrics={"test_accuracy": 90.0 + seed, "test_nll": 0.25} if status == "done" else {},
        timings={"train_seconds": 3600.0},
        splits={"train": Split(size=90, sha256="ab" * 32)},
        device="CPU",
        message="the loss was no longer finite" if status == "diverged" else "",
    )


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


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (("--status", "done"), 2),
        (("--status", "done", "--status", "diverged"), 3),
        (("--data", "digits"), 3),
        (("--data", "digits[:500]"), 1),
        (("--method", "rcad"), 2),
        (("--method", "mixup + rcad"), 1),
        (("--data", "digits", "--method", "erm"), 0),
    ],
)
def test_filters(filters: tuple[str, ...], count: int, store: Store, cli: Cli) -> None:
    assert len(ids(cli("runs", "list", "--json", *filters).out)) == count


def test_list_for_people(store: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = cli("runs", "list").out.splitlines()
    assert len(lines) == 6
    assert lines[0].split() == [
        "run", "data", "method", "seed", "status", "epochs", "test_accuracy", "test_nll", "started",
    ]  # fmt: skip
    monkeypatch.setenv("COLUMNS", "80")
    usual = cli("runs", "list").out.splitlines()
    assert len(usual) == 6
    assert usual[0].split() == ["run", "data", "method", "seed", "status", "test_accuracy"]
    monkeypatch.setenv("COLUMNS", "40")
    narrow = cli("runs", "list").out
    assert store.ids()[0] in narrow
    assert max(map(len, narrow.split("\n"))) <= 40
    assert "no runs" in cli("runs", "list", "--data", "mnist").out


def test_a_broken_record_does_not_hide_the_others(done: Cli, store: Store) -> None:
    damaged = store.folder(store.ids()[1]) / "record.json"
    damaged.write_text(damaged.read_text()[:40])
    for words in ("list --json", "export table.csv"):
        result = done("runs", *words.split())
        assert (result.err.count("\n"), str(damaged) in result.err) == (1, True)
        assert result.out == "wrote 3 runs to table.csv\n" or len(ids(result.out)) == 3


def test_show(done: Cli, store: Store, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    run = next(one.id for one in store.records() if one.config.data.name == "digits[:500]")
    out = cli("runs", "show", run[:10]).out
    for part in (run, 'name = "digits[:500]"', "test_accuracy  91.0%", "30 epochs", "abababababababab", "1h 00m"):
        assert part in out
    assert "█" in out
    shown = [line.split()[0] for line in out[out.index("30 epochs") :].splitlines() if line[:5].strip().isdigit()]
    assert (shown[0], shown[-1], len(shown)) == ("1", "30", 8)
    whole = cli("runs", "show", run, "--json").json()
    assert (len(whole["epochs"]), whole["config"]["data"]["name"]) == (30, "digits[:500]")
    monkeypatch.setenv("COLUMNS", "40")
    done("runs", "show", run)


def test_export_replaces_a_file_only_when_told(store: Store, done: Cli, refused: Refused) -> None:
    Path("table.csv").write_text("precious")
    refused("runs", "export", "table.csv", says="add --force")
    done("runs", "export", "table.csv", "--force")
    assert Path("table.csv").read_text() != "precious"


def test_prune_removes_only_when_told(store: Store, cli: Cli) -> None:
    listed = cli("runs", "prune")
    assert "would remove 2 runs" in listed.out
    assert "--yes" in listed.out
    assert len(store.ids()) == 4
    assert "nothing to remove" in cli("runs", "prune", "--older-than", "1").out
    assert "nothing to remove" in cli("runs", "prune", "--checkpoints").out
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
