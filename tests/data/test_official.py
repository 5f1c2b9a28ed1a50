"""CIFAR's records, SVHN's .mat files, downloads from a server that cuts and lies; the published corrupted test sets."""

import hashlib
import http.server
import itertools
import socket
import threading

import numpy as np
import pytest
import scipy.io

from data.conftest import write
from made import tar
from one_line import fails_in_one_line
from rcad.data import official
from rcad.data.corrupted import CorruptedArrays, CorruptedFolders, open_corrupted
from rcad.data.official import fetch_file, load_cifar10, load_cifar100, load_svhn
from rcad.data.registry import CIFAR10_CLASSES, CIFAR100_CLASSES, Remote
from rcad.errors import InputError


def records(count, label_bytes, seed=0, classes=10):
    """(images, labels (N, label_bytes), file bytes)"""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
    labels = rng.integers(0, classes, (count, label_bytes), dtype=np.uint8)
    return images, labels, np.concatenate([labels, images.reshape(count, -1)], 1).tobytes()


def save(target, files):
    """As a folder, or as an archive with one top folder, by the target's name."""
    if target.name.endswith(".gz"):
        return tar(target, {f"top/{name}": data for name, data in files.items()})
    return write(target, **{name.replace(".", "_dot_"): data for name, data in files.items()})


@pytest.mark.parametrize("name", ["cifar-10-binary.tar.gz", "folder"])
def test_cifar10_joins_its_batches_in_order(tmp_path, unchecked, name):
    batches = {f"data_batch_{i}.bin": records(2, 1, i) for i in (3, 1, 2, 5, 4)}
    test = records(3, 1, 9)
    files = {"test_batch.bin": test[2]} | {key: data for key, (_, _, data) in batches.items()}
    path = save(tmp_path / name, files | {"readme.html": b"<html>"})
    dataset = load_cifar10(str(path), cache_dir=tmp_path / "cache")
    images, labels, _ = zip(*(batches[f"data_batch_{i}.bin"] for i in range(1, 6)), strict=True)
    np.testing.assert_array_equal(dataset.train.x, np.concatenate(images))
    np.testing.assert_array_equal(dataset.train.y, np.concatenate(labels)[:, 0])
    np.testing.assert_array_equal(dataset.test.x, test[0])
    assert (dataset.train.y.dtype, dataset.classes) == (np.int64, CIFAR10_CLASSES)


@pytest.mark.parametrize("name", ["cifar-100-binary.tar.gz", "folder"])
def test_cifar100_has_coarse_and_fine_labels(tmp_path, unchecked, name):
    images, labels, data = records(4, 2, classes=20)
    names = "\n".join(f"super{i}" for i in range(20))
    files = {"train.bin": data, "test.bin": data, "coarse_label_names.txt": names.encode()}
    path = str(save(tmp_path / name, files))
    fine = load_cifar100(path, cache_dir=tmp_path / "cache")
    coarse = load_cifar100(path, cache_dir=tmp_path / "cache", labels="coarse")
    np.testing.assert_array_equal(fine.train.x, images)
    np.testing.assert_array_equal(coarse.train.y, labels[:, 0])
    np.testing.assert_array_equal(fine.train.y, labels[:, 1])
    assert (fine.classes, coarse.classes) == (CIFAR100_CLASSES, tuple(names.split()))


def write_svhn(folder, part, labels, seed=0):
    images = np.random.default_rng(seed).integers(0, 256, (len(labels), 3, 32, 32), dtype=np.uint8)
    content = {"X": images.transpose(2, 3, 1, 0), "y": np.array(labels, np.uint8)[:, None]}
    scipy.io.savemat(folder / f"{part}_32x32.mat", content, do_compression=True)
    return images


def test_ten_is_zero_and_extra_joins_train(tmp_path, unchecked):
    train, test = write_svhn(tmp_path, "train", [10, 1, 9], 1), write_svhn(tmp_path, "test", [5], 2)
    options = {"cache_dir": tmp_path / "cache"}
    dataset = load_svhn(str(tmp_path), **options)
    np.testing.assert_array_equal(dataset.train.x, train)
    np.testing.assert_array_equal(dataset.train.y, [0, 1, 9])
    np.testing.assert_array_equal(dataset.test.x, test)
    assert dataset.classes == tuple("0123456789")
    with pytest.raises(InputError, match=r"expected extra_32x32.mat in"):
        load_svhn(str(tmp_path), extra=True, **options)
    extra = write_svhn(tmp_path, "extra", [2, 10], 3)
    joined = load_svhn(str(tmp_path / "train_32x32.mat"), extra=True, **options)
    np.testing.assert_array_equal(joined.train.x, np.concatenate([train, extra]))
    np.testing.assert_array_equal(joined.train.y, [0, 1, 9, 2, 0])


