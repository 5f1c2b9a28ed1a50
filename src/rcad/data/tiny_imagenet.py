"""Tiny ImageNet as distributed: tiny-imagenet-200.zip, or the folder it unpacks to.

Training images lie in train/<wnid>/images/; the validation images, which serve as test split, lie in one folder and
val_annotations.txt gives their classes. The official test images have no labels and are left out.
"""

from __future__ import annotations

import zipfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from rcad.data.archives import readable, zip_names
from rcad.data.cache import Described, cached
from rcad.data.dataset import Dataset
from rcad.data.decoding import Progress, decode_splits
from rcad.data.encoded import Run, ZipRun, in_runs
from rcad.data.folders import ClassFiles, read, save_labels
from rcad.data.images import check_size, is_image_name
from rcad.data.known import KNOWN
from rcad.data.labels import check_several
from rcad.errors import InputError

_ANNOTATIONS = "val/val_annotations.txt"


def load(
    name_or_path: str,
    *,
    data_dir: Path | None = None,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    size: int | None = None,
    check: bool = True,
) -> Dataset:
    """Tiny ImageNet from its zip or the unpacked folder; labels follow the sorted wnids.

    Returns:
        uint8 images (100000, 3, 64, 64) and (10000, 3, 64, 64), labels 0..199; greyscale images become RGB.

    Args:
        size: resize to size x size.
        check: compare the zip with its published md5.
    """
    check_size(size)
    path = Path(name_or_path)
    if path.is_dir():
        return _from_folder(path, size, cache_dir, progress)

    def build(folder: Path) -> Described:
        if check:
            KNOWN["tiny-imagenet"].check(path)
        names = zip_names(path)
        top = next((n[: -len(_ANNOTATIONS)] for n in names if n.endswith(_ANNOTATIONS)), None)
        if top is None:
            raise InputError(f"expected {_ANNOTATIONS} in {path}, but it is missing; download it again")
        with readable(path), zipfile.ZipFile(path) as archive:
            texts = [archive.read(top + name).decode("utf-8", "replace") for name in ("wnids.txt", _ANNOTATIONS)]
        inside = [name.removeprefix(top) for name in names if name.startswith(top)]
        classes, splits = _sort(texts[0], texts[1], inside, str(path))
        runs: dict[str, Sequence[Run]] = {}
        for split, files in splits.items():
            members = [top + name for c in classes for name in files[c]]
            runs[split] = [ZipRun(str(path), tuple(part)) for part in in_runs(members)]
        decode_splits(folder, runs, size, progress)
        save_labels(folder, splits, classes)
        return Described(classes, f"Tiny ImageNet, {len(classes)} classes, from {path.name}")

    return cached("tiny-imagenet", [path], path.parent, {"size": size, "check": check}, build, cache_dir)


def _from_folder(root: Path, size: int | None, cache_dir: Path | None, progress: Progress | None) -> Dataset:
    texts = [root / "wnids.txt", root / _ANNOTATIONS]
    for text in texts:
        if not text.is_file():
            raise InputError(f"expected {text.name} in {text.parent}, but it is missing; unpack the archive again")
    names = [path.relative_to(root).as_posix() for part in ("train", "val") for path in (root / part).rglob("*")]
    wnids, annotations = (text.read_text(encoding="utf-8", errors="replace") for text in texts)
    classes, splits = _sort(wnids, annotations, names, str(root))
    return read(root, splits, classes, size, cache_dir, progress, kind="tiny-imagenet", extra_files=texts)


def _sort(
    wnids: str, annotations: str, names: Sequence[str], origin: str
) -> tuple[tuple[str, ...], dict[str, ClassFiles]]:
    """Class names, and for each split the image names by class."""
    classes = tuple(sorted(wnids.split()))
    check_several(classes, f"{origin} (wnids.txt)")
    labels = _annotated(annotations, classes, origin)
    train: dict[str, list[str]] = defaultdict(list)
    test: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        parts = PurePosixPath(name).parts
        if not is_image_name(name):
            continue
        if parts[0] == "train" and len(parts) > 2:
            train[parts[1]].append(name)
        elif parts[0] == "val" and parts[-1] in labels:
            test[labels[parts[-1]]].append(name)
    for wnid in classes:
        if not train[wnid]:
            raise InputError(f"expected images in train/{wnid} of {origin}, but got none; unpack or download it again")
    found = sum(map(len, test.values()))
    if found != len(labels):
        raise InputError(
            f"expected the {len(labels)} images of {_ANNOTATIONS} in {origin}, but got {found}; "
            "unpack or download it again"
        )
    return classes, {"train": train, "test": test}


def _annotated(text: str, classes: Sequence[str], origin: str) -> dict[str, str]:
    """wnid by validation file name; lines are "file<tab>wnid<tab>box"."""
    labels, allowed = {}, set(classes)
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split("\t")
        if len(fields) < 2 or fields[1] not in allowed:
            got = fields[1] if len(fields) > 1 else line
            raise InputError(
                f"expected a class of wnids.txt in {origin}:{_ANNOTATIONS} line {number}, "
                f"but got {got[:40]!r}; download it again"
            )
        labels[fields[0]] = fields[1]
    return labels
