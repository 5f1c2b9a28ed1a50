"""Models that hide their gradients are caught; an ordinary one is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attacked_net import Quantised, Saturated, fitted, patterns
from rcad.evaluate.attacks import PGD
from rcad.evaluate.masking import Check, masking_checks
from small_nets import left_alone

NAMES = ["gradients", "steps", "radius", "unbounded", "random", "transfer"]


def checks(model: nn.Module, **options: Any) -> dict[str, Check]:
    x, y = patterns(200, 1)
    return {c.name: c for c in masking_checks(model, x, y, PGD(0.03, steps=8), twin=fitted(), **options)}


def test_an_ordinary_model_passes() -> None:
    calls: list[tuple[int, int]] = []
    found = checks(fitted(), progress=lambda done, of: calls.append((done, of)))
    assert list(found) == NAMES
    assert all(check.passed for check in found.values()), found
    assert calls == [(i, 6) for i in range(1, 7)]
    assert list(found["steps"].numbers) == ["2 steps", "8 steps", "32 steps"]
    assert list(found["radius"].numbers) == ["eps 0.015", "eps 0.03", "eps 0.06", "eps 0.12"]
    assert found["unbounded"].numbers["accuracy"] == 0
    assert found["transfer"].numbers["transfer"] == found["transfer"].numbers["gradient"]
    json.dumps([check._asdict() for check in found.values()])


@pytest.mark.parametrize("kind", [Saturated, Quantised])
def test_hidden_gradients_are_caught(kind: type[nn.Module]) -> None:
    found = checks(kind(fitted()), tries=50)
    assert [name for name, check in found.items() if not check.passed] == [
        "gradients",
        "unbounded",
        "random",
        "transfer",
    ]
    assert found["gradients"].numbers["without"] > 95
    assert "better than the model's own gradients" in found["transfer"].sentence
    assert found["random"].sentence.startswith("50 random points leave an accuracy of")


class Ripples(nn.Module):
    """Right at 0, wrong from 0.6 on, and between them waves in which small steps are caught."""

    def forward(self, x: Tensor) -> Tensor:
        margin = 0.5 - x[:, 0] + 0.1 * torch.cos(2 * torch.pi * x[:, 0] / 0.1)
        return torch.stack([margin, torch.zeros_like(margin)], 1)


def test_steps_that_help_the_defender_are_caught() -> None:
    x, y = torch.zeros(20, 1), torch.zeros(20, dtype=torch.long)
    attack = PGD(1.0, bounds=(-4.0, 4.0), steps=100, random_start=False)
    found = {check.name: check for check in masking_checks(Ripples(), x, y, attack)}
    assert "transfer" not in found
    assert found["steps"].numbers["25 steps"] == 0
    assert found["steps"].numbers["100 steps"] == 100
    assert not found["steps"].passed
    assert "more steps helped by 100.0 points the defender" in found["steps"].sentence


class Window(nn.Module):
    """Wrong only around 0.65, over which long steps jump."""

    def forward(self, x: Tensor) -> Tensor:
        margin = (x[:, 0] - 0.65).abs() - 0.05
        return torch.stack([margin, torch.zeros_like(margin)], 1)


def test_a_larger_radius_that_helps_is_caught() -> None:
    x, y = torch.zeros(20, 1), torch.zeros(20, dtype=torch.long)
    attack = PGD(0.65, bounds=(-4.0, 4.0), steps=8, step_size=0.65, random_start=False)
    found = {check.name: check for check in masking_checks(Window(), x, y, attack)}
    assert list(found["radius"].numbers.values())[:3] == [100, 0, 100]
    assert not found["radius"].passed
    assert "a larger radius helped by 100.0 points the defender" in found["radius"].sentence


def test_the_model_is_left_alone() -> None:
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(192), nn.Dropout(0.5), nn.Linear(192, 5))
    x, y = patterns(40, 0)
    with left_alone(net):
        masking_checks(net, x, y, PGD(0.03, steps=2), twin=fitted(), tries=2)


@pytest.mark.parametrize(("copies", "passes"), [(1, True), (50, False)])
def test_few_examples_are_given_more_room(copies: int, passes: bool) -> None:
    """Two of twenty may be chance, a hundred of a thousand are not."""
    x, y = torch.zeros(20 * copies, 1), torch.zeros(20 * copies, dtype=torch.long)
    x[: 18 * copies] = 9.0  # beyond the window, whatever the radius
    attack = PGD(0.65, bounds=(-40.0, 40.0), steps=8, step_size=0.65, random_start=False)
    found = {check.name: check for check in masking_checks(Window(), x, y, attack)}
    assert list(found["radius"].numbers.values())[:3] == [100, 90, 100]
    assert found["radius"].passed == passes
