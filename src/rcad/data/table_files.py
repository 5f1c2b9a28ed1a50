"""Tables as files hold them: named columns of numbers or text, before anything is decided about their meaning."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.data.arrays import read_arrays
from rcad.data.files import intact, read_bytes, reason
from rcad.errors import InputError, need

Numbers = npt.NDArray[np.float64]
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""What counts as a missing value in a text file, in any case of letters."""
SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".npy")
_SPLIT = re.compile(r"(train|test|valid|validation|val)([-_.].*)?\.(csv|tsv|parquet)")
UNNAMED = re.compile(r"Unnamed: \d+(?:\.\d+)?|__index_level_\d+__")
"""How pandas names the column of an index that has no name, in text files and in Parquet."""
_DELIMITERS = (",", "\t", ";", "|")


class Text:
    """A column of text, None for missing; written in a file, spaces around it do not count and `MISSING` are gaps."""

    def __init__(self, values: Sequence[str | None], *, as_written: bool = False) -> None:
        self._values, self._as_written = values, as_written

    @cached_property
    def coded(self) -> tuple[list[str], npt.NDArray[np.int64]]:
        """The distinct texts in order of appearance, and for each row the index of its text; -1 for missing."""
        places: dict[str, int] = {}
        codes: dict[str | None, int] = {None: -1}
        for value in dict.fromkeys(self._values):
            if value is not None:
                text = value.strip() if self._as_written else value
                missing = self._as_written and text.lower() in MISSING
                codes[value] = -1 if missing else places.setdefault(text, len(places))
        return list(places), np.asarray([codes[value] for value in self._values], dtype=np.int64)

    @property
    def levels(self) -> list[str]:
        return self.coded[0]

    @property
    def codes(self) -> npt.NDArray[np.int64]:
        return self.coded[1]

    def texts(self, rows: Any = slice(None)) -> list[str | None]:
        """The text of each row, or of these rows; None for missing."""
        return [None if k < 0 else self.levels[k] for k in self.codes[rows].tolist()]

    def row_of(self, level: str) -> int:
        """The first row with this text."""
        return int(np.argmax(self.codes == self.levels.index(level)))

    @cached_property
    def numbers(self) -> Numbers | None:
        """The column as numbers, NaN for missing; None unless every text is a number."""
        with contextlib.suppress(TypeError, ValueError):  # gaps or words: one distinct text after the other
            if "_" not in "".join(self._values):  # type: ignore[arg-type]
                return np.asarray(list(map(float, self._values)))  # type: ignore[arg-type]
        values = [number_of(level) for level in self.levels]
        return None if None in values else np.asarray([*values, np.nan], dtype=np.float64)[self.codes]


Column = Numbers | Text  # numbers with NaN for missing, or text


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length by name; `line` gives the place of a row in the file, for an error message."""

    path: Path
    columns: Mapping[str, Column]
    length: int
    line: Callable[[int], str]

    def __len__(self) -> int:
        return self.length

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.columns)

    def text(self, name: str) -> Text:
        """A column as text; whole numbers are written without a point."""
        values = self.columns[name]
        if isinstance(values, Text):
            return values
        return Text([None if np.isnan(v) else repr(int(v)) if v.is_integer() else repr(v) for v in values.tolist()])

    def where(self, row: int, name: str) -> str:
        """The place of a value, for an error message."""
        return f"{self.line(row)}, column {name!r} of {self.path}"

    def take(self, rows: npt.NDArray[np.int64]) -> Table:
        """These rows, in this order."""
        columns = {n: Text(c.texts(rows)) if isinstance(c, Text) else c[rows] for n, c in self.columns.items()}
        return Table(self.path, columns, len(rows), lambda row: self.line(int(rows[row])))


def list_names(names: Sequence[str]) -> str:
    """The first of these names, for a message of one line."""
    more = ", ..." if len(names) > 8 else ""
    return ", ".join(" ".join(name.split())[:40] for name in names[:8]) + more


def number_of(text: str) -> float | None:
    """A text as a number, or None. Python's "1_000" is not a number here."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def read_table(path: Path, *, least: int = 2) -> Table:
    """Read a table of `least` rows or more from any of `SUFFIXES`; the first line of a text file names its columns."""
    if not path.is_file():
        got = "a folder" if path.is_dir() else "no file"
        raise InputError(f"expected a table, but found {got} at {path}; check the path")
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"expected a file that ends in {', '.join(SUFFIXES)}, but got {path}; convert it")
    if suffix == ".parquet":
        pa, pq = need("pyarrow", "pyarrow"), need("pyarrow.parquet", "pyarrow")
        with intact(path, "Parquet file", "write it again"):
            # A ParquetFile, not read_table: the latter takes folders called k=v above the file for columns.
            table = _arrow_table(pa, path, pq.ParquetFile(path).read())
    elif suffix == ".npy":
        table = _read_numpy(path)
    else:
        table = _read_text(path)
    if len(table) < least:
        raise InputError(f"expected at least {least} row{'s' if least > 1 else ''} in {path}, but got {len(table)}")
    return table


