"""A study in one file: finished runs with their evaluations as gzipped JSON lines, small enough to commit.

The first line is a header with a checksum of all that follows; then comes one line per run, by id: its record, whole
but for the epochs, and the evaluations that lie beside it. Of the epochs at most 50 stay, with training loss and
validation NLL in seven digits. Weights and logs stay behind. The same runs give the same bytes; `export` makes tables.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import re
import shlex
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rcad.errors import InputError, need, shown
from rcad.runs.files import READABLE, dumps, expecting, loads, make_folder, replacing, set_aside, write_text
from rcad.runs.record import RunRecord

SUFFIX = ".jsonl.gz"
KIND, SCHEMA = "rcad runs", 1
POINTS = 50  # epochs of a run that are kept
CURVES = ("epoch", "loss", "val_nll")  # what is kept of an epoch
LARGEST = 1_000_000  # bytes of a file that may be committed
LARGEST_TEXT = 64 * 1024 * 1024  # bytes that a file may hold once it is unzipped: far more than 1 MB of ours ever does
DIGITS = 7
_FILE = re.compile(r"[A-Za-z0-9_-]+\.json")
FORMATS = (".csv", ".parquet", ".json")
_FIRST = ("id", "data", "model", "method", "seed", "status", "epochs")
_LAST = ("message", "device", "peak_memory_bytes", "commit", "started", "finished")


@dataclass(frozen=True)
class PackedRun:
    """A finished run without its folder; `evaluations` are what `rcad evaluate` wrote beside it, by file name."""

    record: RunRecord
    evaluations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def is_pack(path: Path) -> bool:
    return path.name.endswith(SUFFIX)


def packs_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


def write_pack(path: Path, runs: Iterable[PackedRun]) -> int:
    """Write the runs to one file, atomically; returns its size in bytes."""
    if not is_pack(path):
        raise InputError(f"expected a file that ends in {SUFFIX}, but got {str(path)!r}; rename it")
    ordered = sorted(runs, key=lambda run: run.record.id)
    if not ordered:
        raise InputError("expected finished runs to pack, but there are none; train some")
    body = "".join(dumps(_plain(run)) + "\n" for run in ordered).encode()
    header = {"kind": KIND, "schema": SCHEMA, "runs": len(ordered), "sha256": hashlib.sha256(body).hexdigest()}
    zipped = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=zipped, mtime=0) as file:
        file.write((dumps(header) + "\n").encode() + body)
    content = zipped.getvalue()
    if len(content) > LARGEST:
        raise InputError(
            f"expected a pack of at most {LARGEST:,} bytes, but {len(ordered)} runs take {len(content):,}; "
            "pack fewer of them to a file"
        )
    make_folder(path.parent)
    if path.is_dir():
        set_aside(path)
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return len(content)


def read_pack(path: Path) -> Mapping[str, PackedRun]:
    """The runs of a pack by id; one line says what is wrong with a file that cannot be used."""
    return _read(path, *_state(path))


def united(packs: Iterable[Path]) -> Mapping[str, tuple[Path, PackedRun]]:
    """The runs of several packs, each with the pack that holds it. A run may lie in two, but not with two records."""
    return _united(tuple((path, *_state(path)) for path in packs))


@lru_cache(maxsize=8)
def _united(packs: tuple[tuple[Path, int, int], ...]) -> Mapping[str, tuple[Path, PackedRun]]:
    runs: dict[str, tuple[Path, PackedRun]] = {}
    for path, *state in packs:
        for run, packed in _read(path, *state).items():
            first_path, first = runs.setdefault(run, (path, packed))
            if first.record != packed.record:
                raise InputError(
                    f"expected one record of run {run}, but {first_path} and {path} hold different ones; "
                    "move one of the files to another folder"
                )
            runs[run] = first_path, replace(first, evaluations={**packed.evaluations, **first.evaluations})
    return MappingProxyType(runs)


def _state(path: Path) -> tuple[int, int]:
    """What tells one version of a file from the next."""
    with expecting(path, READABLE):
        state = path.stat()
    return state.st_mtime_ns, state.st_size


def thinned(record: RunRecord) -> RunRecord:
    """The record with at most POINTS epochs: the first, the last and the chosen one are among them."""
    rows, places = record.epochs, list(range(len(record.epochs)))
    if len(rows) > POINTS:
        places = [round(point * (len(rows) - 1) / (POINTS - 1)) for point in range(POINTS)]
    chosen = next((at for at, row in enumerate(rows) if row.get("epoch") == record.metrics.get("selected_epoch")), 0)
    if rows and chosen not in places:
        nearest = min(places[1:-1], key=lambda at: abs(at - chosen))
        places[places.index(nearest)] = chosen
    points = ({name: _rounded(rows[at][name]) for name in CURVES if name in rows[at]} for at in places)
    return replace(record, epochs=tuple(points))


def _rounded(value: float | None) -> float | None:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _plain(run: PackedRun) -> dict[str, Any]:
    if not run.record.is_final:
        raise InputError(f"expected finished runs to pack, but {run.record.id} is {run.record.status}")
    evaluations = {name: dict(run.evaluations[name]) for name in sorted(run.evaluations)}
    return {"record": thinned(run.record).to_dict(), "evaluations": evaluations}


@lru_cache(maxsize=32)
def _read(path: Path, modified: int, size: int) -> Mapping[str, PackedRun]:
    header, lines = _lines(path)
    runs = {}
    for number, line in enumerate(lines, 2):
        packed = _packed(loads(line, f"{path}, line {number}"), f"{path}, line {number}")
        runs[packed.record.id] = packed
    if len(runs) != header["runs"]:
        raise broken_pack(path, f"{len(runs)} runs where its header says {shown(header['runs'])}")
    return MappingProxyType(runs)


def _lines(path: Path) -> tuple[dict[str, Any], Sequence[str]]:
    try:
        with gzip.open(path) as file:
            content = file.read(LARGEST_TEXT + 1)
    except (OSError, EOFError, zlib.error) as error:  # the last two where the file was cut short or changed
        raise broken_pack(path, " ".join(str(getattr(error, "strerror", None) or error).split())) from None
    if not content:
        raise broken_pack(path, "nothing")
    if len(content) > LARGEST_TEXT:
        raise broken_pack(path, f"more than {LARGEST_TEXT:,} bytes once it is unzipped")
    first, _, body = content.partition(b"\n")
    try:
        header = loads(first.decode(), f"{path}, line 1")
        if not isinstance(header, dict) or header.get("kind") != KIND:
            raise broken_pack(path, "a file of another kind")
        if header.get("schema") != SCHEMA:
            raise InputError(
                f"expected a pack of schema {SCHEMA} in {path}, but got {shown(header.get('schema'))}; "
                "read it with the version of rcad that wrote it"
            )
        if header.get("sha256") != hashlib.sha256(body).hexdigest() or "runs" not in header:
            raise broken_pack(path, "lines that do not match its checksum")
        return header, body.decode().split("\n")[:-1]
    except UnicodeDecodeError:
        raise broken_pack(path, "bytes that are no text") from None


def _packed(plain: Any, source: str) -> PackedRun:
    if not isinstance(plain, dict) or plain.keys() != {"record", "evaluations"}:
        raise InputError(f"expected a record and its evaluations in {source}, but got {shown(plain)}")
    evaluations = plain["evaluations"]
    if not isinstance(evaluations, dict) or not all(
        _FILE.fullmatch(name) and isinstance(evaluation, dict) for name, evaluation in evaluations.items()
    ):
        raise InputError(f"expected evaluations by file name in {source}, but got {shown(evaluations)}")
    record = RunRecord.from_dict(plain["record"], source=source)
    if not record.is_final:
        raise InputError(f"expected a finished run in {source}, but {record.id} is {record.status}")
    return PackedRun(record, evaluations)


def broken_pack(path: Path, reason: str) -> InputError:
    again = f"rcad runs pack DIR --out {shlex.quote(str(path))} --force"
    return InputError(
        f"expected {path} to be a pack of runs, but got {reason}; restore it, or pack the runs again: {again}"
    )


def export(records: Sequence[RunRecord], path: Path) -> None:
    """Write the records to a .csv, .parquet (flat rows) or .json (whole records) file, atomically."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"expected a file that ends in {', '.join(FORMATS)}, but got {str(path)!r}; rename it")
    if suffix == ".json":
        write_text(path, dumps([record.to_dict() for record in records], indent=1) + "\n")
        return
    rows = [_flat(record) for record in records]
    own = dict.fromkeys(name for row in rows for name in row if name not in _FIRST + _LAST)
    names = [*_FIRST, *own, *_LAST]
    with replacing(path) as temporary:
        if suffix == ".csv":
            with temporary.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, names, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
        else:
            arrow, parquet = need("pyarrow", "pyarrow"), need("pyarrow.parquet", "pyarrow")
            columns = {name: arrow.array(_uniform([row.get(name) for row in rows])) for name in names}
            parquet.write_table(arrow.table(columns), temporary)


def _flat(record: RunRecord) -> dict[str, Any]:
    """A row without the columns that this run has no value for."""
    plain = record.to_dict()
    parts = {name: plain[name] for name in ("metrics", "timings")}
    parts |= {title: section for title, section in plain["config"].items() if isinstance(section, dict)}
    parts["split"] = {name: split["sha256"] for name, split in plain["splits"].items()}
    parts["version"] = plain["versions"]
    row = {name: record.summary()[name] for name in _FIRST}
    for title, part in parts.items():
        for key, value in part.items():
            row[f"{title}.{key}"] = " ".join(map(str, value)) if isinstance(value, list) else value
    return row | {name: plain[name] for name in _LAST}


def _uniform(values: list[Any]) -> list[Any]:
    """A column of one type: ints beside floats become floats."""
    mixed = {type(value) for value in values if value is not None} == {int, float}
    return [float(value) if mixed and type(value) is int else value for value in values]
