"""A file of tensors that can tell whether it is what was written: its header carries the sha256 of all its bytes.

Where the sum itself stands, zeros are summed. Files from before there were sums have none, and are taken as they are.
No torch here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import BinaryIO

KEY = "checkpoint"
"""Under which the header holds, as JSON, its sum and what is said beside the tensors."""
NO_SUM = "0" * 64
"""Stands in the header until the sum is known."""
_SUM_IN_HEADER = re.compile(rb'\{\\"sha256\\": \\"([0-9a-f]{64})\\"')
_LONGEST_HEADER = 100_000_000
_PART = 1 << 20


def seal_tensors(path: Path) -> None:
    """Put the sum of a file of tensors, in whose header NO_SUM stands, into that place."""
    with path.open("r+b") as file:
        found = _place(file.read(_header_end(file.read(8))))
        assert found is not None
        total = _file_sum(file, found[0])
        file.seek(found[0])
        file.write(total.encode())


def check_tensors(path: Path) -> None:
    """That every byte of a file of tensors is the one that was written; of an older one, that its length is right.

    Raises:
        ValueError: says what is wrong.
    """
    with path.open("rb") as file:
        header = file.read(_header_end(file.read(8)))
        found = _place(header)
        if found is None:
            _check_older(header, file.seek(0, os.SEEK_END))
        elif found[1] != _file_sum(file, found[0]):
            raise ValueError("its bytes are not those that were written")


def _check_older(header: bytes, size: int) -> None:
    """A file from before there were sums says nothing of one, and ends where its last tensor does."""
    try:
        plain = json.loads(header)
        about = plain.pop("__metadata__", {})
        has_sum = any("version" != name != "meta" for name in json.loads(about.get(KEY, "{}")))
        end = 8 + len(header) + max(one["data_offsets"][1] for one in plain.values())
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise ValueError("no header of tensors") from None
    if has_sum or size != end:
        raise ValueError("a checksum that was changed" if has_sum else "another length than its header says")


def _header_end(length: bytes) -> int:
    return min(int.from_bytes(length, "little"), _LONGEST_HEADER)


def _place(header: bytes) -> tuple[int, str] | None:
    """Where the sum stands in the file, and what it says; None where there is none."""
    found = _SUM_IN_HEADER.search(header)
    return None if found is None else (8 + found.start(1), found[1].decode())


def _file_sum(file: BinaryIO, place: int) -> str:
    """Of all bytes, those at `place` taken as NO_SUM."""
    total = hashlib.sha256()
    file.seek(0)
    total.update(file.read(place))
    file.seek(place + len(NO_SUM))
    total.update(NO_SUM.encode())
    while part := file.read(_PART):
        total.update(part)
    return total.hexdigest()
