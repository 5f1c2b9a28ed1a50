"""The method cards as pages, and their index."""

from __future__ import annotations

import re
from pathlib import Path

from rcad_docs import table

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
    header, parts = ["method", "defaults", "cost", "what it does"], [INTRO.rstrip()]
    for title, names in GROUPS.items():
        parts.append(f"## {title}\n\n{table(header, [_row(name, texts[name]) for name in names])}")
    return {**{f"methods/{name}.md": text for name, text in texts.items()}, "methods/index.md": "\n\n".join(parts)}


def _row(name: str, text: str) -> list[str]:
    defaults = ", ".join(f"`{key}={value}`" for key, value in _ROW.findall(text)[:2])
    cost = _COST.search(text)
    about = " ".join(text.split("\n\n")[1].split())
    return [f"[{name}]({name}.md)", defaults, cost[1] if cost else "", about]
