"""No member of an archive may leave the folder; damage is named."""

import errno
import io
import itertools
import stat
import tarfile
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from one_line import one_line
from rcad.data import files
from rcad.data.cache import unpack
from rcad.data.files import check_member, extract
from rcad.errors import InputError


def make_tar(path, *members, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, kind in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.size = 5 if kind == tarfile.REGTYPE else 0
            info.linkname = "/etc/passwd"
            archive.addfile(info, io.BytesIO(b"hello"))
    return path


def make_zip(path, *members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, b"hello")
    return path


FILE, LINK = stat.S_IFREG | 0o644, stat.S_IFLNK | 0o777


@pytest.mark.parametrize(
    "make",
    [
        lambda p: make_tar(p / "a.tar.gz", ("top/x.txt", tarfile.REGTYPE), ("top/sub", tarfile.DIRTYPE)),
        lambda p: make_tar(p / "a.tar", ("top/x.txt", tarfile.REGTYPE), mode="w"),
        lambda p: make_zip(p / "a.zip", ("top/x.txt", FILE)),
        lambda p: make_zip(p / "a.zip", ("top/x.txt", 0)),
    ],
)
def test_good_archives_are_unpacked_once(tmp_path, make):
    archive = make(tmp_path)
    folder = unpack(archive, tmp_path / "cache")
    assert folder.name == "top"
    assert (folder / "x.txt").read_bytes() == b"hello"
    (folder / "x.txt").write_bytes(b"kept!")
    assert (unpack(archive, tmp_path / "cache") / "x.txt").read_bytes() == b"kept!"


@pytest.mark.parametrize(
    ("make", "name", "kind", "problem"),
    [
        (make_tar, "../evil", tarfile.REGTYPE, "leaves"),
        (make_tar, "a/../../evil", tarfile.REGTYPE, "leaves"),
        (make_tar, "/abs/evil", tarfile.REGTYPE, "leaves"),
        (make_tar, "C:/evil", tarfile.REGTYPE, "leaves"),
        (make_tar, "..\\evil", tarfile.REGTYPE, "leaves"),
        (make_tar, "link", tarfile.SYMTYPE, "link or device"),
        (make_tar, "hard", tarfile.LNKTYPE, "link or device"),
        (make_tar, "fifo", tarfile.FIFOTYPE, "link or device"),
        (make_tar, "disk", tarfile.BLKTYPE, "link or device"),
        (make_zip, "../evil", FILE, "leaves"),
        (make_zip, "/evil", 0, "leaves"),
        (make_zip, "link", LINK, "link or device"),
        (make_zip, "", FILE, "has no name"),
    ],
)
def test_bad_members_stop_everything(tmp_path, make, name, kind, problem):
    good = ("good.bin", tarfile.REGTYPE if make is make_tar else FILE)
    archive = make(tmp_path / ("a.tar.gz" if make is make_tar else "a.zip"), good, (name, kind))
    with one_line(str(archive), match=problem):
        unpack(archive, tmp_path / "in" / "cache")
    assert not list((tmp_path / "in" / "cache" / "unpacked").glob("[!.]*"))
    assert not list(tmp_path.rglob("evil"))


@given(st.text(st.sampled_from("./\\aC:~\0"), min_size=1, max_size=12))
def test_an_accepted_name_stays_inside(tmp_path_factory, name):
    root = tmp_path_factory.getbasetemp().resolve()
    try:
        check_member(root, name, regular=True)
    except InputError:
        return
    assert (root / name).resolve().is_relative_to(root)


@pytest.mark.parametrize(("suffix", "keep"), [*itertools.product(("zip", "tar.gz"), (0, 10, 60, -20)), ("zip", "flip")])
def test_truncation_and_a_flipped_byte_are_named(tmp_path, keep, suffix):
    if suffix == "zip":
        archive = make_zip(tmp_path / "a.zip", ("x" * 50, FILE))
    else:
        archive = make_tar(tmp_path / "a.tar.gz", ("x" * 50, tarfile.REGTYPE))
    archive.write_bytes(archive.read_bytes()[:keep] if keep != "flip" else archive.read_bytes().replace(b"ll", b"lj"))
    with one_line(archive.name, match=r"^expected .*whole archive.*download it again$"):
        unpack(archive, tmp_path / "cache")


def test_a_full_disk_is_not_blamed_on_the_archive(tmp_path, monkeypatch):
    archive = make_zip(tmp_path / "a.zip", ("x", FILE))
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 4})())
        with pytest.raises(InputError, match="MB free to unpack"):
            extract(archive, tmp_path)
    assert not (tmp_path / "x").exists()

    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(InputError, match=r"expected to write the cache in .*No space left.*RCAD_CACHE"):
        unpack(archive, tmp_path / "cache")


def sparse_tar(path, length):
    """A tar whose one member says it is `length` bytes long, nearly all of them a hole (GNU's old format)."""
    info = tarfile.TarInfo("hole.bin")
    info.type, info.size = tarfile.GNUTYPE_SPARSE, 512
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:398], header[398:410] = b"%011o\0" % 0, b"%011o\0" % 512  # one block of data at the beginning
    header[410:422], header[422:434] = b"%011o\0" % length, b"%011o\0" % 0
    header[483:495] = b"%011o\0" % length
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    path.write_bytes(bytes(header) + b"x" * 512 + bytes(1024))
    return path


def zip_bomb(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros.bin", bytes(1 << 20))
    return path


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda p: sparse_tar(p / "a.tar", 8 * 10**9),
            r"at most 0.268 GB in .*a.tar by its size, but it unpacks to 8 GB",
        ),
        (lambda p: zip_bomb(p / "a.zip"), r"but it unpacks to 0.00105 GB; unpack it by hand if you trust it"),
        (lambda p: make_zip(p / "a.zip", *((f"{i}", FILE) for i in range(5))), "unpacks to over 3 members"),
        (lambda p: make_tar(p / "a.tar", *((f"{i}", tarfile.DIRTYPE) for i in range(5))), "unpacks to over 3 members"),
    ],
)
def test_bombs_are_refused_and_leave_nothing(tmp_path, monkeypatch, make, said):
    archive = make(tmp_path)
    if archive.suffix == ".zip" or "members" in said:
        monkeypatch.setattr(files, "SMALL", 1 << 16)
        monkeypatch.setattr(files, "MOST_MEMBERS", 3)
    with pytest.raises(InputError, match=said):
        unpack(archive, tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache" / "unpacked").iterdir()] == [".lock"]


def test_a_header_that_would_fill_the_memory_is_not_read(tmp_path, monkeypatch):
    archive = make_tar(tmp_path / "a.tar.gz", ("x" * 3000, tarfile.REGTYPE))
    monkeypatch.setattr(files, "_LONGEST_HEADER", 2000)
    with pytest.raises(InputError, match="to be a whole archive"):
        unpack(archive, tmp_path / "cache")
