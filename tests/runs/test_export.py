from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rcad.errors import MissingExtraError
from rcad.runs.pack import export
from rcad.runs.record import RunRecord


@pytest.fixture
def records(make_record: Callable[..., RunRecord]) -> list[RunRecord]:
    return [
        make_record(seed=0, metrics={"accuracy": 0.1 + 0.2, "n": 1}),
        make_record(seed=1, status="diverged", metrics={"accuracy": float("nan"), "n": 0.5}, message='a "b",\nc'),
    ]


def check(rows: list[dict[str, Any]]) -> None:
    assert [float(row["metrics.accuracy"]) if row["metrics.accuracy"] else None for row in rows] == [0.1 + 0.2, None]
    assert [row["message"] for row in rows] == ["", 'a "b",\nc']
    assert [int(row["seed"]) for row in rows] == [0, 1]
    assert rows[0]["method"] == "rcad(alpha=0.5)"
    assert float(rows[0]["optim.lr"]) == 0.001
    assert rows[0]["split.train"] == "a" * 64
    assert next(iter(rows[0])) == "id"


def test_csv(records: list[RunRecord], tmp_path: Path) -> None:
    export(records, tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(newline="") as file:
        check(list(csv.DictReader(file)))


def test_parquet(records: list[RunRecord], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export(records, tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    check(table.to_pylist())
    assert str(table.schema.field("metrics.n").type) == "double"
    assert str(table.schema.field("seed").type) == "int64"
    assert str(table.schema.field("data.balanced").type) == "bool"


def test_json_holds_whole_records(records: list[RunRecord], tmp_path: Path) -> None:
    export(records, tmp_path / "a.json")
    plain = json.loads((tmp_path / "a.json").read_text())
    assert [RunRecord.from_dict(one) for one in plain] == records


@pytest.mark.parametrize("suffix", ["csv", "parquet", "json"])
def test_no_records_make_an_empty_table(tmp_path: Path, suffix: str) -> None:
    export([], tmp_path / f"a.{suffix}")
    assert (tmp_path / f"a.{suffix}").stat().st_size > 0


def test_parquet_needs_pyarrow(records: list[RunRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install .* '\.\[data\]'"):
        export(records, tmp_path / "a.parquet")
