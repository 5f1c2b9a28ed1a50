"""Images in Parquet shards as Hugging Face writes them: train-*.parquet with test-*.parquet or valid*-*.parquet.

An image column is a struct with `bytes`, or plain binary; a label column holds integers.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rcad.data.dataset import Dataset, check_labels, check_several, count_classes
from rcad.data.decoding import ImageSet, ParquetRows, Reading, Source
from rcad.data.files import intact
from rcad.data.streams import read_images
from rcad.data.table_files import split_files
from rcad.errors import InputError, memory, need

IMAGE_COLUMNS = ("img", "image")
LABEL_COLUMNS = ("label", "fine_label")
AGAIN = "fetch it again"
_SHARD = re.compile(r"-(\d+)-of-(\d+)\.parquet$")


def load(
    name_or_path: str, *, label_column: str | None = None, classes: Sequence[str] | None = None, **reading: Any
) -> Dataset:
    """Images from a folder of Parquet shards, or from one shard (then there is no test split).

    Returns:
        uint8 images (N, 3, H, W), or (N, 1, H, W) where all are grey; `test` is the test shards where they have labels,
        else valid.

    Args:
        label_column: by default `label` or `fine_label`.
        classes: class names in label order; by default those in the shards' metadata, else "0", "1", ...
    """
    how, path = Reading(**reading), Path(name_or_path)
    shards = find_shards(path)
    files = [file for split in shards.values() for file in split]
    named = tuple(classes) if classes is not None else None
    # Small files are not opened for it: decoded, images take perhaps ten times as much, hardly twenty.
    if how.stream is None and 20 * sum(file.stat().st_size for file in files) < memory() / 2:
        how = replace(how, stream=False)
    opened = functools.cache(lambda: _open_all(path, shards, label_column, named))
    return read_images("parquet", files, files[0].parent, opened, how, label=label_column, classes=named)


def find_shards(path: Path) -> dict[str, list[Path]]:
    """The shards of each split ("train", "test", "valid"), in order; none may be missing from its numbered series."""
    if path.is_file():
        return {"train": [path]}
    folder = path if any(path.glob("*.parquet")) else path / "data"
    splits = split_files(folder.glob("*.parquet"))
    if "train" not in splits:
        got = next((file.name for file in sorted(folder.glob("*.parquet"))), "no Parquet file")
        raise InputError(f"expected train-*.parquet in {path}, but got {got}; rename the shards after their split")
    for files in splits.values():
        series = [match for file in files if (match := _SHARD.search(file.name))]
        if series and len(series) != int(series[0][2]):
            raise InputError(
                f"expected {int(series[0][2])} shards like {files[0].name} in {folder}, "
                f"but got {len(series)}; fetch the missing ones"
            )
    return splits


def has_images(file: Path) -> bool:
    """Whether a Parquet file has an image column; reads its footer only."""
    schema = _open(file).schema_arrow
    return any(name in schema.names and _leaf(schema, name) for name in IMAGE_COLUMNS)


def _open_all(
    path: Path,
    shards: Mapping[str, Sequence[Path]],
    label_column: str | None,
    classes: tuple[str, ...] | None,
) -> ImageSet:
    tables = {split: [_Shard(file, label_column) for file in files] for split, files in shards.items()}
    labels = {split: np.concatenate([shard.labels() for shard in parts]) for split, parts in tables.items()}
    for split, values in labels.items():
        if not len(values):
            raise InputError(f"expected rows in {shards[split][0]}, but got none; fetch it again")
    chosen = {"train": "train"}
    if tests := [split for split in ("test", "valid") if split in labels and not (labels[split] == -1).all()]:
        chosen["test"] = tests[0]
    if classes is None:
        classes = tables["train"][0].class_names()
    if classes is None:
        classes = tuple(map(str, range(count_classes(labels["train"], partial(_origin, tables["train"])))))
    check_several(classes, str(path))
    sources: dict[str, Sequence[Source]] = {}
    checked: dict[str, npt.NDArray[np.int64]] = {}
    for name, split in chosen.items():
        checked[name] = check_labels(labels[split], len(classes), partial(_origin, tables[split]))
        sources[name] = [part for shard in tables[split] for part in shard.sources()]
    counts = ", ".join(f"{len(labels[split]):,} {split}" for split in chosen.values())
    return ImageSet(sources, checked, classes, f"Parquet shards from {path.name}: {counts}")


class _Shard:
    """One file: its columns found and checked, nothing read yet but the footer."""

    def __init__(self, path: Path, label_column: str | None) -> None:
        self.path = path
        self.file = _open(path)
        self.schema = self.file.schema_arrow
        image = self._column("image", IMAGE_COLUMNS, "rename it, or name the --target of a table")
        self.label = self._column("label", (label_column,) if label_column else LABEL_COLUMNS, "pass label_column=")
        self.leaf = _leaf(self.schema, image)
        if self.leaf is None:
            raise InputError(
                f"expected column {image} of {path} to be a struct with bytes, "
                f"but got {self.schema.field(image).type}; store the files' bytes"
            )

    def __len__(self) -> int:
        return int(self.file.metadata.num_rows)

    def _column(self, role: str, names: Sequence[str], remedy: str) -> str:
        for name in names:
            if name in self.schema.names:
                return name
        raise InputError(
            f"expected the {role} column {' or '.join(names)} in {self.path}, but got {', '.join(self.schema.names)}; "
            f"{remedy}"
        )

    def labels(self) -> npt.NDArray[np.int64]:
        """The label column, int64 (rows,), not yet range-checked."""
        arrow = need("pyarrow", "pyarrow")
        if not arrow.types.is_integer(self.schema.field(self.label).type):
            got = self.schema.field(self.label).type
            raise InputError(
                f"expected integer labels in column {self.label} of {self.path}, but got {got}; number them"
            )
        with intact(self.path, "Parquet file", AGAIN):
            column = self.file.read([self.label]).column(0)
        if column.null_count:
            row = column.to_pylist().index(None)
            raise InputError(f"expected a label in {self.path} row {row}, but got null; drop the row or label it")
        labels: npt.NDArray[np.int64] = column.to_numpy().astype(np.int64)
        return labels

    def sources(self) -> list[ParquetRows]:
        """The images, by row group."""
        groups, first = [], 0
        for group in range(self.file.metadata.num_row_groups):
            rows = self.file.metadata.row_group(group).num_rows
            groups.append(ParquetRows(str(self.path), self.leaf or "", group, first, range(rows)))
            first += rows
        return groups

    def class_names(self) -> tuple[str, ...] | None:
        """The class names in the metadata that the datasets library writes; None without them."""
        try:
            features = json.loads((self.schema.metadata or {})[b"huggingface"])["info"]["features"]
            return tuple(map(str, features[self.label]["names"]))
        except (KeyError, ValueError, TypeError, RecursionError):
            return None


def _origin(shards: Sequence[_Shard], index: int) -> str:
    """The shard and row of an index into a split."""
    for shard in shards:
        if index < len(shard):
            break
        index -= len(shard)
    return f"{shard.path} row {index}"


def _open(path: Path) -> Any:
    with intact(path, "Parquet file", AGAIN):
        return need("pyarrow.parquet", "pyarrow").ParquetFile(path)


def _leaf(schema: Any, column: str) -> str | None:
    """The Parquet column that holds the encoded bytes: "img.bytes" of a struct, or a binary column itself."""
    types = need("pyarrow", "pyarrow").types
    kind = schema.field(column).type
    if types.is_struct(kind) and "bytes" in [kind.field(i).name for i in range(kind.num_fields)]:
        return f"{column}.bytes"
    return column if types.is_binary(kind) or types.is_large_binary(kind) else None
