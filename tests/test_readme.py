"""The README's code runs, and its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from support import CLASSES, images, norm_net

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_five_lines_train_a_model() -> None:
    model, (x, y) = norm_net(), images(32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = torch.nn.functional.cross_entropy(model(x), y).item()
    exec(blocks("python")[0], {"loader": [(x, y)] * 20, "model": model, "optimizer": optimizer})
    assert torch.nn.functional.cross_entropy(model(x), y).item() < before - 0.01


def test_the_composition_runs() -> None:
    x, y = images()
    model = norm_net()
    names = {"x": x, "y": y, "model": model}
    exec(blocks("python")[1].replace("classes=10", f"classes={CLASSES}"), names)
    assert names["target"].shape == (len(y), CLASSES)
    assert not torch.equal(names["x"], x)
    assert model[0].weight.grad is not None


def test_the_first_screen_says_what_it_is_and_how_it_stands() -> None:
    first = README[:2600]
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
