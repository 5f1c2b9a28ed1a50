"""The drop-in surface: what a practitioner's loop does with it, and what a step leaves behind that was broken off."""

import copy

import pytest
import torch

from fused_cases import CASES
from one_line import fails_in_one_line, refusals
from rcad import RCAD, Categorical, Criterion, GradientStep, Objective, Term, compose, methods, rcad_loss, suggest_alpha
from small_nets import assert_same_state, images, norm_net, smooth_net


@pytest.mark.parametrize(("direction", "norm"), [("plain", "l2"), ("training", "l2"), ("plain", "raw")])
def test_function_criterion_objective_method_and_fused_agree(direction, norm):
    (x, y), smoothed = images(), Categorical(0.6)
    nets = [norm_net() for _ in range(5)]
    options = {"likelihood": smoothed, "direction": direction, "norm": norm}
    rcad_loss(nets[0], x, y, alpha=0.5, lam=0.1, **options).backward()
    RCAD(0.5, 0.1, **options)(nets[1], x, y).backward()
    RCAD(0.5, 0.1, **options).backward(nets[2], x, y)
    terms = [Term("nll"), Term("rcad", "negative_entropy", 0.1, GradientStep(0.5, norm, loss=direction))]
    Objective(nets[3], smoothed, terms)(x, y).total.backward()
    method = compose(methods.label_smoothing(0.6), methods.rcad(0.5, 0.1, norm, direction=direction))
    method.criterion()(nets[4], x, y).backward()
    for other in nets[1:]:
        assert_same_state(nets[0], other)


def test_an_optimizer_that_steps_in_the_backward_sees_the_whole_gradient():
    nets, (x, y) = [smooth_net() for _ in range(2)], images()
    with torch.no_grad():
        for net in nets:
            net[-1].weight.mul_(0.2)
    seen = []

    def step(parameter):
        seen.append(parameter.grad.clone())
        with torch.no_grad():
            parameter -= 0.1 * parameter.grad
        parameter.grad = None

    for parameter in nets[0].parameters():
        parameter.register_post_accumulate_grad_hook(step)
    RCAD(0.5, 0.1).backward(nets[0], x, y)
    assert len(seen) == len(list(nets[0].parameters()))
    RCAD(0.5, 0.1).backward(nets[1], x, y)
    torch.optim.SGD(nets[1].parameters(), lr=0.1).step()
    torch.testing.assert_close(list(nets[0].parameters()), list(nets[1].parameters()))


NET, (X, Y) = smooth_net(), images()
PLAIN, RANDOM = RCAD(0.5, 0.1), methods.rcad_random(1.0, 0.1).criterion()
test_wrong_calls_are_named = refusals(
    (lambda: rcad_loss(NET, X, Y, alpha=-1.0, lam=0.1), "expected alpha to be a finite number >= 0"),
    (lambda: rcad_loss(NET, X, Y, alpha=0.5, lam=0.1, every=2), "expected step= with every="),
    (lambda: RCAD(0.5, 0.1, measure="entropy"), "expected measure to be one of"),
    (lambda: RCAD(0.5, 0.1, mask_key="m")(NET, X, Y), "expected a mapping with the key 'm'"),
    (lambda: PLAIN.backward(NET, X, Y, accumulate=0), "expected accumulate to be a whole number"),
    (lambda: PLAIN(lambda x: None, X, Y), "expected the model to return a tensor"),
    (lambda: PLAIN(NET(X), X, Y), "expected the model itself, not its output, but got Tensor; call"),
    (lambda: PLAIN(NET(X), Y), "but got two of them: criterion(model, x, y)"),
    (lambda: PLAIN(NET, (X, X), Y), "but got tuple; pass several inputs as a mapping by the names"),
    (lambda: PLAIN.backward(NET, X, None), "expected the target to be a tensor, but got NoneType"),
    (lambda: PLAIN(NET, X, Y, foo=1), "expected an option to be one of weight, raw, raw_target, but got 'foo'"),
    (lambda: PLAIN.load_state_dict({}), "expected the criterion's state.step to be of type int, but got None"),
    (lambda: RANDOM(NET, X, Y, generator=0), "expected the generator to be a torch.Generator, but got 0"),
    (torch.no_grad()(lambda: PLAIN.backward(NET, X, Y)), "backward() was called under no_grad"),
)


def fail_at(place, net, error):
    """From now on one pass through the net, forward or backward, fails in its middle."""
    passes = []

    def fail(where):
        if where == place:
            raise error("now")

    def look(module, given, hidden):
        passes.append(hidden)
        number = len(passes)
        fail(f"forward {number}")
        hidden.register_hook(lambda gradient: fail(f"backward {number}"))

    net[6].register_forward_hook(look)


def state(net):
    modes = [(module.training, getattr(module, "track_running_stats", None)) for module in net.modules()]
    return {"modes": modes, "needs": [one.requires_grad for one in net.parameters()]}


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, torch.OutOfMemoryError])
@pytest.mark.parametrize("accumulated", [False, True])
@pytest.mark.parametrize("name", ["rcad", "adversarial", "one direction for two terms", "random"])
def test_no_half_step_is_left(name, accumulated, error):
    failed = 0
    for fails in (f"{way} {number}" for number in (1, 2, 3) for way in ("forward", "backward")):
        net, criterion, (x, y) = norm_net(), Criterion(terms=CASES[name].terms), images()
        learned = [*net.parameters(), x.requires_grad_()]
        net[1].eval()
        if accumulated:
            criterion.backward(net, x, y)
        before = [None if one.grad is None else one.grad.clone() for one in learned]
        held, modes, calls = [one.grad for one in learned], state(net), criterion._counter.value
        fail_at(fails, net, error)
        random = torch.get_rng_state()
        try:
            criterion.backward(net.forward, x, y, generator=torch.Generator().manual_seed(0))
        except error:
            failed += 1
            for one, gradient, was in zip(learned, before, held, strict=True):
                assert one.grad is was
                assert (gradient is None) == (one.grad is None)
                assert gradient is None or torch.equal(one.grad, gradient)
            assert criterion._counter.value == calls
        assert state(net) == modes
        assert torch.equal(torch.get_rng_state(), random)
    assert failed >= 2


def test_the_meta_device_is_refused():
    (x, y), net = images(), norm_net()
    with fails_in_one_line("expected inputs with values, but got the meta device"):
        PLAIN(net, x.to("meta"), y.to("meta"))
    with fails_in_one_line("expected a model with values, but got the meta device, ", "to_empty"):
        PLAIN(net.to("meta"), x, y)
    with fails_in_one_line("expected x with values, but got the meta device"):
        suggest_alpha(x.to("meta"), y)


@pytest.mark.parametrize("name", ["alpha", "lam"])
def test_a_number_that_would_change_nothing_cannot_be_set(name: str) -> None:
    criterion = RCAD(0.5, 0.1)
    with fails_in_one_line(f"expected the {name} that the criterion was built with", f"got {name} = 0.2; build a new"):
        setattr(criterion, name, 0.2)
    assert (criterion.alpha, criterion.lam, copy.deepcopy(criterion).lam) == (0.5, 0.1, 0.1)


def test_a_hook_of_a_parameter_sees_the_whole_gradient() -> None:
    (x, y), nets = images(), [smooth_net(), smooth_net()]
    for net in nets:
        for parameter in net.parameters():
            parameter.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
    RCAD(0.5, 3.0)(nets[0], x, y).backward()
    RCAD(0.5, 3.0).backward(nets[1], x, y)
    assert_same_state(*nets)
