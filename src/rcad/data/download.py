"""Downloads that can be cut and continued: HTTP Range, a checksum, and an atomic rename at the end."""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request
from pathlib import Path

from rcad.data.dataset import Progress, no_progress
from rcad.data.files import DISK_ERRORS, check_md5, exclusive_lock, writing
from rcad.data.registry import OFFICIAL, Remote
from rcad.errors import InputError

_BLOCK = 1 << 18
_ATTEMPTS = 4
"""How often a lost connection is taken up again before giving up."""
_PATIENCE = 30.0
"""Seconds without a byte that count as a lost connection."""


def fetch(name: str, data_dir: Path | str, *, extra: bool = False, progress: Progress = no_progress) -> list[Path]:
    """Download a known image set's official files to data_dir/<name>/; files already there are checked and kept.

    Args:
        extra: also the optional files (SVHN's extra digits, 1.3 GB).
        progress: called with (bytes done, bytes in all) of the file under way; the total is 0 where unknown.
    """
    if name not in OFFICIAL:
        raise InputError(f"expected a data set that can be fetched ({', '.join(OFFICIAL)}), but got {name!r}")
    remotes = (*OFFICIAL[name].files, *(OFFICIAL[name].optional if extra else ()))
    return [fetch_file(remote, Path(data_dir) / name, progress=progress) for remote in remotes]


def fetch_file(remote: Remote, folder: Path, *, progress: Progress = no_progress) -> Path:
    """Download one file into `folder`, continuing a `.part` file that an earlier attempt left there."""
    if not remote.url.startswith(("http://", "https://")):
        raise InputError(f"expected an http or https address, but got {remote.url!r}")
    target = folder / remote.filename
    again = "delete it and fetch it again"
    remedy = "free some space there, or pass another data_dir= (--data-dir)"
    with writing(folder, "download", remedy), exclusive_lock(folder / f".{target.name}.lock"):
        if target.exists():
            check_md5(target, remote.md5, again)
            return target
        part = target.with_name(f"{target.name}.part")
        _receive_all(remote.url, part, target, progress)
        try:
            check_md5(part, remote.md5, f"fetch it again; the server's file may have changed ({remote.url})")
        except InputError:
            part.unlink()  # continuing a wrong file could never succeed
            raise
        os.replace(part, target)
    return target


def _receive_all(url: str, part: Path, target: Path, progress: Progress) -> None:
    reason = "the connection was lost"
    for attempt in range(_ATTEMPTS):
        try:
            if _receive(url, part, progress):
                return
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code} {error.reason}"
            if error.code < 500:  # asking again changes nothing
                break
        except (OSError, http.client.HTTPException) as error:
            if getattr(error, "errno", None) in DISK_ERRORS:
                raise
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        if attempt + 1 < _ATTEMPTS:
            time.sleep(min(0.1 * 4**attempt, 5.0))
    raise InputError(
        f"expected to download {url}, but got: {reason}; try again to continue, or put the file at {target} by hand"
    )


def _receive(url: str, part: Path, progress: Progress) -> bool:
    """One connection; returns whether the file is complete."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "rcad"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=_PATIENCE)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        # Nothing is left to send: the part is whole, or longer than the file and useless.
        whole = error.headers.get("Content-Range", "") == f"bytes */{have}"
        if not whole:
            part.unlink()
        return whole
    with response:
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if response.status == 206 and not resumed:
            part.unlink()
            return False
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else 0
        with part.open("ab" if resumed else "wb") as out:
            while block := response.read(_BLOCK):
                out.write(block)
                have += len(block)
                progress(have, total)
    # A server that cuts the connection ends the stream like one that is done; only the length tells them apart.
    return total == 0 or have == total
