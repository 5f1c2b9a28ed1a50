"""Tar and zip archives, read with suspicion: no member leaves its folder, and none holds more than it should."""

from __future__ import annotations

import contextlib
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import Any, NamedTuple

from rcad.data.cache import build_once, check_room, fingerprint, holding
from rcad.data.files import intact
from rcad.errors import InputError

MOST_MEMBERS = 5_000_000
MOST_RATIO, SMALL = 200, 256 << 20
"""More than 200 times its own size, and more than 256 MiB, is what a bomb unpacks to and no data set does."""
_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
# Headers that hold long names and the like are read into memory whole.
_LONGEST_HEADER = 1 << 20


def is_archive(path: Path) -> bool:
    """Whether the name is that of a tar or zip archive."""
    return path.name.lower().endswith(_SUFFIXES)


def check_member(archive: Path, name: str, *, regular: bool) -> None:
    """Refuse a member that is absolute, climbs with "..", has no name, or is neither a file nor a folder."""
    path = PureWindowsPath(name)  # which knows both kinds of slashes
    if path.anchor or ".." in path.parts or "\0" in name:
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


def extract(archive: Path, folder: Path) -> None:
    """Unpack a tar or zip into `folder`. All members are checked before the first is written.

    The checks are stricter than those of tarfile's data filter: no link, no absolute name, no bomb. Permissions, owners
    and times of the archive are not kept: they are no part of the data.
    """
    with intact(archive, "archive", "download it again"), _opened(archive) as members:
        files, total, most = [], 0, max(SMALL, MOST_RATIO * archive.stat().st_size)
        for count, member in enumerate(members, 1):
            check_member(archive, member.name, regular=member.is_file or member.is_folder)
            total += member.size
            if total > most or count > MOST_MEMBERS:
                got = f"{total / 1e9:.3g} GB" if total > most else f"over {MOST_MEMBERS:,} members"
                raise InputError(
                    f"expected at most {most / 1e9:.3g} GB in {archive} by its size, but it unpacks to {got}; "
                    "unpack it by hand if you trust it"
                )
            if member.is_file:
                files.append(member)
        check_room(folder, total, f"unpack {archive}")
        for file in files:
            target = folder / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with file.open() as source, target.open("wb") as out:
                shutil.copyfileobj(source, out)


def unpack(archive: Path, cache_dir: Path | str | None = None, check: Callable[[Path], None] | None = None) -> Path:
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


class Member(NamedTuple):
    """What an archive holds; `size` in bytes when unpacked. A link or a device is neither file nor folder."""

    name: str
    size: int
    is_file: bool
    is_folder: bool
    open: Callable[[], Any]


class _Header(tarfile.TarInfo):
    """A header of a tar; one that would fill the memory is refused before it is read."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type not in (*tarfile.REGULAR_TYPES, tarfile.GNUTYPE_SPARSE) and self.size > _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        header: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return header


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[Iterable[Member]]:
    """Open an archive and iterate over its members."""
    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            yield (_zip_member(zipped, info) for info in zipped.infolist())
    else:
        with tarfile.open(archive, tarinfo=_Header) as tar:
            yield (Member(m.name, m.size, m.isreg(), m.isdir(), partial(tar.extractfile, m)) for m in tar)


def _zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
    regular = stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG, stat.S_IFDIR)
    name, is_folder = info.filename, info.filename.endswith("/")
    return Member(name, info.file_size, regular and not is_folder, regular and is_folder, partial(archive.open, info))
