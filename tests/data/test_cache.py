"""The cache: whole or absent, keyed by content, opened without reading its sources."""

import io
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from rcad.data import cache
from rcad.data.cache import cached, entries, open_entry, verify
from rcad.errors import InputError

IMAGES = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)


class Source:
    """A one-file source whose builder counts its calls."""

    def __init__(self, tmp_path: Path, content: bytes = b"pixels") -> None:
        self.cache_dir = tmp_path / "cache"
        self.file = tmp_path / "source.bin"
        self.built = 0
        self.write(content)

    def write(self, content: bytes, age: float = 60.0) -> None:
        self.file.write_bytes(content)
        old = self.file.stat().st_mtime - age
        os.utime(self.file, (old, old))

    def build(self, folder: Path) -> dict:
        self.built += 1
        np.save(folder / "train_x.npy", IMAGES)
        np.save(folder / "train_y.npy", np.array([0, 1]))
        return {"classes": ("a", "b"), "note": "two images"}

    def load(self, **options):
        return cached("toy", [self.file], self.file.parent, options, self.build, self.cache_dir)

    @property
    def entry(self) -> Path:
        (entry,) = entries(self.cache_dir)
        return entry


@pytest.fixture
def source(tmp_path):
    return Source(tmp_path)


def test_a_second_load_opens_what_the_first_built_and_reads_no_source_file(source, monkeypatch):
    first = source.load()
    with monkeypatch.context() as patch:
        patch.setattr(cache, "digest", lambda path: pytest.fail(f"read {path}"))
        second = source.load()
    assert source.built == 1
    for dataset in (first, second):
        np.testing.assert_array_equal(dataset.train.x, IMAGES)
        np.testing.assert_array_equal(dataset.train.y, [0, 1])
        assert dataset.train.x.dtype == np.uint8
        assert dataset.classes == ("a", "b")
        assert dataset.note == "two images"
        assert dataset.test is None
    assert isinstance(second.train.x.base, np.memmap)
    second.train.x[:] = 0  # which leaves the file alone
    np.testing.assert_array_equal(source.load().train.x, IMAGES)
    assert verify(source.entry) is None


def test_content_and_options_are_the_key_and_place_is_not(source, tmp_path):
    source.load()
    source.load(size=8)
    assert source.built == 2
    source.write(b"other!")
    source.load()
    assert source.built == 3
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = Source(elsewhere, b"other!")
    moved.cache_dir = source.cache_dir
    moved.load()
    assert moved.built == 0


def test_a_file_replaced_with_same_size_and_times_is_noticed(source):
    source.load()
    times = source.file.stat()
    source.file.write_bytes(b"PIXELS")
    os.utime(source.file, ns=(times.st_atime_ns, times.st_mtime_ns))
    source.load()
    assert source.built == 2


def test_a_file_just_written_is_not_remembered(source):
    source.write(b"fresh", age=0)
    source.load()
    assert not list((source.cache_dir / "fingerprints").glob("*"))


def test_large_trees_are_keyed_by_names_sizes_and_times(tmp_path, monkeypatch):
    files = [tmp_path / f"{i}.png" for i in range(3)]
    for file in files:
        file.write_bytes(b"x")
    monkeypatch.setattr(cache, "CONTENT_FILES", 2)
    monkeypatch.setattr(cache, "digest", lambda path: pytest.fail(f"read {path}"))
    before = cache.fingerprint(files, tmp_path, tmp_path)
    assert before == cache.fingerprint(files[::-1], tmp_path, tmp_path)
    os.utime(files[0], (1, 1))
    assert before != cache.fingerprint(files, tmp_path, tmp_path)


def _other_header(data):
    buffer = io.BytesIO()
    np.save(buffer, IMAGES.reshape(2, 3, 2, 8))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("train_x.npy", lambda data: data[:100]),
        ("train_x.npy", _other_header),
        ("train_y.npy", lambda data: data + bytes(8)),
        ("train_y.npy", None),
        ("manifest.json", None),
        ("manifest.json", lambda data: data.replace(b'"a"', b'"c"')),
        ("manifest.json", lambda data: b'{"format": 1, "arr'),
        ("manifest.json", lambda data: b"[]"),
        ("manifest.json", lambda data: b"[" * 100_000),
        ("manifest.json", lambda data: b"\xff\xfe"),
    ],
)
def test_a_broken_entry_is_rebuilt(source, file, damage):
    source.load()
    path = source.entry / file
    path.write_bytes(damage(path.read_bytes())) if damage else path.unlink()
    assert open_entry(source.entry) is None
    assert verify(source.entry) is not None
    np.testing.assert_array_equal(source.load().train.x, IMAGES)
    assert source.built == 2
    assert verify(source.entry) is None


@pytest.mark.parametrize("large", [False, True])
def test_a_flipped_bit_is_rebuilt_and_in_a_large_entry_seen_by_verify(source, large, monkeypatch):
    source.load()
    path = source.entry / "train_x.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    if large:
        monkeypatch.setattr(cache, "SUMMED", 100)
        assert open_entry(source.entry) is not None
    problem = verify(source.entry)
    assert "train_x.npy to match its checksum" in problem
    assert f"rcad data clear --yes --cache-dir {source.entry.parents[1]}" in problem
    if not large:
        np.testing.assert_array_equal(source.load().train.x, IMAGES)
        assert source.built == 2
        assert verify(source.entry) is None


def test_what_a_killed_process_left_is_ignored_and_removed(source):
    source.load()
    entry = source.entry
    stale = entry.with_name(f".{entry.name}.partial-dead")
    entry.rename(stale)
    (stale / "manifest.json").unlink()
    assert entries(source.cache_dir) == []
    source.load()
    assert source.built == 2
    assert not stale.exists()


@pytest.mark.parametrize("locks", [True, False])
def test_threads_building_at_once_agree(source, monkeypatch, locks):
    if not locks:  # a system without fcntl
        monkeypatch.setitem(sys.modules, "fcntl", None)
    gate = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        for dataset in pool.map(lambda _: (gate.wait(), source.load())[1], range(4)):
            np.testing.assert_array_equal(dataset.train.x, IMAGES)
    assert verify(source.entry) is None
    assert source.built == 1 or not locks
    assert not list((source.cache_dir / "images").glob(".*partial*"))


def test_root_is_argument_then_environment_then_home(tmp_path, monkeypatch):
    monkeypatch.setenv("RCAD_CACHE", str(tmp_path / "env"))
    assert cache.cache_root(tmp_path / "arg") == tmp_path / "arg"
    assert cache.cache_root() == tmp_path / "env"
    monkeypatch.delenv("RCAD_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.cache_root() == tmp_path / ".cache" / "rcad"


def test_a_cache_that_cannot_be_written_is_one_line(source, tmp_path, monkeypatch):
    source.cache_dir = source.file
    with pytest.raises(InputError, match=r"^expected to write the cache in .*RCAD_CACHE$"):
        source.load()

    def full_disk(folder):
        raise OSError(28, "No space left on device")

    source.cache_dir = tmp_path / "cache"
    monkeypatch.setattr(source, "build", full_disk)
    with pytest.raises(InputError, match=r"No space left.*RCAD_CACHE$"):
        source.load()


def test_too_little_space_is_said_before_decoding(tmp_path):
    with pytest.raises(InputError, match=r"^expected [\d,.]+ MB free.*but got"):
        cache.allocate(tmp_path / "x.npy", (10**9, 3, 1000, 1000))
