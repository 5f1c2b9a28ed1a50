"""Tar and zip archives, read with suspicion: no member leaves its folder, and none holds more than it should."""

from __future__ import annotations

import contextlib
import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from rcad.data.cache import build_once, check_room, fingerprint, holding
from rcad.data.files import DISK_ERRORS, reason
from rcad.errors import InputError

MOST_MEMBERS = 5_000_000
MOST_RATIO, SMALL = 200, 256 << 20
"""More than 200 times its own size, and more than 256 MiB, is what a bomb unpacks to and no data set does."""
_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, NotImplementedError)
File = tuple[str, int, Callable[[], IO[bytes]]]
"""Name, bytes when unpacked, and what opens it."""
# Headers that hold long names and the like are read into memory whole.
_LONGEST_HEADER = 1 << 20


def is_archive(path: Path) -> bool:
    """Whether the name is that of a tar or zip archive."""
    return path.name.lower().endswith(_SUFFIXES)


@contextlib.contextmanager
def readable(archive: Path) -> Iterator[None]:
    """Turn what a truncated or damaged archive raises into one line that names it."""
    try:
        yield
    except InputError:
        raise
    # RuntimeError: an encrypted zip; the others come of numbers that no header should hold.
    except (*_BROKEN, OSError, RuntimeError, KeyError, ValueError, OverflowError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            raise  # the disk's fault, not the archive's
        raise InputError(
            f"expected {archive} to be a whole archive, but it cannot be read ({reason(error)}); download it again"
        ) from None


def check_member(archive: Path, name: str, *, regular: bool) -> None:
    """Refuse a member that is absolute, climbs with "..", has no name, or is neither a file nor a folder."""
    parts = (*PurePosixPath(name).parts, *PureWindowsPath(name).parts)
    absolute = PurePosixPath(name).is_absolute() or bool(PureWindowsPath(name).drive or PureWindowsPath(name).root)
    if absolute or ".." in parts or "\0" in name:
        problem = "leaves the folder"
    elif not name:
        problem = "has no name"
    elif not regular:
        problem = "is a link or device"
    else:
        return
    raise InputError(
        f"expected only files inside the folder in {archive}, but member {name[:200]!r} {problem}; "
        "do not use this archive"
    )


class _Budget:
    """What an archive may unpack to, by its own size."""

    def __init__(self, archive: Path) -> None:
        self.archive, self.members, self.bytes = archive, 0, 0
        self.most = max(SMALL, MOST_RATIO * archive.stat().st_size)

    def spend(self, size: int) -> None:
        self.members += 1
        self.bytes += size
        if self.bytes > self.most or self.members > MOST_MEMBERS:
            got = f"{self.bytes / 1e9:.3g} GB" if self.bytes > self.most else f"over {MOST_MEMBERS:,} members"
            raise InputError(
                f"expected at most {self.most / 1e9:.3g} GB in {self.archive} by its size, but it unpacks to {got}; "
                "unpack it by hand if you trust it"
            )


def extract(archive: Path, folder: Path) -> None:
    """Unpack a tar or zip into `folder`. All members are checked before the first is written.

    Permissions, owners and times of the archive are not kept: they are no part of the data.
    """
    files = _zip_files if archive.name.lower().endswith(".zip") else _tar_files
    with readable(archive):
        check_room(folder, sum(size for _, size, _ in files(archive)), f"unpack {archive}")
        for name, _, content in files(archive):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with content() as source, target.open("wb") as out:
                shutil.copyfileobj(source, out)


def unpacked(archive: Path, cache_dir: Path | str | None = None, check: Callable[[Path], None] | None = None) -> Path:
    """The folder that holds the archive's files, unpacked into the cache the first time.

    Where everything lies in one top folder, that folder is returned.

    Args:
        check: refuses an archive before it is unpacked.
    """

    def build(folder: Path) -> None:
        if check is not None:
            check(archive)
        extract(archive, folder)

    name = f"unpacked/{fingerprint([archive], archive.parent, cache_dir)[:32]}"
    target = build_once(cache_dir, name, build, holding())
    inside = [path for path in target.iterdir() if not path.name.startswith((".", "__MACOSX"))]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else target


class _Member(tarfile.TarInfo):
    """A header of a tar; one that would fill the memory is refused before it is read."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type not in (*tarfile.REGULAR_TYPES, tarfile.GNUTYPE_SPARSE) and self.size > _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return member


def _tar_files(archive: Path) -> Iterator[File]:
    """Every file of a tar, checked more strictly than by tarfile's data filter: no link, no absolute name, no bomb."""
    budget = _Budget(archive)
    with tarfile.open(archive, tarinfo=_Member) as opened:
        for member in opened:
            check_member(archive, member.name, regular=member.isreg() or member.isdir())
            budget.spend(member.size)
            if member.isreg():
                yield member.name, member.size, partial(_tar_content, opened, member)


def _tar_content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = archive.extractfile(member)
    assert content is not None
    return content


def _zip_files(archive: Path) -> Iterator[File]:
    """Every file of a zip, all members checked before the first is given."""
    with readable(archive):
        budget = _Budget(archive)
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
            for member in members:
                kind = stat.S_IFMT(member.external_attr >> 16)
                check_member(archive, member.filename, regular=kind in (0, stat.S_IFREG, stat.S_IFDIR))
                budget.spend(member.file_size)
            for member in members:
                if not member.is_dir():
                    yield member.filename, member.file_size, partial(opened.open, member)
