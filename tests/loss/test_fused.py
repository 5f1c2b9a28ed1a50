"""Pass by pass against one graph: every kind of loss, option and model gives the same in both ways."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from fused_cases import (
    CASES,
    NLL,
    OPTIONS,
    PLAIN,
    SMOOTHED,
    STEP,
    THIRD,
    WEIGHT,
    Case,
    LoudScaler,
    assert_equal_steps,
    batch,
    deep_norm_net,
    take,
)
from rcad import Criterion, InputError, Term
from rcad.loss.fused import refusal, third_backward
from small_nets import CLASSES, PassCounter, assert_same_state, gradients, images, smooth_net


def deaf():
    """Detaches its input, and so trains at x."""
    net = deep_norm_net()
    net.register_forward_pre_hook(lambda module, given: (given[0].detach(),))
    return net


def partly_frozen():
    net = deep_norm_net()
    net[0].requires_grad_(False)
    net[1].requires_grad_(False).eval()
    return net


@pytest.mark.filterwarnings("ignore:the loss has a zero gradient")
@pytest.mark.parametrize(
    ("make", "options"), [*((deep_norm_net, options) for options in OPTIONS), (deaf, "plain"), (partly_frozen, "plain")]
)
@pytest.mark.parametrize("name", CASES)
def test_pass_by_pass_equals_one_graph(name, make, options):
    x, y, raw = batch()
    before = x.clone()
    assert_equal_steps(CASES[name], make, x, y, **raw, **OPTIONS[options])
    assert torch.equal(x, before)
    assert x.grad is None


@pytest.mark.parametrize("name", CASES)
def test_passes_and_third_backwards_are_as_promised(name):
    case, net, (x, y, raw) = CASES[name], deep_norm_net(), batch()
    loss = Criterion(case.likelihood, case.terms).loss
    plan = loss.plan(0)
    views = loss.views(net, plan, x, y, **raw)
    assert refusal(plan, views) is None
    assert (third_backward(plan, views) is not None) == case.third
    counter = PassCounter(net)
    take(True, case, net, x, y, **raw)
    assert (counter.forwards, counter.backwards) == case.passes
    counter = PassCounter(net := deep_norm_net())
    take(False, case, net, x, y, **raw)  # every direction takes a backward of its own
    shared = sum(bool(look.directions) and look.apart is None for look in plan.looks)
    assert (counter.forwards, counter.backwards) == (case.passes[0], case.passes[1] + shared)


def test_scaled_gradients_of_half_precision_do_not_overflow():
    """The batch's size is not multiplied in where only the direction counts: 64 times 2164 is beyond half precision."""
    x, y = images(64)
    losses, _ = take(True, CASES["rcad"], smooth_net().half(), x.half(), y, scaler=LoudScaler(2.0**18))
    expected, _ = take(False, CASES["rcad"], smooth_net().half(), x.half(), y)
    torch.testing.assert_close(losses.parts["rcad"], expected.parts["rcad"], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["rcad", *THIRD])
def test_autocast(name):
    case, (x, y, raw) = CASES[name], batch()
    nets = [smooth_net(), smooth_net()]
    raw["raw"] = raw["raw"].float()
    for fused, net in enumerate(nets):
        with torch.autocast("cpu", dtype=torch.float16):  # casts of weights are shared by the passes inside
            take(bool(fused), case, net, x.float(), y, weight=WEIGHT, **raw)
    # One graph adds the passes' gradients in half precision.
    assert_same_state(nets[0], nets[1], rtol=5e-3, atol=1e-4)


class Sets(nn.Module):
    """Takes a mapping, works in place or not, and returns a tuple."""

    def __init__(self, *, in_place):
        super().__init__()
        self.net, self.in_place = deep_norm_net(), in_place

    def forward(self, image, shift, words):
        if not self.in_place:
            return self.net((image - shift) * 2.0), words
        output = self.net(image.sub_(shift).mul_(2.0))
        shift.mul_(3.0)
        return output, words


