"""The README says how things stand, and what it names exists. Its code runs in test_pages.py."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from docs.test_project import tool
from rcad import METHODS
from rcad.data.dataset import subset
from rcad.data.small_sets import load_embedded
from rcad.models.build import build

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_it_is_read_in_three_minutes() -> None:
    """By the words outside code, tables, headings and pictures; addresses do not count."""
    text = re.sub(r"<!--.*?-->|^```.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "!", "#"))]
    assert len(re.findall(r"\w[\w'.-]*", re.sub(r"\]\([^)]*\)", "]", "\n".join(lines)))) <= 500


def _test_nll(snippet: str, seed: int) -> float:
    """NLL on the other digits of a small CNN that the snippet trained on 100 of them."""
    digits = load_embedded("digits").train
    x, y = torch.from_numpy(digits.x).float() / 255, torch.from_numpy(digits.y)
    rows = torch.from_numpy(subset(digits.y, 100, seed=seed))
    rest = torch.from_numpy(np.setdiff1d(np.arange(len(y)), rows.numpy()))
    torch.manual_seed(seed)
    model = build("small_cnn", num_outputs=10, in_shape=(1, 8, 8))
    batches = [part for _ in range(60) for part in rows[torch.randperm(100)].split(32)]
    given: dict[str, Any] = {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3)}
    exec(snippet, given | {"loader": [(x[part], y[part]) for part in batches]})
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(model.eval()(x[rest]), y[rest]))


def test_the_loop_as_it_stands_has_a_better_likelihood_than_erm_on_few_digits() -> None:
    (snippet,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "rcad.RCAD(" in block]
    plain = snippet.replace("rcad.RCAD()", "rcad.Criterion()")
    assert plain != snippet
    gains = [_test_nll(plain, seed) - _test_nll(snippet, seed) for seed in range(2)]
    assert np.mean(gains) > 0, gains


def test_the_picture_of_few_labels_is_that_of_the_records() -> None:
    pictures = tool("pictures")
    drawn = (ROOT / "docs/images/few-labels-short.svg").read_text(encoding="utf-8")
    assert drawn.endswith(pictures.numbers(pictures.few_labels())), "run python tools/pictures.py"


def test_every_method_is_named_and_targets_exist() -> None:
    assert all(f"`{name}`" in README for name in METHODS)
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_places_that_contributing_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = set(re.findall(r"`((?:src|tests|tools|docs)/[\w./]+)`", text))
    assert len(places) > 20
    assert [place for place in sorted(places) if not (ROOT / place).exists()] == []
    for name, place in re.findall(r"`(\w+)` in (?:a module of its own in )?`(src/[\w./]+\.py)`", text):
        assert re.search(rf"^(class|def) {name}\b|^{name}\b.* =", (ROOT / place).read_text(), re.MULTILINE), name