def split_files(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """The tables whose names begin with a split, by split ("train", "test", "valid") and sorted."""
    splits: dict[str, list[Path]] = {}
    for path in sorted(paths):
        if match := _SPLIT.fullmatch(path.name.lower()):
            splits.setdefault("valid" if match[1].startswith("val") else match[1], []).append(path)
    return splits


def split_tables(folder: Path) -> dict[str, list[Path]]:
    """The tables of a folder by split, "train" and perhaps "test" (else valid); none where no table is called train."""
    splits = split_files(path for home in (folder, folder / "data") if home.is_dir() for path in home.iterdir())
    if "train" not in splits:
        return {}
    tests = splits.get("test") or splits.get("valid")
    return {"train": splits["train"]} | ({"test": tests} if tests else {})


def join_tables(tables: Sequence[Table], path: Path) -> Table:
    """Concatenate the rows of tables with the same columns."""
    first = tables[0]
    if len(tables) == 1:
        return first
    for other in tables[1:]:
        if missing := [name for name in first.names if name not in other.names]:
            raise InputError(f"expected a column {missing[0]!r} in {other.path} as in {first.path}, but it is missing")
    columns: dict[str, Column] = {}
    for name in first.names:
        parts = [table.columns[name] for table in tables]
        numeric = [part for part in parts if not isinstance(part, Text)]
        texts = (table.text(name).texts() for table in tables)
        columns[name] = np.concatenate(numeric) if len(numeric) == len(parts) else Text([*chain(*texts)])
    starts = np.cumsum([0, *map(len, tables)])

    def line(row: int) -> str:
        k = int(np.searchsorted(starts, row, side="right")) - 1
        return f"{tables[k].line(row - int(starts[k]))} of {tables[k].path.name}"

    return Table(path, columns, int(starts[-1]), line)


def _by_name(path: Path, names: Sequence[str], columns: Iterable[Column]) -> dict[str, Column]:
    for name, times in Counter(names).items():
        if not name:
            raise InputError(
                f"expected a name for every column of {path}, but column {names.index('') + 1} has none; name it, or "
                "remove it if it only counts the rows"
            )
        if times > 1:
            raise InputError(f"expected column names of {path} to differ, but got {name!r} twice; rename one")
    return dict(zip(names, columns, strict=False))  # no columns where there are no rows


def _read_text(path: Path) -> Table:
    raw = read_bytes(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = raw.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"expected UTF-8 text in {path}, but got byte 0x{raw[error.start]:02x} in line {place}; save it as UTF-8"
        ) from None
    lines = _rows(text, "\t" if path.suffix.lower() == ".tsv" else _sniff(text), path)
    first, header = next(lines, (0, []))
    if not header:
        raise InputError(f"expected a table in {path}, but the file is empty")
    names = [cell.strip() for cell in header]
    if not names[0]:  # an index: pandas writes no name for it, and reads it under the first of these that is free
        names[0] = next(name for k in count() if (name := f"Unnamed: 0.{k}".removesuffix(".0")) not in names)
    rows = list(lines)
    columns = tuple(Text(column, as_written=True) for column in zip(*(cells for _, cells in rows), strict=True))
    words = [k for k, name in enumerate(names) if number_of(name) is None]
    # A line of numbers, and of words that are values as well, is a row.
    if len(words) < len(names) and all(rows and names[k] in columns[k].levels for k in words):
        raise InputError(f"expected column names in line {first} of {path}, but got values; add a line of names")
    return Table(path, _by_name(path, names, columns), len(rows), lambda row: f"line {rows[row][0]}")


def _rows(text: str, delimiter: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Every row that is not blank, and the line it begins in; rows are as long as the first."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    before, width, titled = 0, 0, 0
    try:
        for row in reader:
            # A quoted field may span lines: a row stands where it begins.
            line, before = before + 1, reader.line_num
            if any(map(str.strip, row)):
                if width == 1 < len(row) and titled:
                    raise InputError(
                        f"expected column names in line {titled} of {path}, but it has 1 column and line {line} has "
                        f"{len(row)}; remove what stands above the names"
                    )
                titled = 0 if width else line
                if width and len(row) != width:
                    raise InputError(
                        f"expected {width} columns in line {line} of {path}, but got {len(row)}; correct that line"
                    )
                width = len(row)
                yield line, row
    except csv.Error as error:
        raise InputError(f"expected line {reader.line_num} of {path} to be a row, but got: {error}") from None


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


def frame_table(frame: Any) -> Table:
    """A pandas frame, read as a file with the same columns would be; its index is left out."""
    pa = need("pyarrow", "pyarrow")
    path = Path("the frame")
    try:
        table = pa.Table.from_pandas(frame.rename(columns=str), preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:  # e.g. two columns of one name
        raise InputError(f"expected one kind of values in each column of {path}, but got: {reason(error)}") from None
    return _arrow_table(pa, path, table)


def _arrow_table(pa: Any, path: Path, table: Any) -> Table:
    names = table.column_names
    columns = (_arrow_column(pa, path, name, table.column(j)) for j, name in enumerate(names))
    return Table(path, _by_name(path, names, columns), table.num_rows, lambda row: f"row {row + 1}")


def _arrow_column(pa: Any, path: Path, name: str, column: Any) -> Column:
    types, kind = pa.types, column.type
    if types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
        return np.asarray([np.nan if v is None else float(v) for v in column.to_pylist()], dtype=np.float64)
    if types.is_date(kind) or types.is_timestamp(kind):
        days = np.asarray(column.cast(pa.timestamp("us")).to_numpy(), dtype="datetime64[us]").astype(np.int64)
        return np.where(column.is_null().to_numpy(), np.nan, days / 86_400e6)  # days since 1970, as in text files
    if types.is_string(kind) or types.is_large_string(kind) or types.is_boolean(kind):
        return Text([None if v is None else str(v) for v in column.to_pylist()], as_written=True)
    raise InputError(
        f"expected numbers or text in column {name!r} of {path}, but got {kind}; write the file without it"
    )


def _read_numpy(path: Path) -> Table:
    array = read_arrays(path)[""]
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise InputError(f"expected a 2-D array of numbers in {path}, but got shape {array.shape} of {array.dtype}")
    columns = {f"x{j}": array[:, j].astype(np.float64) for j in range(array.shape[1])}
    return Table(path, columns, len(array), lambda row: f"row {row}")
