"""A model is left as it was found, and its output is found whatever it returns."""

import copy
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from one_line import fails_in_one_line, refusals
from rcad import RCAD, Criterion, GradientStep, Objective, RandomStep, Term, frozen_batch_stats
from rcad.loss.model_calls import logits_of, modules_behind
from small_nets import assert_same_state, images, norm_net, smooth_net

LOGITS = torch.randn(3, 4)


class Named(NamedTuple):
    hidden: Tensor
    logits: Tensor


@pytest.mark.parametrize(
    ("output", "choice"),
    [
        (LOGITS, None),
        ([torch.tensor(2.0), LOGITS], None),  # a loss before the logits
        ({"logits": LOGITS, "loss": torch.tensor(1.0)}, None),
        ({"out": LOGITS, "aux": LOGITS + 1}, None),
        (Named(LOGITS + 1, LOGITS), None),
        ((torch.tensor(1.0), LOGITS, torch.arange(3), None, (LOGITS[:, :1],)), None),
        (SimpleNamespace(scores=LOGITS, logits=LOGITS + 1), "scores"),  # a choice wins over what would be found
        ((torch.tensor(2.0), LOGITS, LOGITS[:, :2]), 1),
        (LOGITS[None], 0),
    ],
)
def test_logits_are_found(output, choice):
    assert torch.equal(logits_of(output, choice), LOGITS)


test_other_outputs_and_choices_that_are_not_there_are_refused = refusals(
    *((output, None, "expected the model") for output in (None, 3.0, {"features": LOGITS}, (torch.tensor(1.0),))),
    ((LOGITS, LOGITS[:, :2]), None, "tensors of the shapes (3, 4), (3, 2); say which with output="),
    ((LOGITS, LOGITS), 2, "expected output=2 to name a tensor .. but got IndexError from tuple"),
    (SimpleNamespace(logits=LOGITS), "mine", "output='mine' to .. but got AttributeError from SimpleNamespace"),
    of=logits_of,
)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("output", [1, -1, lambda pair: pair[1]])
def test_the_part_that_is_named_is_trained(output, fused):
    """As many published models do: the features first, then the logits."""
    (x, y), net, plain, criterion = images(), smooth_net(), smooth_net(), RCAD(0.5, 0.1, output=output)
    RCAD(0.5, 0.1)(plain, x, y).backward()
    losses = (criterion.backward if fused else criterion.losses)(lambda x: (net[:3](x), net(x)), x, y)
    assert losses.output.shape == (7, 5)
    if not fused:
        losses.total.backward()
    assert_same_state(net, plain)


class Held:
    """A wrapper that is no module: it holds one."""

    def __init__(self, net):
        self.parts = {"nets": [net]}

    def __call__(self, x):
        return self.parts["nets"][0](x)


class Reading(nn.BatchNorm2d):
    """Hands its averages on whatever the flag says."""

    def forward(self, x: Tensor) -> Tensor:
        self.num_batches_tracked += 1
        tensors = self.running_mean, self.running_var, self.weight, self.bias
        return nn.functional.batch_norm(x, *tensors, training=True, momentum=0.1)


class Replacing(nn.BatchNorm2d):
    """Makes new averages in place of the old ones."""

    def forward(self, x: Tensor) -> Tensor:
        self.running_mean = 0.9 * self.running_mean + 0.1 * x.detach().mean((0, 2, 3))
        return super().forward(x)


class Unregistered(nn.Module):
    """Holds a net where torch does not look."""

    def __init__(self, held: Any) -> None:
        super().__init__()
        self.scale = nn.Linear(1, 1)
        self.__dict__["held"] = held

    def forward(self, x: Tensor) -> Tensor:
        held: Any = self.held["net"] if isinstance(self.held, dict) else self.held
        output: Tensor = self.scale.weight * (held[0] if isinstance(held, list) else held)(x)
        return output


def own(layer: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 6, 3), layer, nn.ReLU(), nn.Flatten(), nn.Linear(216, 5))


GLOBAL, ELSEWHERE = norm_net(), ModuleType("elsewhere")
vars(ELSEWHERE)["net"] = GLOBAL


class Holder:
    net = GLOBAL


