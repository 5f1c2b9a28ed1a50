"""Sets of the Hub, from a server and from a cache on this machine, and torchvision's."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from data.conftest import shard
from hub_server import point_to, serving
from made import png
from one_line import fails_in_one_line
from rcad.data.elsewhere import layout
from rcad.data.registry import load
from rcad.errors import InputError
from rcad.hub import Address
from rcad.loss.method_rows import parse_method
from rcad.runs.configure import configure
from rcad.runs.store import Store
from rcad.train.place import Place
from rcad.train.run import run

pytest.importorskip("huggingface_hub", reason="needs the extra hub")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setenv("RCAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf"))
    with serving() as found:
        point_to(monkeypatch, found.url)
        yield found


def rows(count, first=0):
    lines = [f"{i},{i % 3},{'uv'[i % 2]}" for i in range(first, first + count)]
    return "\n".join(["a,b,colour", *lines]).encode() + b"\n"


def pets(folder, labels):
    """Images in Parquet as the Hub has them."""
    metadata = {"huggingface": '{"info": {"features": {"label": {"names": ["cat", "dog"]}}}}'}
    return shard(folder / "shard.parquet", labels, labels, metadata=metadata).read_bytes()


def test_tables_come_with_their_test_split(hub, tmp_path):
    commit = hub.put("datasets/me/rows", {"README.md": b"#", "train.csv": rows(40), "test.csv": rows(10, 40)})
    dataset = load("hf:me/rows", target="colour")
    assert (len(dataset.train), dataset.test and len(dataset.test), dataset.classes) == (40, 10, ("u", "v"))
    assert dataset.source == f"hf:me/rows@{commit}"
    assert dataset.train.x[:3].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert dataset.test.x[0].tolist() == [40, 1]
    assert dataset.note.startswith("hf:me/rows: 50 rows, the last 10 for the test; 2 of 3 columns")
    alone = load("hf:me/rows:test", target="colour")
    assert (len(alone.train), alone.test) == (10, None)
    elsewhere = {"../../train.csv": rows(9), "a/../../train.csv": rows(9)}  # names that leave the folder
    hub.put("datasets/me/rows", {"train.csv": rows(40), "test.csv": b"a,b\n1,2\n2,3\n", **elsewhere})
    hidden = load("hf:me/rows", target="colour")
    assert (len(hidden.train), hidden.test) == (40, None)
    assert "left out: the test table, which has no 'colour'" in hidden.note
    assert not list(tmp_path.glob("*.csv"))


def test_table_shards_lie_one_below_the_other(hub):
    pandas = pytest.importorskip("pandas")

    def part(*values, **more):
        return bytes(pandas.DataFrame({"a": values, "y": [v * 2.5 for v in values], **more}).to_parquet())

    files = {"data/train-00000-of-00002.parquet": part(1, 2, 3), "data/train-00001-of-00002.parquet": part(4, 5)}
    hub.put("datasets/me/shards", {**files, "data/validation-00000-of-00001.parquet": part(6, 7)})
    dataset = load("hf:me/shards", target="y", task="regression")
    assert dataset.train.x[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert dataset.test.y.tolist() == [15.0, 17.5]


def test_images_in_parquet_and_in_class_folders(hub, tmp_path):
    files = {"plain/train-00000-of-00002.parquet": [0, 1], "plain/train-00001-of-00002.parquet": [1, 0]}
    files["plain/test-0.parquet"] = [1]
    hub.put("datasets/me/pets", {name: pets(tmp_path, labels) for name, labels in files.items()})
    names = [f"{split}/{name}/{k}.png" for split in ("train", "test") for name in ("cat", "dog") for k in range(3)]
    hub.put("datasets/me/folders", {path: png(seed=k) for k, path in enumerate(names)})
    for name, train, test in (
        ("hf:me/pets", [0, 1, 1, 0], [1]),
        ("hf:me/folders", [0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1]),
        ("hf:me/folders:train", [0, 0, 0, 1, 1, 1], None),
    ):
        dataset = load(name)
        assert dataset.is_image
        assert dataset.classes == ("cat", "dog")
        assert (dataset.train.y.tolist(), dataset.test and dataset.test.y.tolist()) == (train, test)


def test_a_revision_is_what_it_was_and_stands_in_the_record(hub, tmp_path):
    old = hub.put("datasets/me/rows", {"train.csv": rows(40)})
    hub.put("datasets/me/rows", {"train.csv": rows(60)})
    assert len(load("hf:me/rows", target="colour").train) == 60
    name = f"hf:me/rows@{old}"
    assert len(load(name, target="colour").train) == 40
    data = {"name": name, "target": "colour"}
    config = configure(data, parse_method("erm"), epochs=1)
    record = run(config, Place(Store.open(tmp_path / "runs"), device="cpu"))
    assert record.resolved["data"] == f"hf:me/rows@{old}"


def test_without_the_hub_the_cache_serves(hub, monkeypatch):
    commit = hub.put("datasets/me/rows", {"train.csv": rows(40)})
    load("hf:me/rows", target="colour")
    asked = len(hub.asked)
    point_to(monkeypatch, "http://127.0.0.1:9")
    for name in ("hf:me/rows", "hf:me/rows@main:train", f"hf:me/rows@{commit}"):
        assert load(name, target="colour").source == f"hf:me/rows@{commit}"
    with pytest.raises(InputError, match=r"not there and the Hub was not reached .*fetch it online once"):
        load("hf:me/other", target="colour")
    assert len(hub.asked) == asked


@pytest.mark.parametrize("size", [6, 60])  # a small file has git's hash, a large one its sha256
def test_a_file_that_is_not_what_the_hub_says_is_refused(size, hub, tmp_path):
    hub.put("datasets/me/rows", {"train.csv": rows(size)})
    load("hf:me/rows", target="colour")
    (file,) = (tmp_path / "hf").glob("*/snapshots/*/train.csv")
    changed = bytearray(file.read_bytes())
    changed[-2] ^= 1
    file.resolve().write_bytes(bytes(changed))
    with pytest.raises(InputError, match=r"as the Hub has it, but .* holds something else; delete that file"):
        load("hf:me/rows", target="colour")


@pytest.mark.parametrize(
    ("name", "files", "says"),
    [
        ("hf:me/none", None, "expected the dataset hf:me/none on the Hub, but it is not there for you"),
        ("hf:me/it", {"script.py": b"", "data.jsonl": b""}, r"expected Parquet, CSV or TSV files.*but got .jsonl, .py"),
        ("hf:me/it", {"a/train.csv": b"", "b/train.csv": b""}, "one configuration of hf:me/it, but got a, b; name one"),
        ("hf:me/it:test", {"train.csv": b""}, "expected the split test in hf:me/it, but got train"),
        ("hf:../../x", None, "expected an address like hf:owner/name@revision:split, but got 'hf:../../x'"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(name, files, says, hub):
    if files is not None:
        hub.put("datasets/me/it", files)
    with fails_in_one_line(match=says):
        load(name, target="colour")


def test_the_layouts_of_the_hub():
    def links(*names, part=None):
        return layout(names, Address("me/it", None, part))

    converted = links("default/train/0000.parquet", "default/train/0001.parquet", "default/test/0000.parquet")
    assert converted == {
        "train-00000-of-00002.parquet": "default/train/0000.parquet",
        "train-00001-of-00002.parquet": "default/train/0001.parquet",
        "test-00000-of-00001.parquet": "default/test/0000.parquet",
    }
    two = ("mnist/train-0.parquet", "mnist/test-0.parquet", "other/train-0.parquet")
    assert set(links(*two, part="mnist").values()) == set(two[:2])
    assert links(*two, part="mnist/test") == {"train-00000-of-00001.parquet": "mnist/test-0.parquet"}
    assert links("iris.csv", "README.md") == {"train-00000-of-00001.csv": "iris.csv"}


class Vision(list):
    """A set as torchvision has them."""

    classes = ("zero", "one")

    def __init__(self, root, train=True, download=False):
        assert download
        images = [Image.fromarray(np.full((4, 4), k * 10, np.uint8)) for k in range(6 if train else 2)]
        super().__init__((image, k % 2) for k, image in enumerate(images))
        Path(root, "seen").write_text("x")


def test_sets_of_torchvision(tmp_path, monkeypatch):
    monkeypatch.setenv("RCAD_CACHE", str(tmp_path / "cache"))
    vision = ModuleType("torchvision")
    vision.__version__ = "0.28.0"
    vision.datasets = SimpleNamespace(Few=Vision)
    monkeypatch.setitem(sys.modules, "torchvision", vision)
    dataset = load("torchvision:Few", data_dir=tmp_path)
    assert (dataset.classes, dataset.train.y.tolist()) == (("zero", "one"), [0, 1] * 3)
    assert (dataset.train.x.shape, dataset.train.x[3].max(), len(dataset.test)) == ((6, 1, 4, 4), 30, 2)
    assert dataset.source == "torchvision 0.28.0 Few"
    (tmp_path / "torchvision" / "seen").unlink()
    load("torchvision:Few", data_dir=tmp_path)  # from the cache
    assert not (tmp_path / "torchvision" / "seen").exists()
    with pytest.raises(InputError, match=r"name of a torchvision data set, e.g. MNIST, .*but got 'Fewer'"):
        load("torchvision:Fewer", data_dir=tmp_path)
