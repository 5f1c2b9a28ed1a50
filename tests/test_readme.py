"""The README says how things stand, and what it names exists. Its code runs in test_documents.py."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_first_screen_says_what_it_is_and_how_it_stands() -> None:
    first = re.sub(r"<!--.*?-->\n+", "", README, flags=re.DOTALL)[:2600]  # what a reader sees
    assert "drop-in loss" in first
    assert "rcad.RCAD(" in first
    assert "## Status" in first
    assert "Not settled" in first


def test_links_and_targets_exist() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / link).exists(), link
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_method_is_named() -> None:
    from rcad import METHODS

    assert all(f"`{name}`" in README for name in METHODS)
