"""Parts of written pages that are made from the records.

A line `<!-- made: NAME -->` becomes what NAME makes when the site is built; on a code host readers see what stands
between it and `<!-- end -->`, if anything. Tables between `<!-- kept: NAME -->` and `<!-- end -->` are in the
repository; `make pages` writes them anew.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from rcad_docs import evidence, few_labels, figures, summary

_PLACE = re.compile(
    r"^<!-- (?P<kind>made|kept): (?P<name>[a-z0-9 -]+?)(?: \((?P<argument>[^)]+)\))? -->$"
    r"(?:\n(?P<text>(?:(?!<!--).*\n)*)<!-- end -->$)?",
    re.MULTILINE,
)
KEPT: dict[str, Callable[[Path], str]] = {
    "results in short": few_labels.in_short,
    "few labels tuned": few_labels.tuned,
    "few labels with the paper settings": few_labels.paper_settings,
    "count of verdicts": summary.verdicts,
    "main claims": summary.headlines,
    "beside the paper": summary.beside_the_paper,
    "attack in short": summary.attack_in_short,
}
MAKERS: dict[str, Callable[[Path, str, str], str]] = {
    "geometry": lambda root, *_: figures.geometry(),
    "window of alpha": lambda root, *_: figures.window(root),
    "does it help": lambda root, *_: summary.does_it_help(root),
    "cost of a step": lambda root, *_: summary.cost(root),
    "all step times": lambda *_: "All step times: [cost of a step](evidence/cost-of-a-step.md).",
    "memory": lambda root, *_: summary.memory(root),
    "scaling": lambda root, folder, _: evidence.scaling(root, folder),
    "attack": lambda root, *_: summary.attack(root),
    "damages": lambda root, *_: summary.damages(root),
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
        if place["kind"] == "kept":
            return place["text"].strip()
        return MAKERS[place["name"]](root, folder, place["argument"] or "")

    return _PLACE.sub(make, text)


def renew(text: str, root: Path) -> str:
    """The page with its kept tables made from the records of today."""

    def make(place: re.Match[str]) -> str:
        if place["kind"] == "made":
            return place[0]
        return f"<!-- kept: {place['name']} -->\n\n{KEPT[place['name']](root)}\n\n<!-- end -->"

    return _PLACE.sub(make, text)


def written(root: Path) -> list[Path]:
    """The pages that people write."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


if __name__ == "__main__":
    home = Path(__file__).parents[3]
    for page in written(home):
        before = page.read_text(encoding="utf-8")
        if (after := renew(before, home)) != before:
            page.write_text(after, encoding="utf-8")
            print(page.relative_to(home))
