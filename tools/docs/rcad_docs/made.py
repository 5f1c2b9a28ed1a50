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
    "geometry": lambda root, *_: figures.geometry(),
    "window of alpha": lambda root, *_: figures.window(root),
    "does it help": lambda root, *_: summary.does_it_help(root),
    "count of verdicts": lambda root, *_: summary.verdicts(root),
    "cost of a step": lambda root, *_: summary.cost(root),
    "all step times": lambda *_: "All step times: [cost of a step](evidence/cost-of-a-step.md).",
    "memory": lambda root, *_: summary.memory(root),
    "scaling": lambda root, folder, _: evidence.scaling(root, folder),
    "attack": lambda root, *_: summary.attack(root),
    "damages": lambda root, *_: summary.damages(root),
    "headline claims": lambda root, *_: summary.headlines(root),
    "picture": lambda root, folder, name: evidence.picture(root, name, folder),
    "table": lambda root, _, title: evidence.table(root, title),
}
"""By name: what makes a part, from the repository, the folder of pictures and the argument."""


def fill(text: str, page: str, root: Path) -> str:
    """The page with its made parts.

    Args:
        text: Markdown.
        page: the page's address in the site.
        root: the repository.
    """
    folder = posixpath.relpath(f"{evidence.FOLDER}/figures", posixpath.dirname(page) or ".")

    def make(place: re.Match[str]) -> str:
        return MAKERS[place["name"]](root, folder, place["argument"] or "")

    return _PLACE.sub(make, text)
