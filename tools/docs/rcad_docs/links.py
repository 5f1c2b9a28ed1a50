"""Links between files of the repository, turned into links between pages of the site.

A page keeps its path; only "docs/" falls away from the front. So a link that works on a code host works here too.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    here = posixpath.dirname(address_of(source, root))

    def change(found: re.Match[str]) -> str:
        target = found["target"]
        if _FOREIGN.match(target):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if not path.startswith("docs/") and not (root / path).exists():
            return found[0]  # a made page, or a mistake that MkDocs reports
        address = posixpath.relpath(address_of(path, root), here or ".")
        return f"{found['before']}{address}{found['anchor'] or ''}{found['after']}"

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
    found = set()
    for source, text in pages.items():
        for link in _LINK.finditer(_FENCE.sub("", text)):
            if _FOREIGN.match(link["target"]):
                continue
            path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["target"]))
            if (root / path).is_file() and not path.startswith("docs/") and not path.endswith((".md", ".py")):
                found.add(path)
    return sorted(found)


def expand(nav: Any, pages: Sequence[str], title: Callable[[str], str]) -> Any:
    """The navigation with every entry "folder/" replaced by the pages of that folder, in their order."""
    if isinstance(nav, list):
        return [one for entry in nav for one in _expanded(entry, pages, title)]
    return nav


def _expanded(entry: Any, pages: Sequence[str], title: Callable[[str], str]) -> Iterable[Any]:
    if isinstance(entry, str) and entry.endswith("/"):
        yield from _folder(entry, pages, title)
    elif isinstance(entry, dict):
        ((name, value),) = entry.items()
        if isinstance(value, str) and value.endswith("/"):
            value = list(_folder(value, pages, title))
        yield {name: expand(value, pages, title)}
    else:
        yield entry


def _folder(folder: str, pages: Sequence[str], title: Callable[[str], str]) -> Iterable[Any]:
    inside = [page for page in pages if page.startswith(folder)]
    for page in sorted(inside, key=lambda page: posixpath.basename(page) not in ("index.md", "README.md")):
        yield page if page == f"{folder}index.md" else {title(page): page}
