"""The published corrupted test sets: CIFAR-10-C and CIFAR-100-C arrays, Tiny-ImageNet-C folders.

CIFAR: a folder with one <corruption>.npy, uint8 (50000, 32, 32, 3), and labels.npy (50000,); severity s takes the rows
10000 * (s - 1) to 10000 * s. Tiny ImageNet: <corruption>/<severity>/<class>/<image>.JPEG.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rcad.data.dataset import Split, check_labels, check_several
from rcad.data.decoding import Reading
from rcad.data.files import intact
from rcad.data.image_folders import class_folders, images_below, read
from rcad.errors import InputError, one_of

CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
"""The fifteen of Hendrycks and Dietterich (2019), spelt as the published files do, in the paper's order."""
SEVERITIES = (1, 2, 3, 4, 5)
Provenance = Literal["published", "generated"]
_LABELS = "labels.npy"
_AGAIN = "download and unpack the set again"


@dataclass(frozen=True)
class CorruptedArrays:
    """CIFAR-10-C or CIFAR-100-C: one array per corruption, opened when asked for and never read whole."""

    folder: Path
    labels: npt.NDArray[np.int64]
    corruptions: tuple[str, ...]

    def split(self, corruption: str, severity: int) -> Split:
        check_request([corruption], [severity], self.corruptions)
        count, path = len(self.labels), self.folder / f"{corruption}.npy"
        images = _open(path)
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[0] != count or images.shape[3] not in (1, 3):
            raise InputError(
                f"expected uint8 images ({count}, H, W, 3) in {path}, but got {images.dtype} {images.shape}; {_AGAIN}"
            )
        part = count // len(SEVERITIES)
        rows = slice(part * (severity - 1), part * severity)
        return Split(images[rows].transpose(0, 3, 1, 2), self.labels[rows])


@dataclass(frozen=True)
class CorruptedFolders:
    """Tiny-ImageNet-C: folders of images, decoded into the cache when asked for; `classes` in label order."""

    folder: Path
    classes: tuple[str, ...]
    corruptions: tuple[str, ...]
    cache_dir: Path | None = None

    def split(self, corruption: str, severity: int) -> Split:
        check_request([corruption], [severity], self.corruptions)
        root = self.folder / corruption / str(severity)
        if not root.is_dir():
            raise InputError(f"expected the folder {root}, but it is missing; {_AGAIN}")
        files = {folder.name: images_below(root, folder) for folder in class_folders(root)}
        if unknown := sorted(files.keys() - set(self.classes)):
            raise InputError(
                f"expected only known classes in {root}, but got {unknown[0]!r}; read the set it belongs to"
            )
        for name in self.classes:
            if name not in files:
                raise InputError(f"expected images in {root / name}, but got none; {_AGAIN}")
        return read(root, {"train": files}, self.classes, Reading(cache_dir=self.cache_dir), "tiny-imagenet-c").train


def open_corrupted(
    folder: str | Path, *, classes: int | Sequence[str] | None = None, cache_dir: Path | None = None
) -> CorruptedArrays | CorruptedFolders:
    """The published set in `folder`, told apart by whether labels.npy lies there.

    `classes` of the set the model was trained on: how many (arrays), or their names in label order (folders).
    """
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"expected a folder with a corrupted test set, but {root} is none; check the path")
    if (root / _LABELS).is_file():
        return _arrays(root, classes)
    corruptions = tuple(name for name in CORRUPTIONS if (root / name).is_dir())
    if not corruptions:
        kinds = f"{_LABELS} and <corruption>.npy, or <corruption>/<severity>/<class>/"
        raise InputError(f"expected {kinds} in {root}, but got neither; name the folder that holds them")
    if isinstance(classes, int):
        raise InputError(f"expected the names of the classes to read {root}, but got their number, {classes}")
    if classes is None:
        folder = root / corruptions[0]
        first = next((folder / str(s) for s in SEVERITIES if (folder / str(s)).is_dir()), None)
        if first is None:
            raise InputError(f"expected folders 1 to 5 in {folder}, but got none; {_AGAIN}")
        classes = [child.name for child in class_folders(first)]
        check_several(classes, str(first))
    return CorruptedFolders(root, tuple(classes), corruptions, cache_dir)


def _arrays(root: Path, classes: int | Sequence[str] | None) -> CorruptedArrays:
    corruptions = tuple(name for name in CORRUPTIONS if (root / f"{name}.npy").is_file())
    if not corruptions:
        raise InputError(f"expected gaussian_noise.npy and the like in {root}, but got none; {_AGAIN}")
    path = root / _LABELS
    labels = _open(path)
    if labels.ndim != 1 or not len(labels) or len(labels) % len(SEVERITIES) or labels.dtype.kind not in "iu":
        raise InputError(
            f"expected whole-number labels (N,) of {len(SEVERITIES)} equal parts in {path}, "
            f"but got {labels.dtype} {labels.shape}; {_AGAIN}"
        )
    highest = int(labels.max()) + 1
    count = highest if classes is None else classes if isinstance(classes, int) else len(classes)
    checked = check_labels(labels, count, lambda index: f"{path} row {index}")
    parts = checked.reshape(len(SEVERITIES), -1)
    if (parts != parts[0]).any():
        raise InputError(f"expected the same labels for every severity in {path}, but they differ; {_AGAIN}")
    return CorruptedArrays(root, checked, corruptions)


def check_request(names: Sequence[str], severities: Sequence[int], choices: Sequence[str] = CORRUPTIONS) -> None:
    for kind, entries in (("corruption", names), ("severity", severities)):
        if not entries:
            raise InputError(f"expected at least one {kind}, but got none")
    for name in names:
        one_of("the corruption", name, choices)
    for severity in severities:
        if type(severity) is not int or severity not in SEVERITIES:
            raise InputError(f"expected a severity from 1 to 5, but got {severity!r}")


def _open(path: Path) -> npt.NDArray[Any]:
    if not path.is_file():
        raise InputError(f"expected {path.name} in {path.parent}, but it is missing; {_AGAIN}")
    with intact(path, ".npy file", _AGAIN):
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
