"""A model that changes its input in place: attacks, compiled ones, and what is not copied. Steps: test_fused.py."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rcad import GradientStep, Objective, ProjectedAscent, Term, methods
from rcad.loss.suggest_alpha import along_adversarial
from small_nets import assert_same_state, images, smooth_net

TERMS = (Term("nll"), Term("rcad", "negative_entropy", 0.1, GradientStep(0.5)))


class Normalised(nn.Module):
    """Normalises what it is given, in place or not."""

    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.net, self.in_place = smooth_net(), in_place

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.net(x.sub_(0.5).mul_(4.0) if self.in_place else (x - 0.5) * 4.0)
        return output


def twins() -> tuple[Normalised, Normalised]:
    return Normalised(in_place=True), Normalised(in_place=False)


def test_searches_and_curves_start_from_what_they_were_given() -> None:
    attack = ProjectedAscent(0.5, steps=3)
    results = []
    for net in twins():
        x, y = images(20)
        results.append((attack(net, x, y), along_adversarial(net, x, y, [0.5, 2.0])))
        assert torch.equal(x, images(20)[0])
    assert torch.equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]


@pytest.mark.parametrize(("backend", "inside"), [("eager", False), ("aot_eager", True)])
def test_compiled(backend: str, inside: bool) -> None:
    torch._dynamo.reset()
    for net in (pair := twins()):
        x, y = images()
        if inside:
            methods.rcad(alpha=0.5).criterion().backward(torch.compile(net, backend=backend), x, y)
        else:
            torch.compile(Objective(net, terms=TERMS), backend=backend)(x, y).total.backward()
    assert_same_state(*pair)


def test_one_pass_is_given_the_tensor_itself() -> None:
    """As in a plain loop: nothing is copied where nothing is needed again."""
    inputs: list[Tensor] = []
    net, (x, y) = smooth_net(), images()
    net.register_forward_pre_hook(lambda module, arguments: inputs.append(arguments[0]))
    methods.erm().criterion()(net, x, y)
    methods.confidence_penalty().criterion().backward(net, x, y)
    assert [tensor.data_ptr() == x.data_ptr() for tensor in inputs] == [True, True]
