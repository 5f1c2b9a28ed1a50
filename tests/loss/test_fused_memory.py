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


class Graphs:
    """Counts what graphs keep for their backward, and how much of it is alive when a forward begins."""

    def __init__(self, net: nn.Module) -> None:
        self._kept: list[weakref.ref[Any]] = []
        self.at_forwards: list[int] = []
        net.register_forward_pre_hook(lambda *_: self.at_forwards.append(self.alive()))

    def alive(self) -> int:
        return sum(kept() is not None for kept in self._kept)

    def __enter__(self) -> Graphs:
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda box: box[0])
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)

    def _pack(self, tensor: Tensor) -> Any:
        box = Box([tensor.detach()])  # an output's own node would hold itself
        self._kept.append(weakref.ref(box))
        return box


class Box(list[Tensor]):
    """A list that weak references may point to."""

    __hash__ = object.__hash__


class Keep(nn.Module):
    """Leaves something in the graph that a backward does not free: it goes with the graph itself."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.kept = net, []
        self.at_forwards: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.at_forwards.append(sum(kept() is not None for kept in self.kept))
        box = Box()
        self.kept.append(weakref.ref(box))
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
    with Graphs(net) as graphs:
        losses, _ = take(True, CASES[name], net, x, y, **raw, **OPTIONS[options])
    assert graphs._kept
    assert graphs.at_forwards == net.at_forwards == [0] * CASES[name].passes[0]
    assert graphs.alive() == 0
    assert losses.output is None or losses.output.grad_fn is None


def test_one_graph_keeps_the_clean_pass_and_directions_of_their_own_keep_nothing() -> None:
    x, y, _ = batch()
    found = {}
    for name in ("rcad", "adversarial"):
        with Graphs(net := deep_norm_net()) as graphs:
            take(False, CASES[name], net, x, y)
        found[name] = graphs.at_forwards
    assert found["rcad"][0] == 0
    assert found["rcad"][1] > 0
    assert found["adversarial"] == [0, 0]


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
    take(True, CASES[name], deep_norm_net(), x, y, **OPTIONS[options])
    assert calls == kept
    calls.clear()
    take(False, CASES[name], deep_norm_net(), x, y, **OPTIONS[options])
    assert calls == (kept or [True])
    calls.clear()
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
