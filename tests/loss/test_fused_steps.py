"""What a step learns beside the model, what it holds in memory, and what can be taken away after each pass."""

import weakref
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from fused_cases import CASES, OPTIONS, SINGLE, STEP, Case, LoudScaler, batch, deep_norm_net, take
from rcad import Criterion, InputError, Term
from small_nets import CLASSES, assert_same_state


def from_a_graph(kind, table, x, y):
    """Something beside x that a learned layer made."""
    made = table(x.flatten(1))
    if kind == "weight":
        return x, y, {"weight": made.sigmoid()[:, 0]}
    if kind == "target":
        return x, made.softmax(1), {}
    return {"image": x, "shift": made.mean().tanh()}, y, {}


class Shifted(nn.Sequential):
    def forward(self, image, shift=0.0):
        return super().forward(image + shift)


@pytest.mark.parametrize("kind", ["weight", "target", "other input"])
@pytest.mark.parametrize("name", ["erm", "rcad", "one direction for two terms", "two clean terms", "two adversarial"])
def test_what_passes_share_may_learn(name, kind):
    x, y, _ = batch()
    case, learners, said, calls = CASES[name], [], set(), []
    for fused in (False, True):
        torch.manual_seed(5)
        table, net = nn.Linear(192, CLASSES).double(), Shifted(*deep_norm_net())
        inputs, target, options = from_a_graph(kind, table, x, y)
        key = "image" if isinstance(inputs, dict) else None
        criterion = Criterion(case.likelihood, case.terms, input_key=key, units="input")
        options |= {"scaler": LoudScaler(4.0), "accumulate": 3} | (
            {"after_pass": lambda: calls.append(1)} if fused else {}
        )
        losses, _ = take(fused, case, net, inputs, target, criterion=criterion, **options)
        assert losses.total.requires_grad != fused
        learners.append(nn.ModuleList([table, net]))
        said |= criterion._logged
    assert table.weight.grad.abs().sum() > 0
    assert_same_state(learners[0], learners[1], rtol=1e-9, atol=1e-12)
    assert any("come from a larger graph" in words for words in said) == (name != "erm")
    assert calls == [1]


TWO_VIEWS = Case((Term("adv", where=STEP), Term("raw", where=STEP, view="raw")))


@pytest.mark.filterwarnings("ignore:no parameter of the model", "ignore:the loss has a zero gradient")
@pytest.mark.parametrize("case", [*SINGLE.values(), TWO_VIEWS], ids=[*SINGLE, "views that share a graph"])
def test_a_model_that_cannot_learn_is_named_unless_x_learns(case):
    (x, y, _), frozen = batch(), deep_norm_net().requires_grad_(False)
    refused = pytest.raises(InputError, match="expected parameters that require a gradient")
    detached = deep_norm_net()
    detached.register_forward_hook(lambda model, given, output: output.detach() + 0 * given[0].sum())
    with pytest.raises(InputError, match="but it does not depend on any of them; is it detached"):
        take(True, case, detached, x, y)
    shift = torch.zeros(3, 1, 1, dtype=torch.float64, requires_grad=True)
    clean = any(term.where is None for term in case.terms)
    with nullcontext() if clean else refused:
        take(True, case, frozen, x + shift, y)
    assert (shift.grad is not None) == clean


class Keep(nn.Module):
    """Leaves a hook in the graph that goes with the graph itself, and counts how many are alive."""

    def __init__(self, net):
        super().__init__()
        self.net, self.alive, self.at_forwards = net, weakref.WeakSet(), []

    def forward(self, x):
        self.at_forwards.append(len(self.alive))
        hook, output = (lambda gradient: None), self.net(x)
        self.alive.add(hook)
        output.grad_fn.register_prehook(hook)
        return output


@pytest.mark.parametrize("options", ["plain", "weights"])
@pytest.mark.parametrize("name", CASES)
def test_no_pass_is_in_memory_when_the_next_begins(name, options):
    net, (x, y, raw) = Keep(deep_norm_net()), batch()
    losses, _ = take(True, CASES[name], net, x, y, **raw, **OPTIONS[options])
    assert net.at_forwards == [0] * CASES[name].passes[0]
    assert not net.alive
    assert losses.output is None or losses.output.grad_fn is None
