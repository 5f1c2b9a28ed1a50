"""Tar and zip archives, read with suspicion: no member may leave the folder it is unpacked into."""

from __future__ import annotations

import contextlib
import lzma
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

from rcad.data.cache import cache_root
from rcad.data.files import DISK_ERRORS, exclusive_lock, make_folder, writing
from rcad.data.fingerprint import fingerprint
from rcad.errors import InputError

_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_REMEDY = "pass cache_dir= (--cache-dir) or set RCAD_CACHE"
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, NotImplementedError)


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
    except (*_BROKEN, OSError, RuntimeError, KeyError) as error:  # RuntimeError: an encrypted zip
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            raise  # the disk's fault, not the archive's
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        raise InputError(
            f"expected {archive} to be a whole archive, but it cannot be read ({reason}); download it again"
        ) from None


def check_member(archive: Path, name: str, *, regular: bool) -> None:
    """Refuse a member that is absolute, climbs with "..", or is neither a file nor a folder."""
    parts = (*PurePosixPath(name).parts, *PureWindowsPath(name).parts)
    absolute = PurePosixPath(name).is_absolute() or bool(PureWindowsPath(name).drive or PureWindowsPath(name).root)
    if absolute or ".." in parts or "\0" in name:
        problem = "leaves the folder"
    elif not regular:
        problem = "is a link or device"
    else:
        return
    raise InputError(
        f"expected only files inside the folder in {archive}, but member {name!r} {problem}; do not use this archive"
    )


def zip_names(archive: Path) -> list[str]:
    """The names of a zip's files (not its folders), every member checked."""
    with readable(archive), zipfile.ZipFile(archive) as opened:
        names = []
        for member in opened.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            check_member(archive, member.filename, regular=kind in (0, stat.S_IFREG, stat.S_IFDIR))
            if not member.is_dir():
                names.append(member.filename)
        return names


def tar_files(archive: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of a tar's files whose name ends so; every member checked, nothing written to disk."""
    with readable(archive), tarfile.open(archive) as opened:
        for member in opened:
            check_member(archive, member.name, regular=member.isreg() or member.isdir())
            if member.isreg() and member.name.endswith(suffixes):
                file = opened.extractfile(member)
                assert file is not None
                yield member.name, file.read()


def extract(archive: Path, folder: Path) -> None:
    """Unpack a tar or zip into `folder`. All members are checked before the first is written.

    Permissions, owners and times of the archive are not kept: they are no part of the data.
    """
    opening = _zip_members if archive.name.lower().endswith(".zip") else _tar_members
    with readable(archive):
        required = sum(length for _, length in opening(archive, None))
    free = shutil.disk_usage(folder).free
    if required > free:
        raise InputError(
            f"expected {required / 1e9:.1f} GB free to unpack {archive} in {folder}, but got {free / 1e9:.1f} GB; "
            f"{_REMEDY}"
        )
    with readable(archive):
        for _ in opening(archive, folder):
            pass


def unpacked(archive: Path, cache_dir: Path | str | None = None) -> Path:
    """The folder that holds the archive's files, unpacked into the cache the first time.

    Where everything lies in one top folder, that folder is returned.
    """
    root = cache_root(cache_dir)
    for folder in (root / "unpacked", root / "fingerprints"):
        make_folder(folder, "cache", _REMEDY)
    target = root / "unpacked" / fingerprint([archive], archive.parent, root / "fingerprints")[:32]
    lock = target.with_name(f".{target.name}.lock")
    with writing(root, "cache", f"free some space there, or {_REMEDY}"), exclusive_lock(lock):
        if not target.is_dir():
            partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
            try:
                extract(archive, partial)
                with contextlib.suppress(OSError):  # another process was faster, where locks do not work
                    partial.rename(target)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    inside = [path for path in target.iterdir() if not path.name.startswith((".", "__MACOSX"))]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else target


def _zip_members(archive: Path, folder: Path | None) -> Iterator[tuple[str, int]]:
    names = zip_names(archive)
    with zipfile.ZipFile(archive) as opened:
        for name in names:
            if folder is not None:
                target = _place(folder, name)
                with opened.open(name) as source, target.open("wb") as out:
                    shutil.copyfileobj(source, out)
            yield name, opened.getinfo(name).file_size


def _tar_members(archive: Path, folder: Path | None) -> Iterator[tuple[str, int]]:
    with tarfile.open(archive) as opened:
        for member in opened:
            check_member(archive, member.name, regular=member.isreg() or member.isdir())
            if not member.isreg():
                continue
            source = opened.extractfile(member)
            assert source is not None
            if folder is not None:
                with source, _place(folder, member.name).open("wb") as out:
                    shutil.copyfileobj(source, out)
            yield member.name, member.size


def _place(folder: Path, name: str) -> Path:
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    return target
