"""Whether the tree is ready for a release, and what is left to do: the changes of this version and the tag to set.

`make release` builds and checks the files first. Nothing is tagged, pushed or uploaded here. Beside the files it writes
the bill of materials: every package that the tests of this version ran with, with its hash.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def changes(text: str, version: str) -> str:
    """The section of a version in a changelog; raises `ValueError` where it is missing, undated or not the first."""
    title, section = re.split(r"^## ", text, flags=re.MULTILINE)[1].split("\n", 1)
    if not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", title):
        raise ValueError(f"expected CHANGELOG.md to begin with '## {version} (YYYY-MM-DD)', but got '## {title}'")
    return section.strip()


def bill(version: str, lock: str) -> dict[str, Any]:
    """The software bill of materials in the form of CycloneDX, from the text of requirements.lock.

    rcad itself bundles nothing of others: its pages hold its own style and script, and pictures with letters drawn from
    DejaVu Sans, whose licence allows it (see SECURITY.md).
    """
    packages = []
    for name, pinned, digest in re.findall(
        r"^#? ?([a-z0-9-]+)==([^ :]+)(?: --hash=sha256:([0-9a-f]{64}))?", lock, re.MULTILINE
    ):
        package = {"type": "library", "name": name, "version": pinned, "purl": f"pkg:pypi/{name}@{pinned}"}
        packages.append(package | ({"hashes": [{"alg": "SHA-256", "content": digest}]} if digest else {}))
    about = {"type": "library", "name": "rcad", "version": version, "licenses": [{"license": {"id": "MIT"}}]}
    head = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": about}}
    return {**head, "components": packages}


def main() -> int:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    try:
        section = changes((ROOT / "CHANGELOG.md").read_text(), version)
    except ValueError as error:
        print(f"not ready: {error}", file=sys.stderr)
        return 1
    if f"\nversion: {version}\n" not in (ROOT / "CITATION.cff").read_text():
        print(f"not ready: expected version {version} in CITATION.cff", file=sys.stderr)
        return 1
    (ROOT / "dist").mkdir(exist_ok=True)
    materials = ROOT / "dist" / f"rcad-{version}.cdx.json"
    materials.write_text(json.dumps(bill(version, (ROOT / "requirements.lock").read_text()), indent=1) + "\n")
    print(f"{section}\n\nReady, with {materials.name}. Left to do by hand:")
    print(f"  git tag -a v{version} -m 'rcad {version}' && git push origin v{version}")
    print(f"  twine upload dist/rcad-{version}*.whl dist/rcad-{version}.tar.gz")
    return 0


if __name__ == "__main__":
    sys.exit(main())
