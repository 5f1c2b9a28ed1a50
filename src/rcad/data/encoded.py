"""Runs of encoded images, wherever they lie: rows of a Parquet shard, files of a folder, members of a zip.

A run is a small value that travels to a decoding process as JSON and reads its own bytes there.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rcad.data.lazy import need
from rcad.errors import InputError

RUN_LENGTH = 2048


@dataclass(frozen=True)
class FileRun:
    """Image files below `root`."""

    root: str
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def images(self) -> Iterator[tuple[str, bytes]]:
        """(how an error names it, encoded bytes), in order."""
        for name in self.names:
            path = Path(self.root, name)
            try:
                yield str(path), path.read_bytes()
            except OSError as error:
                raise InputError(f"expected {path} to be readable, but got: {error.strerror}; check the file") from None


@dataclass(frozen=True)
class ZipRun:
    """Members of a zip archive."""

    archive: str
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def images(self) -> Iterator[tuple[str, bytes]]:
        """(how an error names it, encoded bytes), in order."""
        from rcad.data.archives import readable

        with readable(Path(self.archive)), zipfile.ZipFile(self.archive) as archive:
            for name in self.names:
                yield f"{self.archive}:{name}", archive.read(name)


@dataclass(frozen=True)
class ParquetRun:
    """Rows start..stop of one row group; `first` is the row group's first row in the shard."""

    shard: str
    column: str
    group: int
    first: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def images(self) -> Iterator[tuple[str, bytes]]:
        """(how an error names it, encoded bytes), in order."""
        parquet = need("pyarrow.parquet", "pyarrow")
        try:
            # One thread: every core already has its own process.
            table = parquet.ParquetFile(self.shard).read_row_group(self.group, [self.column], use_threads=False)
            column = table.column(0).slice(self.start, len(self))
            chunks = [c.field("bytes") if hasattr(c, "field") else c for c in column.chunks]
            encoded = [value for chunk in chunks for value in chunk.to_pylist()]
        except Exception as error:  # Arrow has no common base for what a damaged file raises
            reason = " ".join(str(error).split())[:100]
            raise InputError(
                f"expected {self.shard} to be a whole Parquet file, "
                f"but row group {self.group} cannot be read ({reason}); fetch it again"
            ) from None
        for row, data in enumerate(encoded, self.first + self.start):
            if not data:
                raise InputError(
                    f"expected image bytes in {self.shard} row {row}, but got none; store the bytes, not only the path"
                )
            yield f"{self.shard} row {row}", data


Run = FileRun | ZipRun | ParquetRun
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (FileRun, ZipRun, ParquetRun)}


def to_json(run: Run) -> dict[str, Any]:
    """A run as JSON values."""
    return {"kind": type(run).__name__, **asdict(run)}


def from_json(values: Mapping[str, Any]) -> Run:
    """The run that `to_json` wrote."""
    fields = dict(values)
    run: Run = _KINDS[fields.pop("kind")](**fields)
    return run


def in_runs(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Names in pieces short enough to share among processes."""
    for start in range(0, len(names), RUN_LENGTH):
        yield names[start : start + RUN_LENGTH]
