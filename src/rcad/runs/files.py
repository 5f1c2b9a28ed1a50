"""Files that can be trusted: either the old one or the new one, whatever happens between. Strict JSON, records, logs.

A record is a JSON object that says what `kind` it is and by which `schema` it was written. Each kind is read by one
`Kind`, once, at the border: behind it there are typed values.

A file can tell whether it is what was written: an object carries the sha256 of its other members, a file of tensors in
its header that of all its bytes, with zeros where the sum itself stands. Older objects have no sum.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import math
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from rcad.errors import InputError, shown

T = TypeVar("T")
SUM = "sha256"  # the key under which an object in a file holds the checksum of its other members
STAMP = ("kind", "schema", SUM)  # keys of a record's file that are not the record's own
KEY = "checkpoint"
"""The key of a header under which JSON holds the checksum, the version and what goes with the tensors."""
NO_SUM = "0" * 64  # stands in the header until the sum is known
_SUM_IN_HEADER = re.compile(rb'\{\\"sha256\\": \\"([0-9a-f]{64})\\"')
_LONGEST_HEADER = 100_000_000
_PART = 1 << 20
_PARTIAL = re.compile(r"\..+\.[0-9a-f]{12}\.partial")  # names that `replacing` makes, and nobody else


@contextlib.contextmanager
def expecting(path: Path, expected: str) -> Iterator[None]:
    """Turns an OSError inside into one line: what `path` was expected to be, why it is not, what to do about it."""
    try:
        yield
    except OSError as error:
        expected, _, remedy = expected.partition("; ")
        reason = "; ".join(filter(None, [str(error.strerror or error), remedy]))
        raise InputError(f"expected {path} to be {expected}, but got: {reason}") from None


def denied(error: InputError) -> bool:
    """Whether a file was refused, not damaged: another user's, perhaps."""
    return isinstance(error.__context__, PermissionError)


class DamagedError(InputError):
    """A file that is not what was written: in words, and what heals it."""

    def __init__(self, path: Path, words: str, remedy: str) -> None:
        super().__init__(f"{words}; {remedy}")
        self.path, self.words = path, words


class OtherVersionError(InputError):
    """A record that a later version of the package has written."""


WRITABLE = "writable; check the folder and the disk"
READABLE = "a readable file"
LARGEST = 256 << 20  # bytes of a text that is read: /dev/zero has no end
FOLDER = "a folder that can be written; choose another"


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to: it takes the place of `path` at the end, or vanishes on an error."""
    _sweep(path.parent)
    temporary = path.with_name(f".{path.name}.{_machine()}{os.getpid():06x}{next(_writes) % 4096:03x}.partial")
    try:
        with expecting(path, WRITABLE):
            yield temporary
            _sync(temporary)
            os.replace(temporary, path)
            sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, or one line that says why not."""
    with expecting(path, READABLE), path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise InputError(f"expected {path} to hold at most {LARGEST >> 20} MiB, but it holds more; name another file")
    try:
        # With line ends as a text file has them on every system.
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise InputError(
            f"expected {path} to be UTF-8 text, but got the byte 0x{error.object[error.start]:02x} at position "
            f"{error.start}; save it as UTF-8"
        ) from None


def make_folder(folder: Path) -> None:
    """Create `folder` and its parents so that they outlast a power cut."""
    with expecting(folder, FOLDER):
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            sync_folder(folder.parent)


def ready_folder(folder: Path) -> None:
    """Create `folder` and see that files can be written there: before long work, not after it."""
    make_folder(folder)
    check_folder(folder)


def check_folder(folder: Path) -> None:
    """See that files can be written to `folder`, or to the nearest folder above that there is; nothing is left."""
    nearest = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    with expecting(folder, FOLDER), tempfile.TemporaryFile(dir=nearest) as file:
        file.write(b"0")


_writes = itertools.count()
_swept: set[Path] = set()


@functools.cache
def _machine() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:3]


def _sweep(folder: Path) -> None:
    """Remove what writers that were killed left in a folder; once in a process, when it first writes there."""
    if (folder := folder.absolute()) not in _swept:
        _swept.add(folder)
        for path in folder.glob(".*.partial"):
            with contextlib.suppress(OSError):
                if _PARTIAL.fullmatch(path.name) and _abandoned(path):
                    path.unlink()


def _abandoned(path: Path) -> bool:
    """Whether nobody can be writing to it: its process is gone or, on another machine, has not touched it for a day."""
    token = path.name.split(".")[-2]
    if token[:3] != _machine() or os.name != "posix":
        return time.time() - path.stat().st_mtime > 86_400
    try:
        os.kill(int(token[3:9], 16), 0)
    except OSError as error:  # where it is not another user's
        return isinstance(error, ProcessLookupError)
    return False


def leftovers(folder: Path) -> list[Path]:
    """What interrupted writes left at any depth below `folder`."""
    return sorted(path for path in folder.rglob(".*.partial") if _PARTIAL.fullmatch(path.name) and path.is_file())


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


def dumps(value: Any, *, indent: int | None = None) -> str:
    """The value as JSON; a number that is not finite must have become None before (see `finite_or_none`)."""
    return json.dumps(value, indent=indent, allow_nan=False)


def loads(text: str, source: str) -> Any:
    """The value of JSON text, whose numbers are all finite as floats; `source` names the file in a message."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        reason = "lists nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise InputError(
            f"expected {source} to be valid JSON, but got: {reason}; restore the file or remove it"
        ) from None


def sealed(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The object with the sum of its members as the last of them."""
    return {**plain, SUM: hashlib.sha256(dumps(plain).encode()).hexdigest()}


