"""What lies at a path: the layouts that a reader exists for, told apart by names only, without opening big files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rcad.data.archives import is_archive
from rcad.data.folders import class_folders, split_folders
from rcad.data.known import KNOWN
from rcad.errors import InputError

TABULAR_SUFFIXES = (".csv", ".tsv", ".npy")


class Found(NamedTuple):
    """A layout, and the file or folder that its reader takes."""

    layout: str
    path: Path


def recognise(path: Path) -> Found | None:
    """The layout at `path`, or None where no reader knows it."""
    return _recognise_folder(path) if path.is_dir() else _recognise_file(path)


def locate(name: str, data_dir: Path) -> Found | None:
    """Where a known image set lies: in data_dir/<name> or data_dir itself, in any layout that can hold it."""
    known = KNOWN[name]
    for folder in (data_dir / name, data_dir):
        if path := known.find(folder):
            return Found(name, path)
    own = data_dir / name
    return recognise(own) if own.is_dir() else None


def _recognise_folder(folder: Path) -> Found | None:
    for known in KNOWN.values():
        if path := known.find(folder):
            return Found(known.name, path)
    if any(folder.glob("*.parquet")) or any(folder.glob("data/*.parquet")):
        return Found("parquet", folder)
    if split_folders(folder) or class_folders(folder):
        return Found("folders", folder)
    return None


def _recognise_file(file: Path) -> Found | None:
    name = file.name.lower()
    for known in KNOWN.values():
        if file.name in [remote.filename for remote in (*known.files, *known.optional)]:
            return Found(known.name, file)
    if name.endswith(TABULAR_SUFFIXES):
        return Found("tabular", file)
    if name.endswith(".npz"):
        return Found("npz", file)
    if name.endswith(".parquet"):
        from rcad.data.parquet import has_images

        return Found("parquet" if has_images(file) else "tabular", file)
    if is_archive(file):
        if name.startswith("cifar-") and "python" in name:
            raise InputError(
                f"expected the binary version of CIFAR ({file.name.replace('python', 'binary')}), but got {file}, "
                "which holds pickles; download the binary version"
            )
        return Found("archive", file)
    return None
