"""The method cards say what the code does, and their code runs."""

import inspect
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import rcad
from rcad.models import build

ROOT = Path(__file__).parents[2]
CARDS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "methods").glob("*.md"))}
HEADINGS = ["Formula", "Parameters", "Cost", "Composes with", "Differs from the paper", "Example"]

each_method = pytest.mark.parametrize("name", sorted(rcad.METHODS))


def section(name: str, heading: str) -> str:
    """The text of a card between one heading and the next."""
    return CARDS[name].split(f"\n## {heading}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The cells of a Markdown table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def _conflicts(name: str) -> set[str]:
    found = set()
    for other in rcad.METHODS.keys() - {name}:
        try:
            rcad.compose(rcad.METHODS[name](), rcad.METHODS[other]())
        except rcad.InputError:
            found.add(other)
    return found


@each_method
def test_a_card_has_its_headings_in_order_every_parameter_and_every_conflict(name: str) -> None:
    assert set(CARDS) == set(rcad.METHODS)
    lines = CARDS[name].splitlines()
    assert lines[0] == f"# {name}"
    assert lines[2].endswith("."), "expected one sentence of summary under the title"
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == HEADINGS
    parameters = inspect.signature(rcad.METHODS[name]).parameters.values()
    expected = [(f"`{p.name}`", f"`{p.default!r}`") for p in parameters]
    assert [tuple(row[:2]) for row in rows(section(name, "Parameters"))] == expected
    (line,) = re.findall(r"^Conflicts with: (.*)\.$", section(name, "Composes with"), re.MULTILINE)
    assert line == "nothing" or re.findall(r"`(\w+)`", line)
    assert set(re.findall(r"`(\w+)`", line)) == _conflicts(name)


class Counting(nn.Module):
    """A linear layer that counts its forwards, and its backwards with and without a gradient for the weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width))
        self.counts: Counter[str] = Counter()

    def forward(self, x: Tensor) -> Tensor:
        self.counts["forward"] += 1
        weight = self.weight.clone()
        output = F.linear(x, weight)
        weight.register_hook(lambda gradient: self.counts.update(["to weight"]))
        output.register_hook(lambda gradient: self.counts.update(["backward"]))
        return output

    def row(self) -> list[int]:
        forwards, to_weight = self.counts["forward"], self.counts["to weight"]
        alone = self.counts["backward"] - to_weight
        return [forwards, to_weight, alone, forwards + 2 * to_weight + alone]


TARGETS = {"gaussian": (2, torch.rand(6)), "bernoulli": (1, torch.tensor([0.0, 1.0] * 3))}


def passes(name: str, criterion: rcad.Criterion, *, fused: bool = True) -> list[int]:
    """Forwards, backwards to the weights, backwards alone, and their cost, in a step with 6 examples."""
    outputs, y = TARGETS.get(name, (4, torch.tensor([0, 1, 2, 3, 0, 1])))
    counter, x = Counting(8), torch.rand(6, 3, 2, 2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), counter, nn.Linear(8, outputs))
    if fused:
        criterion.backward(model, x, y)
    else:
        criterion(model, x, y).backward()
    return counter.row()


@each_method
def test_the_cost_is_the_number_of_passes_counted(name: str) -> None:
    cells = {row[0]: row[1:] for row in rows(section(name, "Cost"))}
    criterion = rcad.METHODS[name]().criterion()
    for path in ("reference", "fused"):
        counted = passes(name, criterion, fused=path == "fused")
        assert cells[path] == [*map(str, counted), f"{counted[3] / 3:.2f}"]
    assert criterion.loss.plan(0).cost == counted[3]  # known without running


@pytest.mark.parametrize(
    "text", ["rcad(alpha=1, steps=4)", "label_smoothing + rcad(alpha=1)", "rcad(alpha=1) + rcad_random(alpha=1)"]
)
def test_a_plan_of_several_parts_knows_its_cost(text: str) -> None:
    criterion = rcad.Method.parse(text).criterion()
    assert criterion.loss.plan(0).cost == passes(text, criterion)[3]


@each_method
def test_the_example_runs_and_gives_finite_losses(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    blocks = re.findall(r"^```python\n(.*?)^```", CARDS[name], re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        assert 3 <= len(block.splitlines()) <= 6
        names = {"torch": torch, "nn": nn, "rcad": rcad}
        names["model"] = build("small_cnn", num_outputs=10, in_shape=(3, 32, 32))
        names |= {"x": torch.rand(6, 3, 32, 32), "y": torch.randint(0, 10, (6,))}
        exec(compile(block, f"methods/{name}.md", "exec"), names)
        if "growth" in names:
            assert len(names["x"]) == len(names["y"]) == 12
        else:
            loss = names["losses"].total if "losses" in names else names["loss"]
            assert torch.isfinite(loss)
        if "print(" in block:
            assert capsys.readouterr().out
