"""Every number that the digest of the paper's tables holds is in the suites, and equal: all cells are counted."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rcad.paper import published

PLACES = [os.environ.get("RCAD_PAPER", ""), Path(__file__).parents[3] / "shared" / "PAPER.md"]
SHORT = {
    "C100-2k": "CIFAR-100-2k",
    "C100-10k": "CIFAR-100-10k",
    "Tiny": "Tiny ImageNet",
    "C10": "CIFAR-10",
    "C100": "CIFAR-100",
}
Cells = dict[tuple[str, str], tuple[float, float | None]]


@pytest.fixture(scope="module")
def digest() -> str:
    for place in PLACES:
        if place and Path(place).is_file():
            text = Path(place).read_text(encoding="utf-8")
            return text[text.index("**T1 ") : text.index("**Figures**")]
    pytest.skip("the digest of the paper is not here; set RCAD_PAPER to its path")


def part(digest: str, name: str) -> str:
    return re.split(r"^\*\*T\d ", digest[digest.index(f"**{name} ") + 2 :], flags=re.MULTILINE)[0]


def numbers(text: str) -> list[tuple[float, float | None]]:
    found = re.findall(r"(\d+\.\d+)(?:±(\d+\.\d+))?", text)
    return [(float(mean), float(half) if half else None) for mean, half in found]


def ours(table: published.Table) -> Cells:
    return {(column, row): (one.mean, one.half) for column, rows in table.items() for row, one in rows.items()}


def from_grid(text: str, names: dict[str, str], column: str = "{}") -> Cells:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    header, cells = lines[0], {}
    for first, *values in lines[2:]:
        for name, value in zip(header[1:], values, strict=True):
            (cells[column.format(first), names.get(name, name)],) = numbers(value)
    return cells


def from_lines(text: str, methods: list[str]) -> Cells:
    """ "...: C100-2k 30.5±0.13 / 32.2±0.11; C100-10k ..." """
    cells = {}
    for name, values in re.findall(r"([A-Z][\w-]*) ((?:\d+\.\d+±\d+\.\d+(?: / )?)+)", text):
        for method, number in zip(methods, numbers(values), strict=True):
            cells[SHORT.get(name, name), method] = number
    return cells


def test_t1_and_t4(digest: str) -> None:
    assert ours(published.T1) == from_grid(part(digest, "T1"), {})
    assert len(ours(published.T1)) == 30
    assert ours(published.T4) == from_grid(part(digest, "T4"), {}, "n={}")
    assert len(ours(published.T4)) == 30


def test_t2_t3_and_t5(digest: str) -> None:
    assert ours(published.T2) == from_lines(part(digest, "T2"), ["ME-ADA + LS", "RCAD + LS"])
    assert len(ours(published.T2)) == 12
    assert ours(published.T3) == from_lines(part(digest, "T3"), ["ERM", "ME-ADA", "RCAD"])
    assert len(ours(published.T3)) == 9
    text = part(digest, "T5")
    found = dict(zip(("top-1", "top-5"), (numbers(line) for line in text.split("top-")[1:]), strict=True))
    expected = {
        (column, row): value
        for column, values in found.items()
        for row, value in zip(("pretrained", "ERM", "RCAD"), values, strict=True)
    }
    assert ours(published.T5) == expected
    assert {one.n for rows in published.T5.values() for one in rows.values()} == {7}


def test_t6(digest: str) -> None:
    expected = {}
    for name, rest in re.findall(r"(C100-2k|C100|C10) (ERM .*?)(?=\.\s|\.$|\. C10)", part(digest, "T6"), re.DOTALL):
        for method, clean, attacked in re.findall(r"(\S+) (\d+\.\d+), (\d+\.\d+)", rest):
            row = "FGSM" if method == "AT" else method
            expected[f"{SHORT[name]}, clean", row] = float(clean)
            expected[f"{SHORT[name]}, attacked", row] = float(attacked)
    assert {place: mean for place, (mean, _) in ours(published.T6).items()} == expected
    assert len(expected) == 30
    for name in ("CIFAR-100-2k", "CIFAR-100", "CIFAR-10"):  # T1 has the same runs, clean
        assert published.T6[f"{name}, clean"] == published.T1[name]
    assert sum(one.half or 0 for name, row in published.T6.items() if "attacked" in name for one in row.values()) == (
        pytest.approx(0.47 + 0.23 + 0.18)
    )


def test_t7_and_t8(digest: str) -> None:
    cells = {
        (name.lower(), method): value
        for (name, method), value in from_lines(part(digest, "T7"), ["ERM", "ME-ADA", "RCAD"]).items()
    }
    assert ours(published.T7) == cells
    assert len(cells) == 15
    moons = {}
    for d, sigma, rest in re.findall(r"\((\d+), (\d\.\d+)\) ([\d. /]+\d)", part(digest, "T8")):
        means = [mean for mean, _ in numbers(rest)]
        moons[int(d), float(sigma)] = dict(zip(("ERM", "FGSM linf", "ME-ADA", "RCAD"), means, strict=True))
    assert moons == {cell: {row: one.mean for row, one in rows.items()} for cell, rows in published.T8.items()}
    assert sum(map(len, moons.values())) == 12


def test_no_number_of_the_digest_is_left_out(digest: str) -> None:
    """Whatever the parsers above make of the text: as many decimal numbers with an interval as we hold."""
    held = [
        *published.T1.values(),
        *published.T2.values(),
        *published.T3.values(),
        *published.T4.values(),
        *published.T5.values(),
        *published.T7.values(),
    ]
    with_half = sum(one.half is not None for rows in held for one in rows.values())
    assert len(re.findall(r"\d+\.\d+±\d+\.\d+", digest)) == with_half
