"""What a result may depend on besides its config: versions and the commit of the code."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

PACKAGES = ("rcad", "torch", "numpy")


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """The versions of Python and of the packages that are installed, without importing any."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def commit(file: Path = Path(__file__)) -> str | None:
    """The commit of the checkout that tracks `file`, with "-dirty" where tracked files were changed; else None.

    An installed package may lie in an environment inside somebody's own repository: only a tracked file counts.
    """
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return None
    return _git(file.parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(folder: Path, *arguments: str) -> str | None:
    surroundings = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env={**surroundings, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
