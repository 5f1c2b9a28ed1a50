"""Records as one table: a row per run, a column per config field and metric."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rcad.errors import InputError, need
from rcad.runs.files import dumps, replacing, write_text
from rcad.runs.record import RunRecord

FORMATS = (".csv", ".parquet", ".json")
_FIRST = ("id", "data", "model", "method", "seed", "status", "epochs")
_LAST = ("message", "device", "peak_memory_bytes", "commit", "started", "finished")


def export(records: Sequence[RunRecord], path: Path) -> None:
    """Write the records to a .csv, .parquet (flat rows) or .json (whole records) file, atomically."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"expected a file that ends in {', '.join(FORMATS)}, but got {str(path)!r}; rename it")
    if path.suffix.lower() == ".json":
        write_text(path, dumps([record.to_dict() for record in records], indent=1) + "\n")
        return
    rows = [_flat(record) for record in records]
    own = dict.fromkeys(name for row in rows for name in row if name not in _FIRST + _LAST)
    write = _write_csv if path.suffix.lower() == ".csv" else _write_parquet
    write(rows, [*_FIRST, *own, *_LAST], path)


def _flat(record: RunRecord) -> dict[str, Any]:
    """A row without the columns that this run has no value for."""
    plain = record.to_dict()
    row = {name: record.summary()[name] for name in _FIRST}
    row |= {f"metrics.{key}": value for key, value in plain["metrics"].items()}
    row |= {f"timings.{key}": value for key, value in plain["timings"].items()}
    for title, section in plain["config"].items():
        if isinstance(section, dict):
            row |= {f"{title}.{key}": _cell(value) for key, value in section.items()}
    row |= {f"split.{name}": split["sha256"] for name, split in plain["splits"].items()}
    row |= {f"version.{name}": version for name, version in plain["versions"].items()}
    return row | {name: plain[name] for name in _LAST}


def _cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _write_csv(rows: list[dict[str, Any]], names: list[str], path: Path) -> None:
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _write_parquet(rows: list[dict[str, Any]], names: list[str], path: Path) -> None:
    arrow, parquet = need("pyarrow", "pyarrow"), need("pyarrow.parquet", "pyarrow")
    columns = {name: arrow.array(_uniform([row.get(name) for row in rows])) for name in names}
    with replacing(path) as temporary:
        parquet.write_table(arrow.table(columns), temporary)


def _uniform(values: list[Any]) -> list[Any]:
    """A column of one type: ints beside floats become floats."""
    mixed = {type(value) for value in values if value is not None} == {int, float}
    return [float(value) if mixed and type(value) is int else value for value in values]
