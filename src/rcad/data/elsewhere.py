"""Data that others keep: sets of the Hugging Face Hub, and torchvision's. Both become a folder that our readers know.

Nothing of the Hub is executed and no pickle is read: Parquet, CSV and TSV files and images in class folders are taken.
"""

from __future__ import annotations

import inspect
import io
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from rcad.data.cache import build_once, hashed, holding
from rcad.data.dataset import Progress
from rcad.data.decoding import is_image_name
from rcad.data.files import reason
from rcad.errors import InputError, need
from rcad.hub import Address, Repository

SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
SPLITS |= dict.fromkeys(("valid", "validation", "val", "dev", "eval"), "valid")
TABLES = (".parquet", ".csv", ".tsv")
TORCHVISION = "torchvision:"
SHARD = "{}-00000-of-00001.parquet"


def from_hub(name: str, *, data_dir: Path | None, cache_dir: Path, progress: Progress) -> tuple[Path, str]:
    """The files of "hf:owner/name@revision:split", linked under names that say their split; and the data's edition.

    The part after the second colon is a split, a folder of the repository (a configuration), or both:
    "hf:ylecun/mnist:mnist/train". A split alone is all the data: rcad holds out its own test set.
    """
    repository = Repository(Address.parse(name), "dataset", cache_dir / "hub")
    links = layout(repository.names, repository.address)
    files = repository.fetch(sorted(set(links.values())), progress)
    source = str(repository)
    places = {link: files[file] for link, file in links.items()}
    return linked(cache_dir, f"{source}:{repository.address.part}", places), source


def linked(cache_dir: Path, key: str, places: Mapping[str, Path]) -> Path:
    """A folder in the cache with links of these names to files."""

    def build(folder: Path) -> None:
        for link, file in places.items():
            (folder / link).parent.mkdir(parents=True, exist_ok=True)
            try:
                (folder / link).symlink_to(file.resolve())
            except OSError:  # not every system allows links
                shutil.copyfile(file, folder / link)

    return build_once(cache_dir, f"hub/{hashed(key)[:32]}", build, holding(*places))


def layout(names: Sequence[str], address: Address) -> dict[str, str]:
    """Which files of a repository are data, by the names our readers know: "train-00000-of-00002.parquet"."""
    part = PurePosixPath(address.part or "")
    words = [word for word in part.parts if word.lower() in SPLITS]
    under = PurePosixPath(*[word for word in part.parts if word not in words])
    paths = [PurePosixPath(name) for name in names if not name.startswith(".")]
    inside = [path for path in paths if under in path.parents]
    for suffix in TABLES:
        if tables := [path for path in inside if path.suffix.lower() == suffix]:
            return _shards(tables, suffix, words[-1] if words else None, address)
    images = [path for path in inside if is_image_name(path.name)]
    if words:
        under /= words[-1]
        images = [path for path in images if under in path.parents]
    if not images:
        kinds = ", ".join(sorted({path.suffix for path in inside if path.suffix})) or "no files"
        raise InputError(
            f"expected Parquet, CSV or TSV files, or images in class folders, in {address}"
            f"{f':{address.part}' if address.part else ''}, but got {kinds}; name another part or revision "
            "(@refs/convert/parquet has Parquet files of many sets)"
        )
    return {str(path.relative_to(under)): str(path) for path in images}


def _shards(tables: list[PurePosixPath], suffix: str, chosen: str | None, address: Address) -> dict[str, str]:
    """Tables or shards, one configuration of them, by split; of a chosen split all are for training."""
    homes = sorted({_home_and_split(path)[0] for path in tables})
    usual = [home for home in homes if home in (".", "data", "default")]
    if len(homes) > 1 and not usual:
        raise InputError(
            f"expected one configuration of {address}, but got {', '.join(homes[:6])}; name one: {address}:{homes[0]}"
        )
    groups: dict[str, list[PurePosixPath]] = {}
    for path in sorted(tables):
        home, split = _home_and_split(path)
        if home == (usual or homes)[0]:
            groups.setdefault(split, []).append(path)
    if chosen is not None:
        if SPLITS[chosen.lower()] not in groups:
            raise InputError(f"expected the split {chosen} in {address}, but got {', '.join(groups)}; name one of them")
        groups = {"train": groups[SPLITS[chosen.lower()]]}
    elif "train" not in groups:
        raise InputError(f"expected a split train in {address}, but got {', '.join(groups)}; name one: {address}:test")
    return {
        f"{split}-{k:05d}-of-{len(files):05d}{suffix}": str(path)
        for split, files in groups.items()
        for k, path in enumerate(files)
    }


