"""Files that are either the old one or the new one, whatever happens in between, a power cut included."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rcad.errors import InputError

_TEMP = ".*.partial"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to: it takes the place of `path` at the end, or vanishes on an error."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise InputError(
            f"expected {path} to be writable, but got: {error.strerror or error}; check the folder and the disk"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, or one line that says why not."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"expected {path} to be UTF-8 text, but got the byte 0x{error.object[error.start]:02x} at position "
            f"{error.start}; save it as UTF-8"
        ) from None
    except OSError as error:
        raise InputError(f"expected {path} to be a readable file, but got: {error.strerror or error}") from None


def make_folder(folder: Path) -> None:
    """Create `folder` and its parents so that they outlast a power cut."""
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            sync_folder(folder.parent)
    except OSError as error:
        raise InputError(
            f"expected {folder} to be a folder that can be written, but got: {error.strerror or error}; choose another"
        ) from None


def ready_folder(folder: Path) -> None:
    """Create `folder` and see that files can be written there: before long work, not after it."""
    make_folder(folder)
    check_folder(folder)


def check_folder(folder: Path) -> None:
    """See that files can be written to `folder`, or to the nearest folder above that there is; nothing is left."""
    there = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"0")
    except OSError as error:
        raise InputError(
            f"expected {folder} to be a folder that can be written, but got: {error.strerror or error}; choose another"
        ) from None


def leftovers(folder: Path) -> list[Path]:
    """What interrupted writes left at any depth below `folder`."""
    return sorted(path for path in folder.rglob(_TEMP) if path.is_file())


def sync_folder(folder: Path) -> None:
    """Make a renaming in `folder` last."""
    with contextlib.suppress(OSError):  # some file systems do not sync folders; the renaming itself stands
        _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
