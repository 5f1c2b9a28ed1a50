"""The cache: whole or absent, keyed by content, opened without reading its sources. Archives, unpacked with care."""

import io
import itertools
import os
import stat
import sys
import tarfile
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from one_line import fails_in_one_line
from rcad.data import cache, files
from rcad.data.cache import cached, entries, open_entry, unpack, verify
from rcad.data.files import extract
from rcad.errors import InputError

IMAGES = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)


class Source:
    """A one-file source whose builder counts its calls."""

    def __init__(self, tmp_path, content=b"pixels"):
        self.cache_dir = tmp_path / "cache"
        self.file = tmp_path / "source.bin"
        self.built = 0
        self.write(content)

    def write(self, content, age=60.0):
        self.file.write_bytes(content)
        old = self.file.stat().st_mtime - age
        os.utime(self.file, (old, old))

    def build(self, folder):
        self.built += 1
        np.save(folder / "train_x.npy", IMAGES)
        np.save(folder / "train_y.npy", np.array([0, 1]))
        return {"classes": ("a", "b"), "note": "two images"}

    def load(self, **options):
        return cached("toy", [self.file], self.file.parent, options, self.build, self.cache_dir)

    @property
    def entry(self):
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
        assert (dataset.classes, dataset.note, dataset.test) == (("a", "b"), "two images", None)
    assert isinstance(second.train.x.base, np.memmap)
    second.train.x[:] = 0  # which leaves the file alone
    np.testing.assert_array_equal(source.load().train.x, IMAGES)
    assert verify(source.entry) is None


def test_content_and_options_are_the_key_and_place_is_not(source, tmp_path):
    source.load()
    source.load(size=8)
    assert source.built == 2
    times = source.file.stat()  # which a file of the same size may keep
    source.file.write_bytes(b"PIXELS")
    os.utime(source.file, ns=(times.st_atime_ns, times.st_mtime_ns))
    source.load()
    assert source.built == 3
    source.write(b"other!")
    source.load()
    assert source.built == 4
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = Source(elsewhere, b"other!")
    moved.cache_dir = source.cache_dir
    moved.load()
    assert moved.built == 0


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


def flipped(data):
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("train_y.npy", None),
        ("manifest.json", None),
        ("manifest.json", lambda data: data.replace(b'"a"', b'"c"')),
        ("manifest.json", lambda data: b"[" * 100_000),
        ("train_x.npy", flipped),
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


def test_a_flipped_bit_in_a_large_entry_is_seen_by_verify(source, monkeypatch):
    source.load()
    path = source.entry / "train_x.npy"
    path.write_bytes(flipped(path.read_bytes()))
    monkeypatch.setattr(cache, "SUMMED", 100)
    assert open_entry(source.entry) is not None
    assert "train_x.npy to match its checksum" in verify(source.entry)


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