CONTENT = bytes(range(256)) * 4000


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        wanted = self.headers.get("Range")
        server.ranges.append(wanted)
        if server.statuses:
            self.send_error(server.statuses.pop(0))
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and server.supports_range else 0
        if start >= len(CONTENT):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(CONTENT)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            start = 0 if server.ignores_start else start
            self.send_header("Content-Range", f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}")
        if server.sends_length:
            self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        stop = start + server.cuts.pop(0) if server.cuts else None
        self.wfile.write(CONTENT[start:stop])

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    """Serves CONTENT. `cuts`: after how many bytes to drop each of the first connections."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.cuts, server.statuses, server.ranges = [], [], []
        server.supports_range, server.sends_length, server.ignores_start = True, True, False
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(official.time, "sleep", lambda seconds: None)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def remote(server, md5=None):
    url = f"http://127.0.0.1:{server.server_port}/files/data.bin"
    return Remote(url, md5 or hashlib.md5(CONTENT, usedforsecurity=False).hexdigest())


@pytest.mark.parametrize(
    ("fault", "part", "ranges"),
    [
        ({}, b"", [None]),
        ({"cuts": [400_000, 300_000]}, b"", [None, "bytes=400000-", "bytes=700000-"]),
        ({"cuts": [1000], "supports_range": False}, b"", [None, "bytes=1000-"]),
        ({"cuts": [1000], "ignores_start": True}, b"", [None, "bytes=1000-", None]),
        ({"sends_length": False}, b"", [None]),
        ({"statuses": [503, 500]}, b"", [None, None, None]),
        ({}, CONTENT[:1000], ["bytes=1000-"]),
        ({}, CONTENT, ["bytes=1024000-"]),
        ({}, CONTENT + b"too long", ["bytes=1024008-", None]),
    ],
)
def test_a_file_comes_whole_whatever_the_server_does(server, tmp_path, fault, part, ranges):
    vars(server).update(fault)
    if part:  # left by an earlier call
        (tmp_path / "data.bin.part").write_bytes(part)
    calls = []
    path = fetch_file(remote(server), tmp_path, progress=lambda *counts: calls.append(counts))
    assert path == tmp_path / "data.bin"
    assert path.read_bytes() == CONTENT
    assert not path.with_name("data.bin.part").exists()
    assert part or len(calls) > 2
    assert part == CONTENT or calls[-1] == (len(CONTENT), len(CONTENT) if server.sends_length else 0)
    fetch_file(remote(server), tmp_path)
    assert server.ranges == ranges, "a file that is there is not asked for again"


def test_a_wrong_checksum_leaves_nothing_and_a_wrong_file_there_is_kept_and_named(server, tmp_path):
    with pytest.raises(InputError, match=r"^expected md5 0{32} for .*data.bin.part, but got .*; fetch it again"):
        fetch_file(remote(server, "0" * 32), tmp_path)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == []
    (tmp_path / "data.bin").write_bytes(b"mine")
    with pytest.raises(InputError, match="delete it and fetch it again"):
        fetch_file(remote(server), tmp_path)
    assert (tmp_path / "data.bin").read_bytes() == b"mine"


def test_not_found_is_not_tried_again_and_what_came_of_a_lost_connection_is_kept(server, tmp_path):
    server.statuses = [404]
    with pytest.raises(InputError, match=r"but got: HTTP 404 .*put the file at .*data.bin by hand$"):
        fetch_file(remote(server), tmp_path)
    assert len(server.ranges) == 1
    server.cuts = [1000, 0, 0, 0]
    with pytest.raises(InputError, match=r"connection was lost; try again to continue, or put the file at .*data.bin"):
        fetch_file(remote(server), tmp_path)
    assert (tmp_path / "data.bin.part").read_bytes() == CONTENT[:1000]
    assert not (tmp_path / "data.bin").exists()


def test_no_network_and_other_addresses_are_one_line(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/data.bin"  # bound but not listening: refused
        with fails_in_one_line(f"put the file at {tmp_path / 'data.bin'} by hand"):
            fetch_file(Remote(url, "0" * 32), tmp_path)
    for url in ("file:///etc/passwd", "ftp://host/data.bin"):
        with fails_in_one_line("expected an http"):
            fetch_file(Remote(url, "0" * 32), tmp_path)


COUNT = 4  # images per severity


def arrays(folder):
    rng = np.random.default_rng(0)
    stored = {name: rng.integers(0, 256, (5 * COUNT, 32, 32, 3), dtype=np.uint8) for name in ("fog", "snow")}
    for name, array in stored.items():
        np.save(folder / f"{name}.npy", array)
    labels = np.tile(np.arange(COUNT, dtype=np.uint8) % 3, 5)
    np.save(folder / "labels.npy", labels)
    return stored, labels


def folders(root):
    image = pytest.importorskip("PIL.Image")
    for severity, (label, wnid) in itertools.product((1, 5), enumerate(("n01", "n02"))):
        place = root / "fog" / str(severity) / wnid
        place.mkdir(parents=True)
        for index in range(2):
            pixels = np.full((64, 64, 3), 40 * severity + 10 * label + index, np.uint8)
            image.fromarray(pixels).save(place / f"val_{index}.JPEG", quality=100)


def test_arrays_are_cut_by_severity_and_stay_on_disk(tmp_path):
    stored, labels = arrays(tmp_path)
    corrupted = open_corrupted(tmp_path, classes=3)
    assert isinstance(corrupted, CorruptedArrays)
    assert corrupted.corruptions == ("snow", "fog")  # in the paper's order
    for name, array in stored.items():
        for severity in range(1, 6):
            split = corrupted.split(name, severity)
            rows = slice(COUNT * (severity - 1), COUNT * severity)
            np.testing.assert_array_equal(split.x, array[rows].transpose(0, 3, 1, 2))
            np.testing.assert_array_equal(split.y, labels[rows])
            assert split.y.dtype == np.int64
            assert isinstance(split.x.base.base, np.memmap)


@pytest.mark.parametrize(("classes", "levels"), [(None, [200, 201, 210, 211]), (("n02", "n01"), [210, 211, 200, 201])])
def test_folders_are_decoded_with_labels_in_the_order_of_the_classes(tmp_path, classes, levels):
    folders(tmp_path / "set")
    corrupted = open_corrupted(tmp_path / "set", classes=classes, cache_dir=tmp_path / "cache")
    assert isinstance(corrupted, CorruptedFolders)
    assert corrupted.classes == (classes or ("n01", "n02"))
    split = corrupted.split("fog", 5)
    assert split.x.shape == (4, 3, 64, 64)
    np.testing.assert_array_equal(split.y, [0, 0, 1, 1])
    np.testing.assert_allclose(split.x[:, 0, 0, 0], levels, atol=2)
    np.testing.assert_allclose(corrupted.split("fog", 1).x[:, 0, 0, 0], np.asarray(levels) - 160, atol=2)


def test_missing_files_and_folders_and_severities_are_one_to_five(tmp_path):
    with fails_in_one_line("is none; check the path"):
        open_corrupted(tmp_path / "absent")
    with fails_in_one_line("but got neither"):
        open_corrupted(tmp_path)
    np.save(tmp_path / "labels.npy", np.zeros(5, np.uint8))
    with fails_in_one_line("expected gaussian_noise.npy and the like"):
        open_corrupted(tmp_path)
    arrays(tmp_path)
    corrupted = open_corrupted(tmp_path)
    (tmp_path / "fog.npy").unlink()
    with fails_in_one_line("expected fog.npy in"):
        corrupted.split("fog", 1)
    with fails_in_one_line("to be one of snow, fog, but got 'frost'"):
        corrupted.split("frost", 1)
    for severity in (0, 6, 1.0, True):
        with fails_in_one_line("expected a severity from 1 to 5"):
            corrupted.split("snow", severity)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("fog", np.zeros((20, 32, 32, 3), np.float32), r"uint8 images \(20, H, W, 3\) .*float32 \(20, 32, 32, 3\)"),
        ("fog", b"\x93NUMPY cut short", "to be a whole .npy file"),
        ("fog", np.array([{}], dtype=object), "to be a whole .npy file"),
        ("labels", np.zeros(7, np.uint8), r"expected whole-number labels \(N,\) of 5 equal parts"),
        ("labels", np.array([0, 1] * 4 + [1, 0], np.uint8), "expected the same labels for every severity"),
        ("labels", np.full(5, 9, np.uint8), "expected labels from 0 to 2, but got 9 in"),
    ],
    ids=str,
)
def test_wrong_arrays(tmp_path, file, content, message):
    arrays(tmp_path)
    path = tmp_path / f"{file}.npy"
    path.write_bytes(content) if isinstance(content, bytes) else np.save(path, content)
    with fails_in_one_line(match=message):
        open_corrupted(tmp_path, classes=3).split("fog", 1)


def test_wrong_folders(tmp_path):
    folders(tmp_path / "set")
    (tmp_path / "bare" / "fog").mkdir(parents=True)
    for name, classes, severity, message in (
        ("set", None, 3, "fog/3, but it is missing"),
        ("set", 2, 1, "expected the names of the classes"),
        ("set", ("n01", "n03"), 1, "but got 'n02'"),
        ("set", ("n01", "n02", "n03"), 1, "n03, but got none"),
        ("bare", None, 1, "expected folders 1 to 5"),
    ):
        with fails_in_one_line(message):
            open_corrupted(tmp_path / name, classes=classes, cache_dir=tmp_path / "cache").split("fog", severity)
