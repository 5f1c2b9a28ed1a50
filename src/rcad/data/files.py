"""Files that are read and written: what the disk or a library says of them becomes one line.

Tar and zip archives are read with suspicion: no member leaves its folder, and none holds more than it should.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from rcad.errors import InputError, shown

# What a full or read-only disk says, as opposed to a damaged source or a lost connection.
DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG})
REMEDY = "pass cache_dir= (--cache-dir) or set RCAD_CACHE"
MOST_MEMBERS = 5_000_000
MOST_RATIO, SMALL = 200, 256 << 20
"""More than 200 times its own size, and more than 256 MiB, is what a bomb unpacks to and no data set does."""
_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_LONGEST_HEADER = 1 << 20  # headers that hold long names and the like are read into memory whole


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the file system refuses about `path` into one line."""
    try:
        yield
    except OSError as error:
        raise InputError(f"expected {path} to be readable, but got: {error.strerror}; check the file") from None


def read_bytes(path: Path) -> bytes:
    """A file's bytes, or one line on why they cannot be read."""
    with reading(path):
        if not stat.S_ISREG(path.stat().st_mode):  # a device or a pipe may have no end
            raise InputError(f"expected {path} to be a file, but it is something else; check the path")
        return path.read_bytes()


def reason(error: Exception) -> str:
    """The message of a library's exception, shortened to fit into one line."""
    return " ".join(str(error).split())[:100] or type(error).__name__


@contextlib.contextmanager
def intact(path: Path | str, kind: str, remedy: str) -> Iterator[None]:
    """Turn whatever a library raises on a damaged file, a `kind` in words, into one line with a `remedy`."""
    try:
        yield
    except (InputError, ImportError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            raise  # not the file's fault
        raise InputError(
            f"expected {path} to be a whole {kind}, but it cannot be read ({reason(error)}); {remedy}"
        ) from None


def digest(path: Path, algorithm: str = "sha256") -> str:
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def check_md5(path: Path, expected: str, remedy: str) -> None:
    """Compare a file with its published md5; `remedy` is the advice where they differ."""
    if (got := digest(path, "md5")) != expected:
        raise InputError(f"expected md5 {expected} for {path}, but got {got}; {remedy}")


@contextlib.contextmanager
def writing(folder: Path, purpose: str, remedy: str) -> Iterator[None]:
    """Make `folder`, and turn what the file system refuses (no space, no permission) into one line."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        where = f" ({error.filename})" if error.filename else ""
        raise InputError(f"expected to write the {purpose} in {folder}, but got: {reason}{where}; {remedy}") from None


@contextlib.contextmanager
def exclusive_lock(path: Path) -> Iterator[bool]:
    """Hold a lock, which only saves double work and dies with its process; yields whether the system can lock."""
    with path.open("w") as file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
            held = True
        except (ImportError, OSError):  # some systems have no locks, nor have some network file systems
            held = False
        yield held


def check_room(folder: Path, required: int, purpose: str) -> None:
    free = shutil.disk_usage(folder).free
    if required > free:
        raise InputError(
            f"expected {required / 1e6:,.1f} MB free to {purpose} in {folder.parent}, but got {free / 1e6:,.1f} MB; "
            f"{REMEDY}"
        )


def is_archive(path: Path) -> bool:
    return path.name.lower().endswith(_SUFFIXES)


class _Header(tarfile.TarInfo):
    """A header of a tar; one that would fill the memory is refused before it is read."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type not in (*tarfile.REGULAR_TYPES, tarfile.GNUTYPE_SPARSE) and self.size > _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        header: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return header


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[tuple[Iterable[int], Callable[[Path], None]]]:
    """The sizes of the members, and what unpacks them: zipfile makes names harmless by itself, tarfile by a filter."""
    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            yield (member.file_size for member in zipped.infolist()), zipped.extractall
    else:
        with tarfile.open(archive, tarinfo=_Header) as tar:
            yield (member.size for member in tar), partial(tar.extractall, filter=partial(_plain_file, archive))


def extract(archive: Path, folder: Path) -> None:
    """Unpack a tar or zip into `folder`, and nowhere else; sizes are checked beforehand."""
    with intact(archive, "archive", "download it again"), _opened(archive) as (sizes, unpack_into):
        total, most = 0, max(SMALL, MOST_RATIO * archive.stat().st_size)
        for count, size in enumerate(sizes, 1):
            total += size
            if total > most or count > MOST_MEMBERS:
                got = f"{total / 1e9:.3g} GB" if total > most else f"over {MOST_MEMBERS:,} members"
                raise InputError(
                    f"expected at most {most / 1e9:.3g} GB in {archive} by its size, but it unpacks to {got}; "
                    "unpack it by hand if you trust it"
                )
        check_room(folder, total, f"unpack {archive}")
        unpack_into(folder)


def _plain_file(archive: Path, member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """tarfile's filter for data, without links: following them has led out of the folder before."""
    try:
        if not member.isreg() and not member.isdir():
            raise tarfile.SpecialFileError(member)
        return tarfile.data_filter(member, folder)
    except tarfile.FilterError:
        raise InputError(
            f"expected only plain files inside the folder, but {shown(member.name)} in {archive} is none; do not use it"
        ) from None
