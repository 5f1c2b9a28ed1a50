"""torch.compile around the objective, and a compiled model inside the criterion."""

import shutil

import pytest
import torch
import torch._dynamo.testing
import torch._functorch.config
import torch._inductor.config

from fused_cases import CASES, take
from rcad import Criterion, GradientStep, Objective, Term
from small_nets import assert_same_state, images, norm_net, smooth_net

TERMS = (Term("nll"), Term("rcad", "negative_entropy", 0.1, GradientStep(0.5)))


pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _fresh():
    """Compiled anew: a backward from torch's cache may be one that writes over what it would need the second time.

    Only the C++ compiler need not compile the same text again.
    """
    torch._dynamo.reset()
    torch._functorch.config.donated_buffer = True  # as torch has it, before a loss changes it
    graphs = torch._inductor.config.patch(fx_graph_cache=False)
    with graphs, torch._functorch.config.patch(enable_autograd_cache=False):
        yield


def test_a_compiled_objective_equals_the_plain_one_and_compiles_once():
    x, y = images()
    plain, compiled = norm_net(), norm_net()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    objective, frames = torch.compile(Objective(compiled, terms=TERMS), backend=counter), []
    for _ in range(4):  # from the second call on it meets the compiled code
        for net in (plain, compiled):
            net.zero_grad()
        expected = Objective(plain, terms=TERMS)(x, y)
        expected.total.backward()
        losses = objective(x, y)
        losses.total.backward()
        torch.testing.assert_close(losses.total, expected.total, rtol=1e-5, atol=1e-6)
        assert_same_state(plain, compiled)
        frames.append(counter.frame_count)
    assert frames == [frames[0]] * 4


# One case for the C++ compiler: a pass that is run backward twice, whose memory it might give away the first time.
NEEDS_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
LOOPS = [
    *(("rcad", "aot_eager", fused) for fused in (False, True)),
    *((name, "aot_eager", True) for name in ("adversarial", "two clean terms", "two directions alone")),
    pytest.param("two directions", "inductor", True, marks=NEEDS_COMPILER),
]


@pytest.mark.parametrize(("name", "backend", "fused"), LOOPS)
def test_a_compiled_model_in_one_s_own_loop(name, backend, fused):
    """Where the direction takes a backward of its own, the compiled graph is run backward more than once."""
    x, y = images()
    plain, compiled = (smooth_net() if backend == "inductor" else norm_net() for _ in range(2))
    fast = torch.compile(compiled, backend=backend)
    for weight in (torch.ones(7), None):
        expected, _ = take(False, CASES[name], plain, x, y, weight=weight)
        losses, _ = take(fused, CASES[name], fast, x, y, weight=weight)
        torch.testing.assert_close(losses.total.detach(), expected.total.detach(), rtol=1e-5, atol=1e-6)
    assert_same_state(plain, compiled)


@pytest.mark.parametrize("way", ["objective", "autograd", "weighted", "after a plain step"])
def test_batches_of_other_sizes(way):
    """With sizes that change, torch compiles the backward ahead; it may not give away what a second one needs."""
    plain, compiled, criterion = smooth_net(), smooth_net(), Criterion(terms=TERMS)
    fast = torch.compile(compiled, backend="aot_eager")
    objective = torch.compile(Objective(compiled, terms=TERMS), backend="aot_eager") if way == "objective" else None
    for count in (7, 5, 3):
        x, y = images(count)
        if way == "weighted":
            for net in (plain, fast):
                criterion.backward(net, x, y, weight=torch.ones(count))
            continue
        if way == "after a plain step":  # whose graphs may give their memory away
            for net in (plain, fast):
                criterion.backward(net, x, y)
        criterion(plain, x, y).backward()
        (criterion(fast, x, y) if objective is None else objective(x, y).total).backward()
    assert_same_state(plain, compiled)


@pytest.mark.parametrize("way", ["objective", "criterion"])
def test_nothing_is_compiled_anew_from_call_to_call(way: str) -> None:
    (x, y), net = images(), smooth_net()
    criterion, objective = Criterion(terms=TERMS), Objective(net, terms=TERMS)
    call = {"objective": lambda: objective(x, y).total, "criterion": lambda: criterion(net, x, y)}[way]
    compiled, frames = torch.compile(call, backend="eager", dynamic=False), []
    for _ in range(12):
        compiled().backward()
        frames.append(torch._dynamo.utils.counters["frames"]["total"])
    assert frames[1:] == frames[1:2] * 11


def test_plain_training_is_one_graph() -> None:
    (x, y), nets = images(), [smooth_net(), smooth_net()]
    torch.compile(Objective(nets[0]), backend="eager", fullgraph=True)(x, y).total.backward()
    Objective(nets[1])(x, y).total.backward()
    assert_same_state(*nets)