# How a model is made of a net, and the net.
MODELS = {
    "bound": (lambda net: net.forward, norm_net()),
    "closure": (lambda net: lambda x: net(x), norm_net()),
    "default": (lambda net: lambda x, inner=net: inner(x), norm_net()),
    "partial": (partial, norm_net()),
    "held": (Held, norm_net()),
    "functional": (lambda net: lambda x: functional_call(net, dict(net.named_parameters()), (x,)), norm_net()),
    "compiled": (lambda net: torch.compile(net.forward, backend="eager"), norm_net()),
    "fx": (torch.fx.symbolic_trace, norm_net()),
    "scripted": (torch.jit.script, norm_net()),
    "traced": (lambda net: torch.jit.trace(net, images()[0], check_trace=False), norm_net()),
    "exported": (lambda net: torch.export.export(net, (images()[0],)).module(), norm_net()),
    "a dict's": (lambda net: Unregistered({"net": [net]}), norm_net()),
    "a lambda's": (lambda net: Unregistered(lambda x: net(x)), norm_net()),
    "twice": (lambda net: Unregistered(nn.Sequential(Unregistered([net])).forward), norm_net()),
    "global": (lambda net: lambda x: GLOBAL(x), GLOBAL),
    "nested": (lambda net: lambda x: (lambda z: GLOBAL(z))(x), GLOBAL),
    "of a module": (lambda net: lambda x: ELSEWHERE.net(x), GLOBAL),
    "of a class": (lambda net: lambda x: Holder.net(x), GLOBAL),
    "reading": (lambda net: net, own(Reading(6))),
    "replacing": (lambda net: net, own(Replacing(6))),
    "instances": (lambda net: net, own(nn.InstanceNorm2d(6, track_running_stats=True))),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", MODELS)
def test_averages_stay_at_x_however_the_model_is_called(name):
    (x, y), (call, net) = images(), MODELS[name]
    model = call(net)
    holder = model if isinstance(model, nn.Module) and [*model.buffers()] else net
    plain = copy.deepcopy(holder)
    for _ in range(2):
        RCAD(0.5, 0.1).backward(model, x, y)
        RCAD(0.5, 0.1)(model, x, y).backward()
        plain(x), plain(x)
    for (key, buffer), expected in zip(holder.named_buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(buffer, expected, msg=key)


@pytest.fixture
def alone():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
@pytest.mark.usefixtures("alone")
def test_a_static_graph_is_refused_where_there_are_two_passes():
    (x, y), parallel = images(), nn.parallel.DistributedDataParallel
    model = parallel(smooth_net(), static_graph=True)
    for call in (RCAD(0.5, 0.1), RCAD(0.5, 0.1).backward):
        for given in (model, torch.compile(model), lambda z: model(z)):
            with fails_in_one_line("without static_graph", "or wrap the Objective"):
                call(given, x, y)
    Criterion().backward(model, x, y)  # one pass
    whole = parallel(Objective(smooth_net(), terms=RCAD(0.5, 0.1).loss.terms), static_graph=True)
    whole(x, y).total.backward()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_it_nests_and_restores_after_an_exception(error):
    net = norm_net()
    with pytest.raises(error), frozen_batch_stats(net), frozen_batch_stats(net):
        raise error
    assert net[1].track_running_stats
    with frozen_batch_stats(net):
        with frozen_batch_stats(net):
            pass
        assert not net[1].track_running_stats
    assert net[1].track_running_stats


def test_layers_in_eval_mode_and_without_averages_are_left_alone():
    net, (x, _), bare = norm_net(), images(), nn.BatchNorm2d(3, track_running_stats=False)
    expected = net.eval()(x)
    with frozen_batch_stats(nn.Sequential(net, bare)):
        assert torch.equal(net(x), expected)
        bare(x)
    assert not bare.track_running_stats


def test_a_net_that_holds_itself_is_found_once() -> None:
    net = norm_net()
    net.again, net[1].up = net.forward, [net]  # type: ignore[assignment]
    assert modules_behind(net) == [net]


@pytest.mark.parametrize("where", [RandomStep(0.5), GradientStep(0.5)])
def test_lazy_layers_may_be_made_by_a_loss_without_a_clean_pass(where: Any) -> None:
    (x, y), net = images(), nn.Sequential(nn.LazyConv2d(6, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(5))
    seen: list[Tensor] = []
    net[1].register_forward_hook(lambda module, args, output: seen.append(args[0].detach()))
    Criterion(terms=[Term("nll", where=where)]).backward(net, x, y)
    fresh = nn.BatchNorm2d(6)
    fresh(seen[-1])
    assert all(map(torch.equal, net.buffers(), fresh.buffers()))


@pytest.mark.parametrize("layer", [nn.BatchNorm2d(6), nn.InstanceNorm2d(6, track_running_stats=True)])
def test_averages_that_a_call_is_given_stay_at_x(layer: nn.Module) -> None:
    (x, y), net = images(), own(layer)
    given = {name: buffer.clone() for name, buffer in net.named_buffers()}
    tensors = {**dict(net.named_parameters()), **given}
    RCAD(0.5, 0.1).backward(lambda x: functional_call(net, tensors, (x,)), x, y)
    net(x)
    torch.testing.assert_close(given, dict(net.named_buffers()))
