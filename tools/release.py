"""Whether the tree is ready for a release, and what is left to do: the changes of this version and the tag to set.

`make release` builds and checks the files first. Nothing is tagged, pushed or uploaded here.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def changes(text: str, version: str) -> str:
    """The section of a version in a changelog; raises `ValueError` where it is missing, undated or not the first."""
    title, section = re.split(r"^## ", text, flags=re.MULTILINE)[1].split("\n", 1)
    if not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", title):
        raise ValueError(f"expected CHANGELOG.md to begin with '## {version} (YYYY-MM-DD)', but got '## {title}'")
    return section.strip()


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
    print(f"{section}\n\nReady. Left to do by hand:")
    print(f"  git tag -a v{version} -m 'rcad {version}' && git push origin v{version}")
    print(f"  twine upload dist/rcad-{version}*")
    return 0


if __name__ == "__main__":
    sys.exit(main())