def unsealed(plain: Any) -> Any:
    """The object without its sum, which must be that of the rest; one from before there were sums is taken."""
    if not isinstance(plain, dict) or SUM not in plain:
        return plain
    bare = {key: value for key, value in plain.items() if key != SUM}
    if sealed(bare) != plain:
        raise InputError("expected values that match their checksum, but they have changed; restore the file")
    return bare


def write_sealed(path: Path, plain: Mapping[str, Any]) -> None:
    write_text(path, dumps(sealed(plain), indent=1) + "\n")


def seal_tensors(path: Path) -> None:
    """Put the sum of a file of tensors, in whose header NO_SUM stands, into that place."""
    with path.open("r+b") as file:
        seal = _find_seal(file)
        assert seal is not None
        total = _file_sum(file, seal)
        file.seek(8 + seal.start(1))
        file.write(total)


def check_tensors(path: Path) -> None:
    """Raises a ValueError unless each byte of a file of tensors is as it was written."""
    with path.open("rb") as file:
        seal = _find_seal(file)
        if seal is None or seal[1] != _file_sum(file, seal):
            raise ValueError("its bytes are not those that were written")


def _find_seal(file: BinaryIO) -> re.Match[bytes] | None:
    """Where the sum stands in the header of a file of tensors, behind the eight bytes of the header's length."""
    return _SUM_IN_HEADER.search(file.read(min(int.from_bytes(file.read(8), "little"), _LONGEST_HEADER)))


def _file_sum(file: BinaryIO, seal: re.Match[bytes]) -> bytes:
    """Of all bytes, those of the seal taken as NO_SUM."""
    file.seek(0)
    total = hashlib.sha256(file.read(8 + seal.start(1)) + NO_SUM.encode())
    file.seek(len(NO_SUM), os.SEEK_CUR)
    while part := file.read(_PART):
        total.update(part)
    return total.hexdigest().encode()


def set_aside(path: Path) -> Path:
    """Take a file, or a folder, out of the way and keep it: `x.json` becomes `x.json.aside`. The new name."""
    names = (path.with_name(f"{path.name}.aside{'' if n == 1 else f'-{n}'}") for n in itertools.count(1))
    aside = next(name for name in names if not os.path.lexists(name))
    with expecting(path, "removable"):
        os.replace(path, aside)
        sync_folder(path.parent)
    return aside


def finite_or_none(value: Any) -> Any:
    """The value with None for every number that is not finite, at any depth; tuples become lists."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite_or_none(item) for key, item in value.items()}
    return [finite_or_none(item) for item in value] if isinstance(value, list | tuple) else value


def _refuse(constant: str) -> None:
    raise ValueError(f"the constant {constant}")


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError(f"a number that is too large, {text[:20]}")
    return value


def _whole(text: str) -> int:
    if len(text) > sys.float_info.max_10_exp:
        raise ValueError(f"a whole number of {len(text)} digits")
    return int(text)


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of record, and how a file of it becomes a value.

    Its files say `name` under `kind`, but for some of schema 1; `schema` is the newest, which is written. `build` takes
    the object without these, and its schema, and raises an InputError.
    """

    name: str
    schema: int
    build: Callable[[dict[str, Any], int], T]

    def stamp(self, plain: Mapping[str, Any]) -> dict[str, Any]:
        return {"kind": self.name, "schema": self.schema, **plain}

    def read(self, path: Path, source: str = "") -> T:
        """The record in a file; one line says what is wrong with it, or with `source`, as messages may call it."""
        source = source or str(path)
        return self.parse(loads(read_text(path), source), source)

    def parse(self, plain: Any, source: str) -> T:
        """The record in an object of parsed JSON; `source` names its file in messages."""
        try:
            if not isinstance(plain, dict):
                raise InputError(f"expected a record to be an object, but got {shown(plain)}")
            kind, schema = plain.get("kind"), plain.get("schema")
            if kind != self.name and not (kind is None and schema == 1):
                raise InputError(f"expected a record of kind {self.name!r}, but got {shown(kind)}; name another file")
            if not isinstance(schema, int) or isinstance(schema, bool) or not 1 <= schema <= self.schema:
                raise (OtherVersionError if isinstance(schema, int) and schema > self.schema else InputError)(
                    f"expected a record of schema {self.schema}, but got {shown(schema)}; "
                    "read it with the version of rcad that wrote it"
                )
            value = self.build({key: value for key, value in plain.items() if key not in STAMP}, schema)
            unsealed(plain)  # last: of a value that cannot be, the words above say more
            return value
        except InputError as error:
            kind = OtherVersionError if isinstance(error, OtherVersionError) else InputError
            raise kind(f"in {source}: {error}") from None


def append_log(path: Path, event: Mapping[str, Any]) -> None:
    """One event more at the end of a log, whole; numbers that are not finite become null."""
    line = memoryview((dumps(finite_or_none(event)) + "\n").encode())
    with expecting(path, "writable"), path.open("ab", buffering=0) as file:
        while line:  # a write may take only a part
            line = line[file.write(line) :]


def write_log(path: Path, events: Iterable[Mapping[str, Any]]) -> None:
    """A whole log in the place of the one that is there."""
    write_text(path, "".join(dumps(finite_or_none(event)) + "\n" for event in events))


def read_log(path: Path) -> list[dict[str, Any]]:
    """The events of a log, without a torn last line; a file that is not there has none."""
    if not path.exists():
        return []
    events = []
    for number, line in enumerate(read_text(path).split("\n")[:-1], 1):
        events.append(loads(line, f"{path}, line {number}"))
        if not isinstance(events[-1], dict):
            raise InputError(f"expected an object in {path}, line {number}, but got {shown(events[-1])}")
    return events
