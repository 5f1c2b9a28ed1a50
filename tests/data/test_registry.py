"""Names and paths lead to the right reader, lazily, and mistakes get a hint."""

import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pytest

from data.conftest import shard, write
from rcad.data import registry
from rcad.data.dataset import Dataset, Split
from rcad.data.registry import recognise
from rcad.errors import InputError, MissingExtraError


@pytest.fixture
def pets(tmp_path):
    return write(tmp_path / "pets", cat__a=0, dog__a=1)


def toy(name_or_path, *, data_dir, cache_dir, progress, size=1):
    split = Split(np.zeros((size, 2), np.float32), np.zeros(size, np.int64))
    return Dataset(name=f"{name_or_path} in {data_dir}", task="classification", train=split)


def test_a_path_is_found_here_and_below_the_data_folder(pets, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    assert registry.load(pets, cache_dir=cache).train.y.tolist() == [0, 1]
    dataset = registry.load("pets", data_dir=pets.parent, cache_dir=cache)
    assert dataset.name == "pets"
    monkeypatch.setenv("RCAD_DATA", str(pets.parent))
    monkeypatch.setenv("RCAD_CACHE", str(cache))
    assert registry.load("pets").train.x.shape == (2, 3, 4, 4)
    assert not (tmp_path / "pets" / "cache").exists()


@pytest.mark.parametrize("suffix", ["zip", "tar.gz"])
def test_an_archive_of_class_folders(pets, tmp_path, suffix):
    archive = tmp_path / f"pets.{suffix}"
    if suffix == "zip":
        shutil.make_archive(str(tmp_path / "pets"), "zip", tmp_path, "pets")
    else:
        with tarfile.open(archive, "w:gz") as opened:
            opened.add(pets, "pets")
    dataset = registry.load(archive, cache_dir=tmp_path / "cache")
    assert dataset.classes == ("cat", "dog")


def test_layouts_are_told_apart_by_name(pets, tmp_path):
    def touch(name):
        path = tmp_path / "x" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path

    cases = {
        pets: "folders",
        touch("a.csv"): "tabular",
        touch("a.TSV"): "tabular",
        touch("a.npy"): "tabular",
        touch("a.npz"): "npz",
        touch("cifar-10-binary.tar.gz"): "cifar10",
        touch("tiny-imagenet-200.zip"): "tiny-imagenet",
        touch("other.zip"): "archive",
        touch("bins/data_batch_1.bin").parent: "cifar10",
        touch("c100/cifar-100-binary/train.bin").parents[1]: "cifar100",
        touch("mats/train_32x32.mat").parent: "svhn",
        touch("tiny/wnids.txt").parent: "tiny-imagenet",
        touch("hf/train-0.parquet").parent: "parquet",
        touch("hf2/data/train-0.parquet").parents[1]: "parquet",
        touch("split/train/a/1.png").parents[2]: "folders",
    }
    for path, layout in cases.items():
        assert recognise(path).layout == layout, path
        assert layout == "archive" or layout in registry.LAYOUT_READERS
    assert recognise(touch("a.xyz")) is None
    assert recognise(touch("flat/1.png").parent) is None


def test_names_are_looked_for_in_the_data_folder(tmp_path):
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "cifar-10-binary.tar.gz").touch()
    (tmp_path / "cifar-100-binary").mkdir()
    (tmp_path / "cifar-100-binary" / "train.bin").touch()
    found = {line.name: line for line in registry.available(tmp_path)}
    assert found["cifar10"].where == str(tmp_path / "cifar10" / "cifar-10-binary.tar.gz")
    assert found["cifar100"].where == str(tmp_path / "cifar-100-binary")
    assert found["svhn"].where is None
    assert list(found) == list(registry.READERS)
    assert {line.where for line in registry.available(tmp_path / "nothing") if line.name in registry.OFFICIAL} == {None}