def _home_and_split(path: PurePosixPath) -> tuple[str, str]:
    """The folder of a file's configuration, and its split: the file's name begins with it, or it is a folder's."""
    word = re.split(r"[-_.]", path.name, maxsplit=1)[0].lower()
    folder = path.parent
    if word not in SPLITS and folder.name.lower() in SPLITS:
        word, folder = folder.name.lower(), folder.parent
    return str(folder), SPLITS.get(word, "train")


def from_torchvision(name: str, *, data_dir: Path | None, cache_dir: Path, progress: Progress) -> tuple[Path, str]:
    """torchvision's set of this name, downloaded by it, as Parquet shards in the cache; and the data's edition."""
    vision = need("torchvision", "torchvision", "timm")
    name = name.removeprefix(TORCHVISION)
    make = getattr(vision.datasets, name, None)
    if make is None or not inspect.isclass(make) or name.startswith("_"):
        examples = "MNIST, FashionMNIST, CIFAR10, SVHN, Flowers102, OxfordIIITPet"
        raise InputError(f"expected the name of a torchvision data set, e.g. {examples}, but got {name!r}")
    root = (data_dir or cache_dir) / "torchvision"

    def build(folder: Path) -> None:
        opened = {split: _opened(make, name, root, split) for split in ("train", "test")}
        splits = {split: images for split, images in opened.items() if images is not None}
        done, total = 0, sum(map(len, splits.values()))
        for split, images in splits.items():
            rows = []
            for image, label in (images[k] for k in range(len(images))):
                buffer = io.BytesIO()
                image.save(buffer, "PNG")  # without loss
                rows.append((buffer.getvalue(), int(label)))
                done += 1
                if done % 256 == 0:
                    progress(done, total)
            _write_shard(folder / SHARD.format(split), rows, getattr(images, "classes", None))

    source = f"torchvision {vision.__version__} {name}"
    key = hashed(f"{source} {root.resolve()}")[:32]
    return build_once(cache_dir, f"hub/{key}", build, holding(SHARD.format("train"))), source


def _opened(make: Callable[..., Any], name: str, root: Path, split: str) -> Any:
    """A split, by the keyword that this set has for splits; None where it has no test set."""
    keywords = inspect.signature(make).parameters
    options: dict[str, Any] = {"download": True} if "download" in keywords else {}
    if "train" in keywords:
        options["train"] = split == "train"
    elif "split" in keywords:
        default = keywords["split"].default
        options["split"] = "trainval" if default == "trainval" and split == "train" else split
    elif split == "test":
        return None
    try:
        root.mkdir(parents=True, exist_ok=True)
        return make(str(root), **options)
    except Exception as error:
        raise InputError(
            f"expected torchvision's {name} ({split}) in {root}, or to download it, but got: {reason(error)}"
        ) from None


def _write_shard(path: Path, rows: Sequence[tuple[bytes, int]], classes: Sequence[Any] | None) -> None:
    """Encoded images and their labels as Hugging Face writes them; torchvision may give a class several names."""
    arrow, parquet = need("pyarrow", "pyarrow"), need("pyarrow.parquet", "pyarrow")
    images, labels = [{"bytes": data} for data, _ in rows], [label for _, label in rows]
    named = classes or sorted(set(labels))
    names = [" ".join(map(str, name)) if isinstance(name, list | tuple) else str(name) for name in named]
    features = json.dumps({"info": {"features": {"label": {"names": names}}}})
    table = arrow.table({"image": images, "label": labels}).replace_schema_metadata({"huggingface": features})
    parquet.write_table(table, path)
