"""Tables as files hold them: named columns of numbers or text, before anything is decided about their meaning."""

from __future__ import annotations

import csv
import io
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.errors import InputError, need

Column = list[str | None] | npt.NDArray[np.float64]
"""Text with None for missing, or numbers with NaN for missing."""

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""What counts as a missing value in a text file, in any case of letters."""

SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".npy", ".npz")
_DELIMITERS = (",", "\t", ";", "|")


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length, and where each row stands in the file."""

    path: Path
    names: tuple[str, ...]
    columns: tuple[Column, ...]
    lines: Sequence[int]
    unit: str = "line"

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, row: int, column: int) -> str:
        """The place of a value, for an error message."""
        return f"{self.unit} {self.lines[row]}, column {self.names[column]!r} of {self.path}"


def read_table(path: Path, *, header: bool = True, delimiter: str | None = None) -> Table:
    """Read a table from any of `SUFFIXES`.

    Args:
        path: the file.
        header: whether the first line of a text file holds the names; else they are x0, x1, ...
        delimiter: of a text file; by default found out from its first lines (.tsv: tab).
    """
    if not path.is_file():
        raise InputError(f"expected a table, but found no file at {path}; check the path")
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"expected a file that ends in {', '.join(SUFFIXES)}, but got {path}; convert it")
    if suffix == ".parquet":
        table = _read_parquet(path)
    elif suffix in (".npy", ".npz"):
        table = _read_numpy(path)
    else:
        table = _read_text(path, header, "\t" if suffix == ".tsv" and delimiter is None else delimiter)
    _check_names(table)
    if len(table) < 2:
        raise InputError(f"expected at least 2 rows in {path}, but got {len(table)}")
    return table


def _read_text(path: Path, header: bool, delimiter: str | None) -> Table:
    text = _decode(path)
    if not text.strip():
        raise InputError(f"expected a table in {path}, but the file is empty")
    if delimiter is not None and len(delimiter) != 1:
        raise InputError(f"expected delimiter to be one character, but got {delimiter!r}")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter or _sniff(text), skipinitialspace=True)
    rows, lines = [], []
    before = 0
    try:
        for row in reader:
            # A quoted field may span lines: a row stands where it begins.
            first, before = before + 1, reader.line_num
            if any(cell.strip() for cell in row):
                rows.append([cell.strip() for cell in row])
                lines.append(first)
    except csv.Error as error:
        raise InputError(f"expected line {reader.line_num} of {path} to be a row, but got: {error}") from None
    names = rows.pop(0) if header else [f"x{j}" for j in range(len(rows[0]))]
    if header and all(_is_number(name) for name in names):
        raise InputError(
            f"expected column names in line {lines[0]} of {path}, but got numbers; add names or use header=False"
        )
    lines = lines[1:] if header else lines
    for line, row in zip(lines, rows, strict=True):
        if len(row) != len(names):
            raise InputError(
                f"expected {len(names)} columns in line {line} of {path}, but got {len(row)}; mend that line"
            )
    columns = [[None if cell.lower() in MISSING else cell for cell in column] for column in zip(*rows, strict=True)]
    return Table(path, tuple(names), tuple(columns), lines)


def _decode(path: Path) -> str:
    raw = path.read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"expected UTF-8 text in {path}, but got byte 0x{raw[error.start]:02x} in line {line}; save it as UTF-8"
        ) from None


def _sniff(text: str) -> str:
    """The delimiter that cuts most of the first lines into as many parts as the first of them."""
    head = [line for line in text[:65536].splitlines()[:21] if line.strip()]
    best, best_score = ",", (0, 0)
    for delimiter in _DELIMITERS:
        counts = [len(row) for row in csv.reader(head, delimiter=delimiter)]
        if counts and counts[0] > 1:
            score = (counts.count(counts[0]), counts[0])
            best, best_score = max((best, best_score), (delimiter, score), key=lambda pair: pair[1])
    return best


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path) -> Table:
    pa, pq = need("pyarrow", "pyarrow"), need("pyarrow.parquet", "pyarrow")
    try:
        # A ParquetFile, not read_table: the latter takes folders called k=v above the file for columns.
        table = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"expected {path} to be a Parquet file, but got: {reason}") from None
    columns = tuple(_arrow_column(pa, path, name, table.column(j)) for j, name in enumerate(table.column_names))
    return Table(path, tuple(table.column_names), columns, range(1, table.num_rows + 1), "row")


def _arrow_column(pa: Any, path: Path, name: str, column: Any) -> Column:
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
        numbers = [np.nan if v is None else float(v) for v in column.to_pylist()]
        return np.asarray(numbers, dtype=np.float64)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_boolean(kind):
        texts = (None if v is None else str(v).strip() for v in column.to_pylist())
        return [None if t is None or t.lower() in MISSING else t for t in texts]
    raise InputError(
        f"expected numbers or text in column {name!r} of {path}, but got {kind}; write the file without it"
    )


def _read_numpy(path: Path) -> Table:
    try:
        content = np.load(path, allow_pickle=False)
        arrays = {name: content[name] for name in content} if path.suffix.lower() == ".npz" else {"": content}
    except (ValueError, OSError, EOFError, KeyError, TypeError, zipfile.BadZipFile, zlib.error):
        raise InputError(
            f"expected {path} to be a NumPy file without pickled objects, but it is not; save it anew"
        ) from None
    if len(arrays) != 1:
        raise InputError(f"expected one 2-D array in {path}, but got {len(arrays)}: {', '.join(arrays) or 'none'}")
    (array,) = arrays.values()
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiub":
        got = f"shape {np.shape(array)} of {getattr(array, 'dtype', type(array).__name__)}"
        raise InputError(f"expected a 2-D array of numbers in {path}, but got {got}")
    columns = tuple(array[:, j].astype(np.float64) for j in range(array.shape[1]))
    names = tuple(f"x{j}" for j in range(len(columns)))
    return Table(path, names, columns, range(len(array)), "row")


def _check_names(table: Table) -> None:
    for j, name in enumerate(table.names):
        if not name:
            raise InputError(
                f"expected a name for every column of {table.path}, but column {j + 1} has none; name it, "
                "or remove it if it only counts the rows"
            )
    twice = [name for name, count in Counter(table.names).items() if count > 1]
    if twice:
        raise InputError(f"expected column names of {table.path} to differ, but got {twice[0]!r} twice; rename one")
