"""A model that changes its input in place trains as its twin that does not, whatever the number of passes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rcad import Criterion, GradientStep, Objective, ProjectedAscent, Term, methods
from rcad.loss.suggest_alpha import along_adversarial
from small_nets import assert_same_state, images, smooth_net

NAMES = (
    "erm",
    "rcad",
    "rcad_random",
    "rcad_released",
    "two_views",
    "adversarial_training",
    "confidence_penalty",
    "label_smoothing",
)
TERMS = (Term("nll"), Term("rcad", "negative_entropy", 0.1, GradientStep(0.5)))


class Normalised(nn.Module):
    """Normalises what it is given, in place or not."""

    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.net, self.in_place = smooth_net(), in_place

    def forward(self, x: Tensor, shift: Tensor | None = None) -> Tensor:
        shift = torch.tensor(0.5) if shift is None else shift
        if self.in_place:
            output: Tensor = self.net(x.sub_(shift).mul_(4.0))
            shift.mul_(2.0)
        else:
            output = self.net((x - shift) * 4.0)
        return output


def twins() -> tuple[Normalised, Normalised]:
    return Normalised(in_place=True), Normalised(in_place=False)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fused", [False, True])
def test_it_equals_its_twin_under_every_method(name: str, fused: bool) -> None:
    method = getattr(methods, name)()
    for net in (pair := twins()):
        x, y = images()
        raw = x if name == "two_views" else None  # one tensor is both views
        criterion, generator = method.criterion(), torch.Generator().manual_seed(1)
        if fused:
            criterion.backward(net, x, y, raw=raw, generator=generator)
        else:
            criterion(net, x, y, raw=raw, generator=generator).backward()
    assert_same_state(*pair)


@pytest.mark.parametrize("fused", [False, True])
def test_other_inputs_and_inputs_that_learn(fused: bool) -> None:
    tables = []
    for net in (pair := twins()):
        x, y = images()
        table = torch.zeros(3, 1, 1, requires_grad=True)
        tables.append(table)
        for terms in (TERMS, TERMS[:1], (*TERMS, Term("again", where=GradientStep(1.0)))):
            criterion = Criterion(terms=terms, input_key="x")
            batch = {"x": x + table, "shift": torch.full((3, 1, 1), 0.5)}
            if fused:
                criterion.backward(net, batch, y)
            else:
                criterion(net, batch, y).backward()
    assert_same_state(*pair)
    assert torch.equal(tables[0].grad, tables[1].grad)


def test_searches_and_curves_start_from_what_they_were_given() -> None:
    attack = ProjectedAscent(0.5, steps=3)
    found = []
    for net in twins():
        x, y = images(20)
        found.append((attack(net, x, y), along_adversarial(net, x, y, [0.5, 2.0])))
        assert torch.equal(x, images(20)[0])
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_a_first_layer_in_place() -> None:
    nets = [nn.Sequential(nn.ReLU(inplace=flag), smooth_net()) for flag in (True, False)]
    for net in nets:
        x, y = images()
        Objective(net, terms=TERMS, units="input")(x - 0.5, y).total.backward()
    assert_same_state(*nets)


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
    seen: list[Tensor] = []
    net, (x, y) = smooth_net(), images()
    net.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    methods.erm().criterion()(net, x, y)
    methods.confidence_penalty().criterion().backward(net, x, y)
    assert [one.data_ptr() == x.data_ptr() for one in seen] == [True, True]
