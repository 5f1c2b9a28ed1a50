"""Links between files of the repository, turned into links between pages of the site.

A page keeps its path; only "docs/" falls away from the front. So a link that works on a code host works here too.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_FENCE = re.compile(r"^(```+|~~~+).*?^\1[ ]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?P<after>\))")
_FOREIGN = re.compile(r"[a-z]+:|/|#")


def address_of(path: str, root: Path) -> str:
    """The address in the site of a file or folder of the repository."""
    path = path.removeprefix("docs/")
    if path.startswith("examples/") and path.endswith(".py"):
        return path.removesuffix(".py") + ".md"
    if (root / path).is_dir() or path in ("methods", "examples"):
        return f"{path.rstrip('/')}/{'README.md' if (root / path / 'README.md').is_file() else 'index.md'}"
    return path


def rewrite(text: str, source: str, root: Path) -> str:
    """The page's text with its relative links as links between pages.

    Args:
        text: Markdown.
        source: its path in the repository.
        root: the repository.
    """
    folder = posixpath.dirname(address_of(source, root))

    def change(link: re.Match[str]) -> str:
        target = link["target"]
        if _FOREIGN.match(target):
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if not path.startswith("docs/") and not (root / path).exists():
            return link[0]  # a made page, or a mistake that MkDocs reports
        address = posixpath.relpath(address_of(path, root), folder or ".")
        return f"{link['before']}{address}{link['anchor'] or ''}{link['after']}"

    return outside_fences(text, lambda part: _LINK.sub(change, part))


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Text changed everywhere but in fenced code."""
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def media(root: Path, pages: Mapping[str, str]) -> list[str]:
    """The files outside docs/ that pages link to and that are no pages: pictures, records."""
    files = set()
    for source, text in pages.items():
        for link in _LINK.finditer(_FENCE.sub("", text)):
            if _FOREIGN.match(link["target"]):
                continue
            path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["target"]))
            if (root / path).is_file() and not path.startswith("docs/") and not path.endswith((".md", ".py")):
                files.add(path)
    return sorted(files)


def expand(nav: Any, pages: Sequence[str], title: Callable[[str], str]) -> Any:
    """The navigation with every entry "folder/" replaced by the pages of that folder, the index first."""
    if isinstance(nav, list):
        entries = [expand(entry, pages, title) for entry in nav]
        return [item for entry in entries for item in (entry if isinstance(entry, list) else [entry])]
    if isinstance(nav, dict):
        return {name: expand(value, pages, title) for name, value in nav.items()}
    if not nav.endswith("/"):
        return nav
    inside = sorted(
        (page for page in pages if page.startswith(nav)),
        key=lambda page: posixpath.basename(page) not in ("index.md", "README.md"),
    )
    return [page if page == f"{nav}index.md" else {title(page): page} for page in inside]
