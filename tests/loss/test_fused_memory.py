"""What a step holds: graphs that are gone before the next pass, and gradients that can be taken away after each."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fused_cases import CASES, OPTIONS, Case, batch, deep_norm_net, take
from rcad import Criterion
from small_nets import gradients


class Box(list[Tensor]):
    """A list that weak references may point to."""

    __hash__ = object.__hash__


class Keep(nn.Module):
    """Leaves something in the graph that goes with the graph itself, and counts how much of it is alive."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.boxes: list[weakref.ref[Box]] = []
        self.at_forwards: list[int] = []

    def alive(self) -> int:
        return sum(box() is not None for box in self.boxes)

    def forward(self, x: Tensor) -> Tensor:
        self.at_forwards.append(self.alive())
        box = Box()
        self.boxes.append(weakref.ref(box))
        result: Tensor = Keeping.apply(self.net(x), box)
        return result


class Keeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, box: Box) -> Tensor:
        ctx.box = box
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


@pytest.mark.parametrize("options", ["plain", "weights"])
@pytest.mark.parametrize("name", CASES)
def test_no_pass_is_in_memory_when_the_next_begins(name: str, options: str) -> None:
    net, (x, y, raw) = Keep(deep_norm_net()), batch()
    losses, _ = take(True, CASES[name], net, x, y, **raw, **OPTIONS[options])
    assert net.at_forwards == [0] * CASES[name].passes[0]
    assert net.alive() == 0
    assert losses.output is None or losses.output.grad_fn is None


@pytest.mark.parametrize(
    ("name", "options", "kept"),
    [
        ("rcad", "plain", []),
        ("rcad", "weights", [True]),
        ("adversarial", "plain", [False]),
        ("two directions", "plain", [True, True]),
        ("two directions alone", "plain", [True, False]),
    ],
)
def test_graphs_are_kept_only_for_a_backward_that_follows(
    name: str, options: str, kept: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bool] = []
    real = torch.autograd.grad

    def spy(*args: Any, retain_graph: bool, **rest: Any) -> Any:
        calls.append(retain_graph)
        return real(*args, retain_graph=retain_graph, **rest)

    monkeypatch.setattr(torch.autograd, "grad", spy)
    x, y, _ = batch()
    for fused in (True, False):
        calls.clear()
        take(fused, CASES[name], deep_norm_net(), x, y, **OPTIONS[options])
        assert calls == (kept if fused else kept or [True])
    with torch.no_grad():
        Criterion(CASES[name].likelihood, CASES[name].terms).losses(deep_norm_net(), x, y)
    assert calls[-1:] == [False]


@pytest.mark.parametrize("options", ["plain", "weights"])
@pytest.mark.parametrize("name", CASES)
def test_after_each_backward_its_gradients_can_be_taken_away(name: str, options: str) -> None:
    case, (x, y, raw) = CASES[name], batch()
    whole, parts = deep_norm_net(), deep_norm_net()
    taken: list[dict[str, Tensor]] = []

    def after() -> None:
        taken.append(gradients(parts))
        parts.zero_grad()

    take(True, case, whole, x, y, **raw, **OPTIONS[options])
    take(True, case, parts, x, y, after_pass=after, **raw, **OPTIONS[options])
    groups = {(term.view, None if term.where is None else term.name) for term in case.terms}
    assert len(taken) == len(groups)
    for key, p in whole.named_parameters():
        assert p.grad is not None
        torch.testing.assert_close(sum(one[key] for one in taken if key in one), p.grad)
    if any(term.where is None and term.view == case.terms[0].view for term in case.terms):
        alone = deep_norm_net()
        clean = tuple(term for term in case.terms if term.where is None and term.view == case.terms[0].view)
        take(False, Case(clean, case.likelihood), alone, x, y, **raw, **OPTIONS[options])
        torch.testing.assert_close(taken[0], gradients(alone))