def test_a_known_name_in_parquet_has_its_classes(tmp_path):
    path = tmp_path / "cifar100" / "train-00000-of-00001.parquet"
    shard(path, [1, 2], [0, 99], names=("img", "fine_label"))
    dataset = registry.load("cifar100", data_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert dataset.name == "cifar100"
    assert (dataset.classes[0], dataset.classes[99]) == ("apple", "worm")
    shard(path, [1, 2], [0, 100], names=("img", "fine_label"))
    with pytest.raises(InputError, match="from 0 to 99, but got 100"):
        registry.load("cifar100", data_dir=tmp_path, cache_dir=tmp_path / "cache")


def test_a_reader_is_a_row_of_the_table(monkeypatch, tmp_path):
    monkeypatch.setitem(registry.READERS, "toy", f"{__name__}:toy")
    dataset = registry.load("toy", data_dir=tmp_path, size=3)
    assert len(dataset.train) == 3
    assert dataset.name == "toy"
    with pytest.raises(InputError, match=r"to be one of size, but got 'sise'; did you mean 'size'\?"):
        registry.load("toy", sise=3)
    with pytest.raises(InputError, match=r"^expected an option for digits not to be given .*, but got 'size'$"):
        registry.load("digits", size=8)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar-100", r"did you mean 'cifar100'\?"),
        ("CIFAR10", r"did you mean 'cifar10'\?"),
        ("qqqq", "rcad data list"),
        ("", "expected a path or one of"),
        ("no/such/folder", "expected a file or folder at no/such/folder, but there is none"),
        ("missing.csv", "expected a file or folder at missing.csv"),
        ("cifar100", "set RCAD_DATA"),
    ],
)
def test_unknown_names(name, message, monkeypatch):
    monkeypatch.delenv("RCAD_DATA", raising=False)
    with pytest.raises(InputError, match=message):
        registry.load(name)


def test_a_path_with_a_slip_is_told_the_nearest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Photos").mkdir()
    (tmp_path / "Photos" / "train.csv").write_text("a,b\n")
    for name, meant in (("phots", "Photos"), ("Photos/trian.csv", "Photos/train.csv"), ("digts", "digits")):
        with pytest.raises(InputError, match=rf"did you mean '{meant}'\?$"):
            registry.load(name)


def test_a_spreadsheet_is_to_be_saved_as_csv(tmp_path):
    (tmp_path / "sales.xlsx").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"sales.xlsx; save it as CSV \(UTF-8\)$"):
        registry.load(tmp_path / "sales.xlsx")


def test_a_known_name_that_is_not_there_says_how_to_get_it(tmp_path):
    with pytest.raises(InputError, match=r"found none of: svhn/.*train_32x32.mat.*rcad data fetch svhn --data-dir"):
        registry.load("svhn", data_dir=tmp_path)


def test_verify_lists_archives_and_cache_entries(pets, tmp_path):
    registry.load(pets, cache_dir=tmp_path / "cache")
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"wrong")
    (archive, problem), (entry, fine) = registry.verify(tmp_path, tmp_path / "cache")
    assert archive.name == "cifar-10-binary.tar.gz"
    assert "expected md5 c32a1d4ab5d03f1284b67883e8d87530" in problem
    assert entry.parent == tmp_path / "cache" / "images"
    assert fine is None


HEAVY = ("torch", "pandas", "pyarrow", "PIL", "scipy", "sklearn")


def test_importing_the_registry_is_light():
    program = (
        "import sys, rcad.data.registry, rcad.data.download, rcad.data.decoding\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize(
    ("module", "make"),
    [
        ("PIL.Image", lambda pets: pets),
        ("pyarrow.parquet", lambda pets: (pets.parent / "a.parquet").touch() or pets.parent / "a.parquet"),
    ],
)
def test_a_missing_package_names_the_extra(pets, monkeypatch, module, make):
    from rcad.data import images

    images._pillow.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"'\.\[data\]'"):
        registry.load(make(pets), cache_dir=pets.parent / "cache")
