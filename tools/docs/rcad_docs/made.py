"""Parts of written pages that are made at build time: a line `<!-- made: NAME -->` becomes what NAME makes.

Where no site is built, as on a code host, readers see what stands between that line and `<!-- end -->`, if anything.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from rcad_docs import evidence, figures, summary

_PLACE = re.compile(
    r"^<!-- made: (?P<name>[a-z0-9 -]+?)(?: \((?P<argument>[^)]+)\))? -->$(?:\n[^\n]+\n<!-- end -->$)?", re.MULTILINE
)
MAKERS: dict[str, Callable[[Path, str, str], str]] = {
    "geometry": lambda root, folder, argument: figures.geometry(),
    "window of alpha": lambda root, folder, argument: figures.window(root),
    "does it help": lambda root, folder, argument: summary.does_it_help(root),
    "count of verdicts": lambda root, folder, argument: summary.verdicts(root),
    "cost of a step": lambda root, folder, argument: summary.cost(root),
    "all step times": lambda root, folder, argument: "All step times: [cost of a step](evidence/cost-of-a-step.md).",
    "memory": lambda root, folder, argument: summary.memory(root),
    "scaling": lambda root, folder, argument: evidence.scaling(root, folder),
    "attack": lambda root, folder, argument: summary.attack(root),
    "damages": lambda root, folder, argument: summary.damages(root),
    "headline claims": lambda root, folder, argument: summary.headlines(root),
    "picture": lambda root, folder, argument: evidence.picture(root, argument, folder),
    "table": lambda root, folder, argument: evidence.table(root, argument),
}


def fill(text: str, page: str, root: Path) -> str:
    """The page with its made parts.

    Args:
        text: Markdown.
        page: the page's address in the site.
        root: the repository.
    """
    folder = posixpath.relpath(f"{evidence.FOLDER}/figures", posixpath.dirname(page) or ".")

    def make(found: re.Match[str]) -> str:
        return MAKERS[found["name"]](root, folder, found["argument"] or "")

    return _PLACE.sub(make, text)
