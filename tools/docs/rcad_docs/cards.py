"""The method cards as pages, and their index."""

from __future__ import annotations

import re
from pathlib import Path

from rcad_docs import table

GROUPS = {
    "RCAD": ("rcad", "rcad_text", "rcad_released"),
    "Controls": ("rcad_random", "confidence_penalty"),
    "Adversarial methods": ("adversarial_training", "adversarial_two_views", "ls_on_adv", "ada", "me_ada"),
    "Other regularisers": ("label_smoothing", "cutout", "mixup", "cutmix", "data_augmentation"),
    "Baselines and likelihoods": ("erm", "two_views", "gaussian", "bernoulli"),
}
INTRO = """# Methods

Each method has a card with its formula, the units of its parameters, its cost, what it composes with, and how it
differs from the paper. `rcad methods show NAME` prints the card in a terminal. The cost is that of the
[fused step](../glossary.md) relative to plain training, counted in passes (a forward is 1, a backward 2). ADA and
ME-ADA have an additional cost between epochs, when the training set grows.

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