@pytest.mark.parametrize("same", [False, True], ids=["own views", "one tensor is both views"])
@pytest.mark.parametrize("name", CASES)
def test_mappings_tuples_and_models_that_work_in_place(name, same):
    def mapping(image):
        return {"image": image, "shift": torch.full((1,), 0.2, dtype=torch.float64), "words": "as they are"}

    case, results = CASES[name], []
    for fused, in_place in ((False, False), (False, True), (True, True)):
        net, table = Sets(in_place=in_place), torch.zeros(3, 1, 1, dtype=torch.float64, requires_grad=not same)
        image, y, views = batch()
        x = mapping(image + table)
        criterion = Criterion(case.likelihood, case.terms, input_key="image", units="input")
        raw = x if same else mapping(views["raw"])
        take(fused, case, net, x, y, raw=raw, weight=WEIGHT, criterion=criterion)
        results.append((net, table.grad))
    for net, gradient in results[1:]:
        assert_same_state(results[0][0], net, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(gradient, results[0][1])


def test_a_term_that_rests_leaves_the_rest_as_it_is():
    x, y, _ = batch()
    adv = Term("adv", where=PLAIN, every=2)
    for step, third in ((0, True), (1, False)):
        case = Case((NLL, Term("rcad", "negative_entropy", 0.1, STEP), adv), SMOOTHED)
        assert_equal_steps(case, deep_norm_net, x, y, step=step)
        criterion = Criterion(case.likelihood, case.terms)
        take(True, case, deep_norm_net(), x, y, criterion=criterion, step=step)
        assert bool(criterion._logged) == third
    resting = Case((NLL, Term("rcad", "negative_entropy", 0.1, STEP, every=3)))
    assert_equal_steps(resting, deep_norm_net, x, y, step=1, weight=WEIGHT)


class Checkpointed(nn.Module):
    """A net that forgets its activations and computes them again in the backward."""

    def __init__(self, net, *, reentrant=False):
        super().__init__()
        self.net, self.reentrant = net, reentrant
        self.needed = []

    def forward(self, x):
        self.needed.append(x.requires_grad)
        return checkpoint(self.net, x, use_reentrant=self.reentrant)


@pytest.mark.parametrize("make", [deep_norm_net, lambda: smooth_net(dropout=0.3).double()])
@pytest.mark.parametrize("options", ["plain", "weights"])
@pytest.mark.parametrize("name", CASES)
def test_activation_checkpointing(name, options, make):
    """Gradients are those without it; BatchNorm's averages advance at each recomputation too, as in any loop."""
    plain, thrifty, (x, y, raw) = make(), Checkpointed(make()), batch()
    for net in (plain, thrifty):
        take(True, CASES[name], net, x, y, **raw, **OPTIONS[options])
    torch.testing.assert_close(gradients(plain), gradients(thrifty.net), rtol=1e-9, atol=1e-12)


def first_block(*, reentrant):
    """The first block forgets its activations, the second does not, as where memory is short at the entrance."""
    torch.manual_seed(0)
    first = Checkpointed(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh()), reentrant=reentrant)
    return nn.Sequential(first, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, CLASSES)).double()


FUSED = [(name, True) for name in ("rcad", "raw norm", "one direction for two terms", "random")]


@pytest.mark.parametrize(("name", "fused"), [*FUSED, ("random", False)])
def test_a_reentrant_first_block_learns_from_every_pass(name, fused):
    """Where its input needs no gradient, such a block gets none: the gradient at x' used to be lost there."""
    (x, y, _), (safe, risky) = batch(), (first_block(reentrant=reentrant) for reentrant in (False, True))
    x.requires_grad_(name == "random")  # what torch asks for where no direction is taken
    for net in (safe, risky):
        for _ in range(2):
            take(fused, CASES[name], net, x, y)
    assert any(p.grad.abs().max() > 0 for p in risky[0].parameters())
    assert_same_state(safe, risky, rtol=1e-9, atol=1e-12)
    assert all(risky[0].needed)
    if fused:
        assert safe[0].needed[:2] == [True, False], "a gradient for x' costs time, and is not needed here"


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize(("name", "fused"), [("rcad", False), *((name, True) for name in (*THIRD, "two views"))])
def test_what_reentrant_checkpoints_cannot_do_is_refused(name, fused):
    x, y, raw = batch()
    with pytest.raises(InputError, match="expected activation checkpointing with use_reentrant=False"):
        take(fused, CASES[name], first_block(reentrant=True), x, y, **raw)


@pytest.mark.parametrize("where", [None, STEP])
def test_a_measure_without_a_gradient_may_be_a_term(where):
    def accuracy(likelihood, output, target):
        return (output.argmax(1) == target).to(output.dtype)

    x, y, _ = batch()
    moved = Term("moved", where=None if where else STEP)
    assert_equal_steps(Case((Term("accuracy", accuracy, 0.1, where), moved)), deep_norm_net, x, y)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", sorted(set(CASES) - {"random start alone"}))  # whose own passes come first
def test_the_targets_of_every_view_are_checked(name, fused):
    x, y, raw = batch()
    wrong = [(y + CLASSES, raw)]
    if any(term.view == "raw" for term in CASES[name].terms):
        wrong.append((y, {**raw, "raw_target": raw["raw_target"] + CLASSES}))
    for target, rest in wrong:
        with pytest.raises(InputError, match="expected labels from 0 to 4"):
            take(fused, CASES[name], deep_norm_net(), x, target, **rest)


class MovingScale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x):
        self.scale = 0.9 * self.scale + 0.1 * x.detach().abs().mean()
        return x / self.scale


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm2d, lambda size: nn.InstanceNorm2d(size, track_running_stats=True), MovingScale]
)
@pytest.mark.parametrize("name", ["rcad", "raw norm", "adversarial", "two directions"])
def test_a_scale_that_overflows_leaves_the_buffers_of_every_layer_finite(name, layer):
    net, (x, y) = nn.Sequential(layer(3), smooth_net()), images()
    with torch.autocast("cpu", dtype=torch.float16):
        take(True, CASES[name], net, x, y, scaler=torch.amp.GradScaler("cpu", init_scale=2.0**24))
    assert not all(bool(gradient.isfinite().all()) for gradient in gradients(net).values())
    assert all(bool(buffer.isfinite().all()) for buffer in net.buffers())
