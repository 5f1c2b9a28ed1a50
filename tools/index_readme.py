"""README.md for a package index: links into the repository become absolute. A hook of the build (pyproject.toml).

The address of the repository is said once, in the hook's table of pyproject.toml, and RCAD_REPOSITORY in the
environment replaces it. Where there is none, links to files become plain text: an index has nothing to lead them to.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>(?![a-z]+:|#)[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
SETUP = re.compile(r"^<!-- .*?-->\n+", re.MULTILINE | re.DOTALL)


def absolute(text: str, repository: str, version: str) -> str:
    """Markdown with links to files of the repository at a version's tag, or plain text where no repository is known."""

    def change(link: re.Match[str]) -> str:
        if not repository:
            return "" if link["image"] else link["text"]
        kind = "raw" if link["image"] else "blob" if Path(link["target"]).suffix else "tree"
        return f"{link['image']}[{link['text']}]({repository}/{kind}/v{version}/{link['target']}{link['anchor'] or ''})"

    return LINK.sub(change, SETUP.sub("", text))


def urls(repository: str) -> dict[str, str]:
    """The project's addresses as an index shows them."""
    if not repository:
        return {}
    pages = {"Issues": "issues", "Changes": "blob/main/CHANGELOG.md", "Documentation": "tree/main/docs"}
    return {"Repository": repository, **{name: f"{repository}/{page}" for name, page in pages.items()}}


class IndexReadme(MetadataHookInterface):
    """What hatchling calls for the parts of the metadata that pyproject.toml calls dynamic."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        repository = os.environ.get("RCAD_REPOSITORY", self.config["repository"]).rstrip("/")
        readme = Path(self.root) / "README.md"
        text = absolute(readme.read_text(encoding="utf-8"), repository, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls(repository)


def get_metadata_hook() -> type[IndexReadme]:
    return IndexReadme