def make_tar(path, *members, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, kind in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.size = 5 if kind == tarfile.REGTYPE else 0
            info.linkname = "/etc/passwd"
            archive.addfile(info, io.BytesIO(b"hello"))
    return path


def make_zip(path, *members, content=b"hello", compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w") as archive:
        for name, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, content, compression)
    return path


FILE, LINK = stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777
ZEROS = {"content": bytes(1 << 20), "compression": zipfile.ZIP_DEFLATED}


def test_good_archives_are_unpacked_once(tmp_path):
    top = ("top/x.txt", tarfile.REGTYPE)
    for archive in (
        make_tar(tmp_path / "a.tar.gz", top, ("top/sub", tarfile.DIRTYPE)),
        make_tar(tmp_path / "b.tar", top, mode="w"),
        make_zip(tmp_path / "c.zip", ("top/x.txt", FILE)),
        make_zip(tmp_path / "d.zip", ("top/x.txt", 0)),
    ):
        folder = unpack(archive, tmp_path / "cache" / archive.stem)
        assert folder.name == "top"
        assert (folder / "x.txt").read_bytes() == b"hello"
        (folder / "x.txt").write_bytes(b"kept!")
        assert (unpack(archive, tmp_path / "cache" / archive.stem) / "x.txt").read_bytes() == b"kept!"


@pytest.mark.parametrize(
    ("make", "name", "kind", "refused"),
    [
        (make_tar, "../evil", tarfile.REGTYPE, "'../evil' in .* is none; do not use it"),
        (make_tar, "/abs/evil", tarfile.REGTYPE, None),
        (make_tar, "link", tarfile.SYMTYPE, "is none; do not use it"),
        (make_tar, "fifo", tarfile.FIFOTYPE, "is none; do not use it"),
        (make_zip, "../evil", FILE, None),
        (make_zip, "/abs/evil", FILE, None),
        (make_zip, "link", LINK, None),
        (make_zip, "", FILE, "to be a whole archive"),
    ],
)
def test_no_member_leaves_the_folder(tmp_path, make, name, kind, refused):
    good = ("good.bin", tarfile.REGTYPE if make is make_tar else FILE)
    archive = make(tmp_path / ("a.tar.gz" if make is make_tar else "a.zip"), good, (name, kind))
    unpacked = tmp_path / "in" / "cache" / "unpacked"
    if refused:
        with fails_in_one_line(str(archive), match=refused):
            unpack(archive, unpacked.parent)
        assert not list(unpacked.glob("[!.]*"))
    else:
        folder = unpack(archive, unpacked.parent)
        assert folder.parent == unpacked
        assert not any(path.is_symlink() for path in folder.rglob("*"))
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and unpacked not in path.parents]
    assert outside == [archive]


@pytest.mark.parametrize(("suffix", "keep"), [*itertools.product(("zip", "tar.gz"), (0, 10, 60, -20)), ("zip", "flip")])
def test_truncation_and_a_flipped_byte_are_named(tmp_path, keep, suffix):
    if suffix == "zip":
        archive = make_zip(tmp_path / "a.zip", ("x" * 50, FILE))
    else:
        archive = make_tar(tmp_path / "a.tar.gz", ("x" * 50, tarfile.REGTYPE))
    archive.write_bytes(archive.read_bytes()[:keep] if keep != "flip" else archive.read_bytes().replace(b"ll", b"lj"))
    with fails_in_one_line(archive.name, match=r"^expected .*whole archive.*download it again$"):
        unpack(archive, tmp_path / "cache")


def test_room_on_the_disk_is_asked_for_first(tmp_path, monkeypatch):
    archive = make_zip(tmp_path / "a.zip", ("x", FILE))
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=4))
    with pytest.raises(InputError, match="MB free to unpack"):
        extract(archive, tmp_path)
    with pytest.raises(InputError, match="MB free to decode the images"):
        cache.allocate(tmp_path / "x", (5,))
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: make_zip(p / "a.zip", ("x", FILE), **ZEROS), "but it unpacks to 0.00105 GB; unpack it by hand if"),
        (lambda p: make_zip(p / "a.zip", *((f"{i}", FILE) for i in range(5))), "unpacks to over 3 members"),
    ],
)
def test_bombs_are_refused_and_leave_nothing(tmp_path, monkeypatch, make, said):
    monkeypatch.setattr(files, "SMALL", 1 << 16)
    monkeypatch.setattr(files, "MOST_MEMBERS", 3)
    with pytest.raises(InputError, match=said):
        unpack(make(tmp_path), tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache" / "unpacked").iterdir()] == [".lock"]


def test_a_header_that_would_fill_the_memory_is_not_read(tmp_path, monkeypatch):
    archive = make_tar(tmp_path / "a.tar.gz", ("x" * 3000, tarfile.REGTYPE))
    monkeypatch.setattr(files, "_LONGEST_HEADER", 2000)
    with pytest.raises(InputError, match="to be a whole archive"):
        unpack(archive, tmp_path / "cache")
