"""The method cards say what the code does, and their code runs."""

from __future__ import annotations

import inspect
import re
from itertools import permutations
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import rcad

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


def test_every_method_has_a_card_and_every_card_a_method() -> None:
    assert set(CARDS) == set(rcad.METHODS)


@each_method
def test_the_headings_are_there_in_order(name: str) -> None:
    lines = CARDS[name].splitlines()
    assert lines[0] == f"# {name}"
    assert lines[2].endswith("."), "expected one sentence of summary under the title"
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == HEADINGS


@each_method
def test_the_table_lists_every_parameter_with_its_default(name: str) -> None:
    parameters = inspect.signature(rcad.METHODS[name]).parameters.values()
    expected = [(f"`{p.name}`", f"`{p.default!r}`") for p in parameters]
    assert [tuple(row[:2]) for row in rows(section(name, "Parameters"))] == expected


@each_method
def test_the_conflicts_are_those_that_compose_raises(name: str) -> None:
    (line,) = re.findall(r"^Conflicts with: (.*)\.$", section(name, "Composes with"), re.MULTILINE)
    assert line == "nothing" or re.findall(r"`(\w+)`", line)
    assert set(re.findall(r"`(\w+)`", line)) == {other for one, other in CONFLICTS if one == name}


def _conflict(one: str, other: str) -> bool:
    try:
        rcad.compose(rcad.METHODS[one](), rcad.METHODS[other]())
    except rcad.InputError:
        return True
    return False


CONFLICTS = [(one, other) for one, other in permutations(rcad.METHODS, 2) if _conflict(one, other)]


class Counter(nn.Module):
    """A linear layer that counts its forwards, and its backwards with and without a gradient for the weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width))
        self.forwards = self.backwards = self.to_weight = 0

    def forward(self, x: Tensor) -> Tensor:
        self.forwards += 1
        output = F.linear(x, _Seen.apply(self.weight, self))
        output.register_hook(self._count)
        return output

    def _count(self, _: Tensor) -> None:
        self.backwards += 1

    def row(self) -> list[int]:
        alone = self.backwards - self.to_weight
        return [self.forwards, self.to_weight, alone, self.forwards + 2 * self.to_weight + alone]


class _Seen(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, counter):
        ctx.counter = counter
        return weight.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.counter.to_weight += 1
        return gradient, None


TARGETS = {"gaussian": (2, torch.rand(6)), "bernoulli": (1, torch.tensor([0.0, 1.0] * 3))}


def passes(name: str, criterion: rcad.Criterion, *, fused: bool = True) -> list[int]:
    """Forwards, backwards to the weights, backwards alone, and their cost, in a step with 6 examples."""
    outputs, y = TARGETS.get(name, (4, torch.tensor([0, 1, 2, 3, 0, 1])))
    counter, x = Counter(8), torch.rand(6, 3, 2, 2)
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


class Small(nn.Module):
    """What the cards' examples call `model`."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.last = nn.Linear(4 * 8 * 8, 10)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x)

    def head(self, features: Tensor) -> Tensor:
        return self.last(features)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


@each_method
def test_the_example_runs_and_gives_finite_losses(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    blocks = re.findall(r"^```python\n(.*?)^```", CARDS[name], re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        assert 3 <= len(block.splitlines()) <= 6
        names = {"torch": torch, "nn": nn, "rcad": rcad, "model": Small()}
        names |= {"x": torch.rand(6, 3, 32, 32), "y": torch.randint(0, 10, (6,))}
        exec(compile(block, f"methods/{name}.md", "exec"), names)
        if "growth" in names:
            assert len(names["x"]) == len(names["y"]) == 12
        else:
            loss = names["losses"].total if "losses" in names else names["loss"]
            assert torch.isfinite(loss)
        if "print(" in block:
            assert capsys.readouterr().out


def test_what_the_released_program_has_and_the_recipe_has_not_is_said() -> None:
    said = " ".join(section("rcad_released", "Differs from the paper").split())
    for words in ("02379fe", "5e8ff1d", "(125.3, 123.0, 113.9)", "(63.0, 62.1, 66.7)", "torch's default values"):
        assert words in said
