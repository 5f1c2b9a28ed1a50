"""Images in Parquet shards as Hugging Face writes them: encoded bytes, perhaps in a struct, and integer labels."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rcad.data.dataset import Dataset, check_labels, check_several, count_classes
from rcad.data.decoding import ImageSet, ParquetRows, Reading
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

    `test` is the test shards where they have labels, else valid. The labels are in `label` or `fine_label`; `classes`,
    in their order, are those in the shards' metadata, else "0", "1", ...
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
    path: Path, shards: Mapping[str, Sequence[Path]], label_column: str | None, classes: tuple[str, ...] | None
) -> ImageSet:
    opened = {split: [_open_shard(file, label_column) for file in files] for split, files in shards.items()}
    labels = {split: np.concatenate([shard.labels for shard in parts]) for split, parts in opened.items()}
    for split, values in labels.items():
        if not len(values):
            raise InputError(f"expected rows in {shards[split][0]}, but got none; fetch it again")
    chosen = {"train": "train"}
    if tests := [split for split in ("test", "valid") if split in labels and not (labels[split] == -1).all()]:
        chosen["test"] = tests[0]
    if classes is None:
        classes = opened["train"][0].classes
    if classes is None:
        classes = tuple(map(str, range(count_classes(labels["train"], partial(_origin, opened["train"])))))
    check_several(classes, str(path))
    checked = {
        name: check_labels(labels[split], len(classes), partial(_origin, opened[split]))
        for name, split in chosen.items()
    }
    sources = {name: [part for shard in opened[split] for part in shard.sources] for name, split in chosen.items()}
    counts = ", ".join(f"{len(labels[split]):,} {split}" for split in chosen.values())
    return ImageSet(sources, checked, classes, f"Parquet shards from {path.name}: {counts}")


class Shard(NamedTuple):
    """One file: its labels, int64 (rows,), not yet checked; its images by row group; its metadata's class names."""

    path: Path
    labels: npt.NDArray[np.int64]
    sources: list[ParquetRows]
    classes: tuple[str, ...] | None


def _open_shard(path: Path, label_column: str | None) -> Shard:
    file = _open(path)
    schema, metadata = file.schema_arrow, file.metadata

    def find(role: str, names: Sequence[str], remedy: str) -> tuple[str, Any]:
        """The name and type of the first of these columns that is there."""
        for name in names:
            if name in schema.names:
                return name, schema.field(name).type
        raise InputError(
            f"expected the {role} column {' or '.join(names)} in {path}, but got {', '.join(schema.names)}; {remedy}"
        )

    image, image_type = find("image", IMAGE_COLUMNS, "rename it, or name the --target of a table")
    label, label_type = find("label", (label_column,) if label_column else LABEL_COLUMNS, "pass label_column=")
    leaf = _leaf(schema, image)
    if leaf is None:
        raise InputError(
            f"expected column {image} of {path} to be a struct with bytes, but got {image_type}; store the files' bytes"
        )
    if not need("pyarrow", "pyarrow").types.is_integer(label_type):
        raise InputError(f"expected integer labels in column {label} of {path}, but got {label_type}; number them")
    with intact(path, "Parquet file", AGAIN):
        column = file.read([label]).column(0)
    if column.null_count:
        row = column.to_pylist().index(None)
        raise InputError(f"expected a label in {path} row {row}, but got null; drop the row or label it")
    sources, first = [], 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        sources.append(ParquetRows(str(path), leaf, group, first, range(rows)))
        first += rows
    classes = None
    with contextlib.suppress(KeyError, ValueError, TypeError, RecursionError):
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        classes = tuple(map(str, features[label]["names"]))
    return Shard(path, column.to_numpy().astype(np.int64), sources, classes)


def _origin(shards: Sequence[Shard], index: int) -> str:
    """The shard and row of an index into a split."""
    return [f"{shard.path} row {row}" for shard in shards for row in range(len(shard.labels))][index]


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
