"""Data sets by name or path: `load("cifar100")`, `load("images/")`, `load("table.csv")`.

To add a data set, add its name to `READERS`; to add a kind of file, add its layout to `LAYOUT_READERS` and to
`recognise`. A reader is "module:function", imported when it is first used, with the signature

    load(name_or_path: str, *, data_dir: Path | None, cache_dir: Path | None, progress, stream, **options) -> Dataset

of which it may leave out the keywords it does not need; `**reading` stands for those of `rcad.data.decoding.Reading`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib.util
import inspect
import os
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rcad.data import cache
from rcad.data.dataset import Dataset, Progress, no_progress
from rcad.data.files import check_md5, is_archive
from rcad.data.small_sets import AS_FOLDERS, EMBEDDED, UCI, find_uci
from rcad.errors import InputError, command, expanded, one_of


class Remote(NamedTuple):
    """A file at its official address, with its published md5."""

    url: str
    md5: str

    @property
    def filename(self) -> str:
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class OfficialSet:
    """An image set and how it looks on disk.

    `files` must be downloaded, `optional` ones may be; they unpack to `folder`, which alone has the file `marker`.
    """

    files: tuple[Remote, ...]
    folder: str
    marker: str
    note: str
    classes: tuple[str, ...]
    optional: tuple[Remote, ...] = ()

    @property
    def remotes(self) -> dict[str, Remote]:
        """All files, required and optional, by name."""
        return {remote.filename: remote for remote in (*self.files, *self.optional)}

    def find(self, folder: Path) -> Path | None:
        """The official archive or its unpacked folder in `folder`, unpacked first: it is faster to read."""
        for candidate in (folder, folder / self.folder):
            if (candidate / self.marker).is_file():
                return candidate
        archive = folder / self.files[0].filename
        return archive if archive.is_file() else None

    def check(self, file: Path) -> None:
        """Compare one of the official files with its published md5; files of other names pass."""
        if file.name in self.remotes:
            remedy = "download it again, or rename it if you made this file yourself"
            check_md5(file, self.remotes[file.name].md5, remedy)


CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100_CLASSES = tuple(  # one string: a hundred quoted lines would hide the table below
    """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
    flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
    poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm""".split()  # noqa: SIM905
)

_TORONTO = "https://www.cs.toronto.edu/~kriz"
_SVHN = "http://ufldl.stanford.edu/housenumbers"

OFFICIAL = {
    "cifar10": OfficialSet(
        (Remote(f"{_TORONTO}/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
        folder="cifar-10-batches-bin",
        marker="data_batch_1.bin",
        note="60,000 images 32x32 in 10 classes",
        classes=CIFAR10_CLASSES,
    ),
    "cifar100": OfficialSet(
        (Remote(f"{_TORONTO}/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),),
        folder="cifar-100-binary",
        marker="train.bin",
        note="60,000 images 32x32 in 100 classes",
        classes=CIFAR100_CLASSES,
    ),
    "svhn": OfficialSet(
        (
            Remote(f"{_SVHN}/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
            Remote(f"{_SVHN}/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
        ),
        folder="housenumbers",
        marker="train_32x32.mat",
        note="99,289 house-number digits 32x32, and 531,131 extra",
        classes=tuple("0123456789"),
        optional=(Remote(f"{_SVHN}/extra_32x32.mat", "a93ce644f1a588dc4d68dda5feec44a7"),),
    ),
    "tiny-imagenet": OfficialSet(
        (Remote("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"),),
        folder="tiny-imagenet-200",
        marker="wnids.txt",
        note="110,000 images 64x64 in 200 classes",
        classes=tuple(map(str, range(200))),
    ),
}
LAYOUT_READERS = {
    "cifar10": "rcad.data.official:load_cifar10",
    "cifar100": "rcad.data.official:load_cifar100",
    "svhn": "rcad.data.official:load_svhn",
    "tiny-imagenet": "rcad.data.official:load_tiny_imagenet",
    "parquet": "rcad.data.image_parquet:load",
    "folders": "rcad.data.image_folders:load",
    "labels": "rcad.data.image_folders:load_labelled",
    "npz": "rcad.data.arrays:load",
    "tabular": "rcad.data.tables:load",
}
ELSEWHERE = {"hf:": "rcad.data.elsewhere:from_hub", "torchvision:": "rcad.data.elsewhere:from_torchvision"}
"""Data that others keep, by how their names begin."""

READERS = {
    **{name: LAYOUT_READERS[name] for name in OFFICIAL},
    **dict.fromkeys(UCI, "rcad.data.small_sets:load_uci"),
    **dict.fromkeys(EMBEDDED, "rcad.data.small_sets:load_embedded"),
    AS_FOLDERS: "rcad.data.small_sets:load_folders",
}


class Recognised(NamedTuple):
    """A layout, and the file or folder that its reader takes."""

    layout: str
    path: Path


class Available(NamedTuple):
    """A line of `rcad data list`: `where` is None when the files are not there."""

    name: str
    kind: str
    where: str | None
    note: str


def data_root(data_dir: Path | str | None = None) -> Path | None:
    """The data folder: the argument, else $RCAD_DATA, else None."""
    chosen = data_dir or os.environ.get("RCAD_DATA")
    return expanded(chosen) if chosen else None


def load(
    name_or_path: str | Path,
    *,
    data_dir: Path | str | None = None,
    cache_dir: Path | str | None = None,
    progress: Progress | None = None,
    stream: bool | None = None,
    **options: Any,
) -> Dataset:
    """Read a data set by name or path.

    Args:
        name_or_path: a name of `READERS`, or a file or folder; a path is also looked up below the data folder. Or a set
            of the Hugging Face Hub, "hf:owner/name@revision:split", or of torchvision, "torchvision:MNIST".
        data_dir: the data folder; else $RCAD_DATA.
        cache_dir: where decoded images are kept; else $RCAD_CACHE, else ~/.cache/rcad.
        stream: leave images on disk and decode them as they are needed; None where they would not fit into memory.
        options: the reader's own. Of images `size`: the shorter side is resized to so many pixels and the centre
            cropped; and `skip_bad`: those that cannot be decoded are left out, and the note counts them.
    """
    name, root, cache_path = str(name_or_path), data_root(data_dir), cache.cache_root(cache_dir)
    if root is None and name in (*OFFICIAL, *UCI):
        raise InputError(
            f"expected a data folder for {name}, but got none; pass data_dir= (--data-dir) or set RCAD_DATA"
        )
    where = {"data_dir": root, "cache_dir": cache_path, "progress": progress or no_progress}
    reading = {**where, "stream": stream}
    if name in READERS and name not in OFFICIAL:
        return dataclasses.replace(_call(READERS[name], name, reading, options), name=name)
    source = ""
    if root is not None and name in OFFICIAL:
        recognised = locate(name, root)
        if recognised is None:
            looked = (f"{name}/", f"{OFFICIAL[name].folder}/", *(remote.filename for remote in OFFICIAL[name].files))
            raise InputError(
                f"expected {name} in {root}, but found none of: {', '.join(looked)}; "
                f"run: {command('rcad', 'data', 'fetch', name, '--data-dir', str(root))}"
            )
        layout, path = recognised
        if layout == "parquet" and "label_column" not in options:
            # Shards often carry no names; for a known set the classes and so the allowed labels are known.
            options = {"classes": OFFICIAL[name].classes, **options}
    else:
        fetch = next((function for prefix, function in ELSEWHERE.items() if name.startswith(prefix)), None)
        if fetch is None:
            path = _existing(name, root)
        else:
            path, source = pkgutil.resolve_name(fetch)(name, **where)
        layout, path = _recognised(path, cache_path, has_labels="labels" in options)
        if layout == "parquet" and "target" in options:
            layout = "tabular"  # shards of images have labels; a target is a column of a table
    if layout not in LAYOUT_READERS:
        raise InputError(f"expected a data set in {path}, but got a nested {layout}; unpack it first")
    dataset = _call(LAYOUT_READERS[layout], str(path), reading, options)
    note = dataset.note.replace(path.name, name) if source else dataset.note
    return dataclasses.replace(dataset, name=name, note=note, source=source)


def find(name: str, data_dir: Path | str | None = None) -> Path | None:
    """The file or folder that lies where `load` looks for a name that is none of `READERS`."""
    try:
        return None if name in READERS else _existing(name, data_root(data_dir))
    except InputError:
        return None


def available(data_dir: Path | str | None = None) -> list[Available]:
    """Every data set known by name, and where its files were found."""
    root = data_root(data_dir)
    scikit = "sklearn" if importlib.util.find_spec("sklearn") is not None else None

    def line(name: str) -> Available:
        if name in OFFICIAL:
            recognised = locate(name, root) if root is not None else None
            return Available(name, "images", str(recognised.path) if recognised else None, OFFICIAL[name].note)
        if name in UCI:
            folder = find_uci(name, root) if root is not None else None
            return Available(name, "tabular", str(folder) if folder else None, "UCI, 20 standard splits")
        return Available(name, "images" if name.startswith("digit") else "tabular", scikit, "inside scikit-learn")

    return [line(name) for name in READERS]


def verify(data_dir: Path | str | None = None, cache_dir: Path | str | None = None) -> list[tuple[Path, str | None]]:
    """Check every byte of the known archives in the data folder and of the cache: (path, None or what is wrong)."""
    results: list[tuple[Path, str | None]] = []
    root = data_root(data_dir)
    for name, official in OFFICIAL.items():
        homes = [root / name, root] if root else []
        folders = [home / place for place in ("", official.folder) for home in homes]
        for file in (place for folder in folders for n in official.remotes if (place := folder / n).is_file()):
            try:
                official.check(file)
                results.append((file, None))
            except InputError as error:
                results.append((file, str(error)))
    return results + [(entry, cache.verify(entry)) for entry in cache.entries(cache_dir)]


def locate(name: str, data_dir: Path) -> Recognised | None:
    """Where an official image set lies: in data_dir/<name> or data_dir itself, in any layout that can hold it."""
    for folder in (data_dir / name, data_dir):
        if path := OFFICIAL[name].find(folder):
            return Recognised(name, path)
    own = data_dir / name
    return recognise(own) if own.is_dir() else None


def recognise(path: Path) -> Recognised | None:
    """The layout at `path`, told by names only, without opening big files; None where no reader knows it."""
    for name, official in OFFICIAL.items():
        found = official.find(path) if path.is_dir() else path if path.name in official.remotes else None
        if found is not None:
            return Recognised(name, found)
    layout = _folder_layout(path) if path.is_dir() else _file_layout(path)
    return Recognised(layout, path) if layout else None


def _folder_layout(folder: Path) -> str | None:
    from rcad.data.image_folders import class_folders, find_labels, split_folders
    from rcad.data.table_files import split_tables

    if any(folder.glob("*.parquet")) or any(folder.glob("data/*.parquet")):
        return "parquet"
    if find_labels(folder) is not None:
        return "labels"
    if split_folders(folder) or class_folders(folder):
        return "folders"
    return "tabular" if split_tables(folder) else None


def _file_layout(file: Path) -> str | None:
    from rcad.data.image_parquet import has_images

    name, suffix = file.name.lower(), file.suffix.lower()
    if suffix == ".parquet":
        return "parquet" if has_images(file) else "tabular"
    if suffix in (".csv", ".tsv", ".npy", ".npz"):
        return "npz" if suffix == ".npz" else "tabular"
    if is_archive(file) and name.startswith("cifar-") and "python" in name:
        raise InputError(
            f"expected the binary version of CIFAR ({file.name.replace('python', 'binary')}), but got {file}, "
            "which holds pickles; download the binary version"
        )
    return "archive" if is_archive(file) else None


def _existing(name: str, root: Path | None) -> Path:
    """The file or folder that `name` means."""
    candidates = [expanded(name), *([root / name] if root is not None else [])]
    for path in candidates:
        try:
            if name and path.exists():
                return path
        except OSError as error:  # a name longer than names may be, a folder that may not be looked into
            raise InputError(
                f"expected a file or folder at {str(path)[:120]}, but got: {error.strerror}; check the path"
            ) from None
    if Path(name).suffix or os.sep in name or "/" in name:
        looked, near = " or ".join(map(str, candidates)), _nearest(Path(name).name, _names(candidates[0].parent))
        hint = f"did you mean {str(Path(name).parent / near)!r}?" if near else "check the path"
        raise InputError(f"expected a file or folder at {looked}, but there is none; {hint}")
    if near := _nearest(name, [*READERS, *_names(Path())]):
        raise InputError(f"expected a file, a folder or a known data set, but got {name!r}; did you mean {near!r}?")
    raise InputError(f"expected a path or one of {', '.join(READERS)}, but got {name!r}; run: rcad data list")


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(path.name for path in folder.iterdir())
    return []


def _nearest(name: str, names: Iterable[str]) -> str | None:
    """The most similar name, ignoring case."""
    by_case = {other.lower(): other for other in names}
    return next((by_case[near] for near in difflib.get_close_matches(name.lower(), by_case, n=1)), None)


def _recognised(path: Path, cache_dir: Path, *, has_labels: bool) -> Recognised:
    """The layout at `path`, unpacked where it is an archive; `has_labels` where a table of labels is named."""
    try:
        recognised = recognise(path)
    except OSError as error:
        raise InputError(f"expected {path} to be readable, but got: {error.strerror}; check the folder") from None
    if has_labels and path.is_dir() and (recognised is None or recognised.layout == "folders"):
        return Recognised("labels", path)
    if recognised is not None and recognised.layout == "archive":
        recognised = recognise(cache.unpack(recognised.path, cache_dir))
    if recognised is not None:
        return recognised
    from rcad.data.decoding import is_image_name

    if path.is_dir() and any(map(is_image_name, _names(path))):
        raise InputError(
            f"expected labels for the images in {path}, but it holds neither class folders nor a table; make "
            "a folder for each class, or when training give --labels FILE, a table with file names and labels"
        )
    if path.suffix.lower() in (".xlsx", ".xls", ".ods"):
        raise InputError(f"expected a table as .csv, .tsv or .parquet, but got {path}; save it as CSV (UTF-8)")
    raise InputError(
        f"expected {path} to hold class folders of images, Parquet shards, an archive, .npz, .csv, .tsv or .npy, "
        "but recognised none of them; see: rcad data list"
    )


def _call(reader: str, name_or_path: str, reading: dict[str, Any], options: dict[str, Any]) -> Dataset:
    function: Callable[..., Dataset] = pkgutil.resolve_name(reader)
    parameters = [*inspect.signature(function).parameters]
    if "reading" in parameters:
        from rcad.data.decoding import Reading

        parameters += [field.name for field in dataclasses.fields(Reading)]
    own = [name for name in parameters if name not in ("name_or_path", "reading", *reading)]
    for option in options:
        if option == "target" and "label_column" in own:
            raise InputError(f"expected label_column (--label-column) for {name_or_path}, but got 'target', for tables")
        if not own:
            raise InputError(
                f"expected no options for {name_or_path}, which has none, but got {option!r}; leave it out"
            )
        one_of(f"an option for {name_or_path}", option, own)
    if reading["stream"] and "stream" not in parameters:
        raise InputError(f"expected class folders or Parquet shards to stream, but got {name_or_path}; read it whole")
    return function(name_or_path, **{key: value for key, value in reading.items() if key in parameters}, **options)
