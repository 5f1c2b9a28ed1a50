"""Hashes for every pin of constraints.txt and for what the development environment needs besides: `make lock`.

requirements.lock has a line for each package of the environment, as pip resolves it on this system and this Python;
pins that are installed apart, or belong to extras of users, follow as comments with their hashes. A package that comes
from a build of this machine and not from an index has no hash that an index vouches for, and says so. The file names
no index.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run", "--ignore-installed")
Packages = Sequence[Mapping[str, Any]]


def resolved(*words: str) -> list[Mapping[str, Any]]:
    """What pip would install into an empty environment."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, *PIP, "--report", str(report), "-c", str(ROOT / "constraints.txt"), *words]
        subprocess.run(command, check=True)
        packages = json.loads(report.read_text())["install"]
    return [package for package in packages if package["metadata"]["name"] != "rcad"]


def line(package: Mapping[str, Any]) -> str:
    """A package with its hash; a comment where no index vouches for it."""
    name, version = package["metadata"]["name"], package["metadata"]["version"]
    pin = f"{re.sub('[-_.]+', '-', name).lower()}=={version}"
    digest = package["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
    if digest is None or "+" in version:
        return f"# {pin}: a local build, which no index has"
    return f"{pin} --hash=sha256:{digest}"


def locked(environment: Packages, pins: Packages, system: str) -> str:
    """The text of the file.

    Args:
        environment: what development needs.
        pins: every pin of constraints.txt; those that are not in the environment become comments.
    """
    needed = sorted(set(map(line, environment)))
    unused = sorted(set(map(line, pins)) - set(needed))
    head = f"# Made by `make lock` on {system}; `make test HASHES=1` installs by it."
    apart = "# Pins that are installed apart, or belong to extras of users:"
    return "\n".join([head, *needed, apart, *(f"# {pin.removeprefix('# ')}" for pin in unused)]) + "\n"


def main() -> None:
    names = [pin for pin in (ROOT / "constraints.txt").read_text().splitlines() if re.fullmatch(r"[\w.-]+==\S+", pin)]
    system = f"{platform.system()} {platform.machine()}, Python {sys.version_info.major}.{sys.version_info.minor}"
    LOCK.write_text(locked(resolved(f"{ROOT}[dev]"), resolved("--no-deps", *names), system))
    text = LOCK.read_text()
    print(f"{LOCK.name}: {text.count('--hash=')} packages with hashes, {text.count('no index has')} without")


if __name__ == "__main__":
    main()
