"""The method cards as pages, and their index."""

from __future__ import annotations

import re
from pathlib import Path

GROUPS = {
    "RCAD": ("rcad", "rcad_text", "rcad_released"),
    "Controls": ("rcad_random", "confidence_penalty"),
    "Adversarial rivals": ("adversarial_training", "adversarial_two_views", "ls_on_adv", "ada", "me_ada"),
    "Other regularisers": ("label_smoothing", "cutout", "mixup", "cutmix", "data_augmentation"),
    "What everything stands on": ("erm", "two_views", "gaussian", "bernoulli"),
}
INTRO = """# Methods

A method is a value: it prints, compares, hashes, and composes with others. Each has a card with its formula, the
units of its parameters, what it costs, what it composes with, and where it differs from the paper. `rcad methods show
NAME` prints the same card in a terminal. Cost is that of the [fused step](../glossary.md) in forward passes, a
backward counting 2, as a ratio to plain training; tests count the passes. ADA and ME-ADA pay between epochs besides,
when their set grows.

"""
_COST = re.compile(r"^\| fused \|.*\| ([\d.]+) \|$", re.MULTILINE)
_ROW = re.compile(r"^\| `(\w+)` \| `([^`]+)` \|", re.MULTILINE)


def pages(root: Path) -> dict[str, str]:
    """Every card as it stands, and the index."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted((root / "methods").glob("*.md"))}
    known = [name for names in GROUPS.values() for name in names]
    groups = dict(GROUPS)
    if rest := tuple(name for name in texts if name not in known):
        groups["Others"] = rest
    parts = [INTRO.rstrip()]
    for title, names in groups.items():
        rows = [_row(name, texts[name]) for name in names if name in texts]
        head = ["| method | defaults | cost | what it does |", "|---|---|---|---|"]
        parts.append("\n".join([f"## {title}", "", *head, *rows]))
    return {**{f"methods/{name}.md": text for name, text in texts.items()}, "methods/index.md": "\n\n".join(parts)}


def _row(name: str, text: str) -> str:
    defaults = ", ".join(f"`{key}={value}`" for key, value in _ROW.findall(text)[:2])
    cost = _COST.search(text)
    about = " ".join(text.split("\n\n")[1].split())
    return f"| [{name}]({name}.md) | {defaults} | {cost[1] if cost else ''} | {about} |"
