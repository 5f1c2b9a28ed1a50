"""Every number that the digest of the paper's tables holds is ours, in the order in which it stands there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rcad.paper.tables import SUITES
from rcad.paper.targets import TARGETS

PAPER = Path(os.environ.get("RCAD_PAPER") or Path(__file__).parents[3] / "shared" / "PAPER.md")
SIX = ["CIFAR-100-2k", "CIFAR-100-10k", "Tiny ImageNet", "CIFAR-10", "CIFAR-100", "SVHN"]
SIZES = [f"n={n}" for n in ("500", "1,000", "2,000", "5,000", "10,000", "50,000")]
MOONS = ["d=625, sigma=0.1", "d=625, sigma=0.75", "d=1000, sigma=0.1"]
NAMES = {
    "T1": (SIX, ["ERM", "FGSM", "ADA", "ME-ADA", "RCAD"]),
    "T2": (SIX, ["ME-ADA + LS", "RCAD + LS"]),
    "T3": (["CIFAR-100-2k", "CIFAR-100-10k", "CIFAR-100"], ["ERM", "ME-ADA", "RCAD"]),
    "T4": (SIZES, ["ERM", "LS", "FGSM", "ME-ADA", "RCAD"]),
    "T5": (["top-1", "top-5"], ["pretrained", "ERM", "RCAD"]),
    "T8": ([f"{cell}, noise on all" for cell in MOONS], ["ERM", "FGSM linf", "ME-ADA", "RCAD"]),
    "T7": (["boston", "concrete", "energy", "wine", "yacht"], ["ERM", "ME-ADA", "RCAD"]),
}


@pytest.fixture(scope="module")
def digest() -> str:
    if not PAPER.is_file():
        pytest.skip("the digest of the paper is not here; set RCAD_PAPER to its path")
    text = PAPER.read_text(encoding="utf-8")
    return text[text.index("**T1 ") : text.index("**Figures**")]


def numbers(digest: str, name: str) -> list[tuple[float, float | None]]:
    """The decimal numbers below a table's title, each with its interval."""
    (text,) = re.findall(rf"\*\*{name} [^*]*\*\*(.*?)(?=\n\*\*T|$)", digest, flags=re.DOTALL)
    found = re.findall(r"(\d+\.\d+)(?:±(\d+\.\d+))?", text)
    return [(float(mean), float(half) if half else None) for mean, half in found]


@pytest.mark.parametrize("name", NAMES)
def test_means_and_intervals(name: str, digest: str) -> None:
    table, (columns, rows) = TARGETS[name].printed, NAMES[name]
    assert list(table) == columns
    assert all(list(cells) == rows for cells in table.values())
    cells = [cell for column in table.values() for cell in column.values()]
    found = [pair for pair in numbers(digest, name) if name != "T8" or pair[0] not in (0.1, 0.75)]  # its sigmas
    assert [(cell.mean, cell.half) for cell in cells] == found
    assert {cell.n for cell in cells} == {{"T5": 7, "T7": None, "T8": None}.get(name, 10)}


def test_attacked_models_are_those_of_t1(digest: str) -> None:
    means, halves, table = [], 0.0, SUITES["T6"].published
    for name in ("CIFAR-100-2k", "CIFAR-100", "CIFAR-10"):
        clean, attacked = table[f"{name}, clean"], table[f"{name}, attacked"]
        assert clean == TARGETS["T1"].printed[name]
        means += [mean for row in clean for mean in (clean[row].mean, attacked[row].mean)]
        halves += sum(one.half or 0 for one in attacked.values())
    assert means == [mean for mean, _ in numbers(digest, "T6")]
    assert halves == pytest.approx(0.47 + 0.23 + 0.18)
